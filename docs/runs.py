"""The runs behind a table of results, folded: a line for all seeds of a setting, and the commands that train them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from shlex import split

from gyral.core.commands import typed
from gyral.core.escaping import escape_markdown
from gyral.reports.render.text import labelled_runs
from gyral.reports.tables.sections import Section
from gyral.runs.run_record import RunRecord

ROW = ("experiment", "model")  # the options that choose a row; each row has its own commands
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e-?\d+)?)")
Options = dict[str, list[str]]  # the values of the options of a command


def folded_runs(section: Section) -> str:
    """Return the runs of a section as a block that opens on a click, "" if there are none."""
    runs = list(labelled_runs(section))
    if not runs:
        return ""
    measures = section.measures if section.sweep else section.measures[:1]
    varied = _varied([record for _, record in runs])
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for label, record in runs:
        given = " ".join(word for word in words_of(record) if _key(word) in varied and word not in label)
        groups.setdefault((label, given), []).append(record)
    heads = ["row", "options", "seeds", *(measure.title for measure in measures), "steps", "commit"]
    rows = []
    for (label, given), records in sorted(groups.items(), key=lambda group: _by_row(group[0], groups)):
        records.sort(key=lambda record: natural(record.seed))
        values = (
            "; ".join(_value(measure.value(record.results), measure.digits) for record in records)
            for measure in measures
        )
        steps = [f"{record.steps:,}" if record.steps else "–" for record in records]
        shown = steps[:1] if len({*steps}) == 1 else steps
        commits = dict.fromkeys(record.provenance.code for record in records)
        seeds = ", ".join(record.seed for record in records)
        rows.append([label, given, seeds, *values, "; ".join(shown), ", ".join(commits)])
    kept = [index for index in range(len(heads)) if any(row[index] not in ("", "–") for row in rows)]
    lines = [[escape_markdown(row[index]) for index in kept] for row in (heads, *rows)]
    lines.insert(1, ["---", *["---:"] * (len(kept) - 2), "---"])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    commands = "\n".join(commands_of(record for _, record in runs))
    summary = "1 run" if len(runs) == 1 else f"{len(runs):,} runs"
    return (
        f"<details markdown>\n<summary>{summary} with commits and commands</summary>\n\n{table}\n\n"
        f"```bash\n{commands}\n```\n\n</details>"
    )


def commands_of(records: Iterable[RunRecord]) -> list[str]:
    """Return the commands of runs; those of a row that differ in the values of one option are one command with `-m`."""
    found: dict[tuple[str, ...], list[Options]] = {}
    for record in records:
        program, words = _split(record)
        options = {_key(word): [word.partition("=")[2] if "=" in word else word] for word in words}
        found.setdefault(program, []).append(options)
    return [
        command
        for program, commands in found.items()
        for command in dict.fromkeys(_command(program, options) for options in _merged(commands))
    ]


def words_of(record: RunRecord) -> list[str]:
    """Return the overrides on the command line of a run."""
    return _split(record)[1]


def natural(text: str) -> list[tuple[bool, float, str]]:
    """Return a key that sorts texts with their numbers in order: 2 before 10, and 0.005 before 0.03."""
    parts = enumerate(NUMBER.split(text))
    return [(bool(index % 2), float(part) if index % 2 else 0.0, part) for index, part in parts if part]


def _split(record: RunRecord) -> tuple[tuple[str, ...], list[str]]:
    words = split(record.provenance.command)
    start = next((index for index, word in enumerate(words) if "=" in word or word.startswith("~")), len(words))
    return tuple(words[:start]), words[start:]


def _key(word: str) -> str:
    return word.partition("=")[0]


def _varied(records: Sequence[RunRecord]) -> set[str]:
    """Return the options that not all commands have with the same value."""
    found = [{_key(word): word for word in words_of(record)} for record in records]
    keys = {key for words in found for key in words} - {*ROW, "seed"}
    return {key for key in keys if len({words.get(key) for words in found}) > 1}


def _by_row(group: tuple[str, str], groups: Iterable[tuple[str, str]]) -> tuple[int, list[tuple[bool, float, str]]]:
    labels = list(dict.fromkeys(label for label, _ in groups))
    return labels.index(group[0]), natural(group[1])


def _value(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _merged(commands: list[Options]) -> list[Options]:
    """Return fewer commands for the same runs: the seeds are merged first, then one option after another."""
    keys = dict.fromkeys(["seed", *(key for options in commands for key in options if key not in ROW)])
    for key in keys:
        groups: dict[str, Options] = {}
        for options in commands:
            values = options.get(key, [])
            if not values or any("," in value or value.startswith("~") for value in values):
                groups[str(options)] = options
                continue
            rest = str([(name, own) for name, own in options.items() if name != key])
            same = groups.setdefault(f"{key} in {rest}", {**options, key: []})
            same[key] = sorted({*same[key], *values}, key=natural)
        commands = list(groups.values())
    return commands


def _command(program: Sequence[str], options: Options) -> str:
    words = list(_words(options))
    several = ["-m"] if any(len(values) > 1 for values in options.values()) else []
    return typed([*program, *several, *words])


def _words(options: Options) -> Iterator[str]:
    for key, values in options.items():
        yield key if values == [key] else f"{key}={','.join(values)}"
