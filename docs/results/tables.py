"""The tables of the results of language models that docs/results.py fills in."""

from typing import Any


def dynamic(rows: dict[str, Any]) -> list[list[str]]:
    """Return the lines of a table with the perplexities on test without and with dynamic evaluation."""
    names = ("test/perplexity", "test/dynamic_perplexity")
    lines = [["", "seeds", "perplexity", "with dynamic evaluation"]]
    return lines + [[name, str(len(runs)), *(runs.mean(one) for one in names)] for name, runs in rows.items()]
