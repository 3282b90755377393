"""Data of concepts and boxes for the suites of all tasks: see tests/helpers/slices.py."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.applications.boxes.model import ConceptModel
from gyral.applications.boxes.tasks.concept_pairs import MARGIN, Probability
from tests.helpers.running import SMALL

# a run of a second, without sequences
FELINES = (
    *(item for item in SMALL if not item.startswith(("model.", "task"))),
    *("task=hypernyms", "task.root=feline.n.01", "task.val_size=5", "task.test_size=5", "task.negatives=2"),
    *("task.batch_size=16", "model=smoothed_box", "optimizer=adam", "optimizer.lr=0.01"),
)
TASKS = Path(__file__).parent / "tasks"
OPTIONS: dict[str, Any] = {
    "phrases.test": str(TASKS / "phrases.tsv"),
    "hypernyms_wordnet.data_dir": str(TASKS),  # the published files are large
}
ALTERNATIVES: dict[str, list[Any]] = {
    "hypernyms.hierarchy": [str(TASKS / "tree.tsv")],
    "hypernyms.root": ["carnivore.n.01"],
    "ratings.ratings": [str(TASKS / "ratings.csv")],
    "ratings.liked": [3.0],
    "lattice.hierarchy": [str(TASKS / "tree.tsv")],
    "lattice.root": ["animal"],
    "ratings.sampled_pairs": [60],
    "phrases.test": [str(TASKS / "more_phrases.tsv")],
    "phrases.train": [str(TASKS / "more_phrases.tsv")],
    "phrases.val": [str(TASKS / "more_phrases.tsv")],
}
NO_EFFECT = ("titles",)  # are shown
ABSENT = (r"(wordnet|denotation_probabilities|ml-100k)/\S+: no such file",)  # the error without a corpus


def model_options(required: type, cell: str, size: int) -> tuple[str, ...] | None:
    """Return the options of a small model, which has no cell."""
    return ("model=smoothed_box", f"model.dimension={size}") if required is ConceptModel else None


def oracle(task: Any, batch: Any) -> Tensor | None:
    """Return the logarithms of the correct probabilities."""
    return task.targets(batch).log().clamp(min=-50) if isinstance(task.objective, Probability) else None


def uniform(task: Any, batch: Any) -> Tensor | None:
    """Return outputs that are the same for all inputs."""
    return torch.zeros(batch.targets.shape) if isinstance(task.objective, Probability) else None


def right_scores(task: Any, batches: list[Any]) -> dict[str, float] | None:
    """Return the cross-entropy and the divergence of correct predictions with a bounded probability."""
    if not isinstance(task.objective, Probability):
        return None
    targets = torch.cat([task.targets(batch) for batch in batches]).double()
    predicted = targets * (1 - MARGIN)
    loss = -(torch.xlogy(targets, predicted) + torch.xlogy(1 - targets, 1 - predicted)).mean()
    entropy = -(torch.xlogy(targets, targets) + torch.xlogy(1 - targets, 1 - targets)).mean()
    return {"loss": loss.item(), "kl": (loss - entropy).item()}
