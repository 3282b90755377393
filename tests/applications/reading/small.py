"""Data of the reading tasks for the suites of all tasks: see tests/helpers/slices.py."""

from pathlib import Path
from typing import Any

from gyral.applications.reading.models.reader import Reader
from gyral.data.batching import IGNORED
from tests.helpers.running import SMALL

# a run of a second on generated stories
SMALL_READING = (
    *(option for option in SMALL if option.split("=")[0] not in ("task.train_size", "task.val_size", "task.test_size")),
    "task.generated=true",
    "task.size=1k",
    "trainer.max_steps=4",
    "trainer.val_check_interval=4",
)
OWN = str(Path(__file__).parents[1] / "babi" / "own_questions.txt")
ALTERNATIVES: dict[str, list[Any]] = {
    "qa": [2, "all"],
    "size": ["10k"],
    "edges": ["none"],
    "vocabulary_size": [8],
    "files": [[OWN, OWN]],
}
# options of files, which do not change generated questions
NO_EFFECT = (
    *("generated", "path", "data_dir", "validation", "stand_in"),
    *("entities", "plurals", "source", "chains", "hypernyms"),
)
WITHOUT_PREDICTION = ("answerable", "most_mentioned")


def model_options(required: type, cell: str, size: int) -> tuple[str, ...] | None:
    """Return the options of a small reader with a cell."""
    if required is not Reader:
        return None
    options = ("query_indicator=true", "chain_features=2", f"embedding_size={size}", f"cell.hidden_size={size}")
    return ("model=attention_sum", f"cell@model.cell={cell}", *(f"model.{option}" for option in options))


def right_scores(task: Any, batches: list[Any]) -> dict[str, float] | None:
    """Return the accuracy of correct predictions: a question whose answer is not a candidate counts as wrong."""
    if "answerable" not in task.metrics.names:
        return None
    answers = [bool(target != IGNORED) for batch in batches for target in batch.targets]
    return {"accuracy": sum(answers) / len(answers)}


def effects(task: Any) -> list[Any] | None:
    """Return further values that an option may change, besides the data and the model."""
    return [task.ngrams] if hasattr(task, "ngrams") and isinstance(task.model, Reader) else None
