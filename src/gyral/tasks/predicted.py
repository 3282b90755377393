"""Predictions for inputs of a user's own: tables of rows, piece by piece, and the metrics if there are targets."""

import copy
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from gyral.core.extras import import_extra

# The columns of some rows, in order, by their names: one entry for each row.
Table: TypeAlias = Mapping[str, Sequence[Any] | np.ndarray]
# What a predictor is: it yields tables with the same columns and returns the metrics by name, none without targets.
Tables: TypeAlias = Generator[Table, None, dict[str, float]]


class Predictions(Iterable[Table]):
    """The predictions of a task for inputs of a user's own, which are made while they are read, once.

    Args:
        task: the task, which is in eval mode and without gradients while it makes a table.
        tables: the tables, see `Task.predictor`.

    Attributes:
        metrics: the metrics by name after the last table; empty if the inputs have no targets.
        count: the number of rows so far.
    """

    def __init__(self, task: Any, tables: Tables) -> None:
        self._task, self._tables = task, tables
        self._own = copy.deepcopy(task.metrics)  # other evaluations may come before the last table
        self._own.reset()
        self.metrics: dict[str, float] = {}
        self.count = 0

    def __iter__(self) -> Iterator[Table]:
        while True:
            try:
                with self._task.evaluating(), self._metrics():
                    table = next(self._tables)
            except StopIteration as end:
                self.metrics = end.value
                return
            self.count += len(next(iter(table.values())))
            yield table

    @contextmanager
    def _metrics(self) -> Iterator[None]:
        """Let the task count in the metrics of these predictions within the context."""
        others = self._task.metrics
        self._task.metrics = self._own
        try:
            yield
        finally:
            self._task.metrics = others

    def frame(self) -> Any:
        """Return all predictions as one `pandas.DataFrame`; its `attrs["metrics"]` has the metrics, if any."""
        pd = import_extra("pandas", "predictions.frame()", "frames")
        tables = [pd.DataFrame(dict(table)) for table in self]
        frame = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
        frame.attrs.update({"metrics": self.metrics} if self.metrics else {})
        return frame


def class_columns(logits: Tensor, names: Sequence[str | int]) -> dict[str, Sequence[Any] | np.ndarray]:
    """Return the columns of predicted classes: the likeliest class, and the probability of each class.

    Args:
        logits: (n, classes).
        names: the names of the classes.
    """
    probabilities = logits.float().softmax(dim=-1).cpu().numpy()
    best = logits.argmax(dim=-1).tolist()
    columns: dict[str, Any] = {"prediction": [names[index] for index in best]}
    return columns | {f"probability_{name}": probabilities[:, index] for index, name in enumerate(names)}


def metrics_of(task: Any, is_labelled: bool) -> dict[str, float]:
    """Return the metrics of a task since the last call, and reset them; none if no target was among the inputs."""
    values = task.metrics.compute() if is_labelled else {}
    return {name: value.item() for name, value in values.items()}
