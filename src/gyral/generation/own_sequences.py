"""Predictions for new sequences of a user's own, in pieces, so that files of any size can be read."""

from collections.abc import Collection, Sequence
from itertools import chain, count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED, SortedBatches
from gyral.data.sequences.examples import Sequences, SplitExamples
from gyral.data.sequences.new import SPLIT, New, read_new
from gyral.data.sequences.pieces import read_pieces
from gyral.tasks.class_metrics import ClassMetrics
from gyral.tasks.predicted import Tables, class_columns, metrics_of
from gyral.tasks.sequences import SequencesTask

MOST_SCORES = 10_000_000  # probabilities that AUROC and average precision keep; without these, files of any size stream


def predict_sequences(task: SequencesTask, data: Any) -> Tables:
    """Sequences: a .csv, .tsv, .npz, .parquet, .jsonl or .json file with the columns of the inputs of the run.

    A row has the name or the number of its sequence and, with a target per step, the number and the time of its step;
    the predicted class and the probability of each class, or the predicted values in the units of the targets; and the
    target, if there is one.

    Args:
        task: a trained task.
        data: path of a file, a data frame, or arrays; see `gyral.data.sequences.pieces.read_pieces`.

    Raises:
        OptionError: the data cannot be read, has other columns than those of the run, or values that cannot be used.
    """
    schema = task.data.sequences.schema
    first, scores = 0, 0
    is_labelled = None  # in the first piece
    for piece in read_pieces(data, schema):
        try:
            new = read_new(piece.file, schema)
        except OptionError as error:
            if piece.first:
                reason = f"{error.reason} (rows are counted from row {piece.first:,} of the file)"
                raise OptionError(error.option, error.value, reason) from None
            raise
        sequences, has_targets, _ = new
        if is_labelled not in (None, has_targets):
            have = "have targets, which earlier ones lack" if has_targets else "lack the targets that earlier ones have"
            raise OptionError("data", data, f"the rows from row {first:,} {have}; all rows must have them, or none")
        is_labelled = has_targets
        task.reserve(int(sequences.lengths.max()))
        outputs = _outputs(task, sequences, is_labelled)
        scores += outputs.numel()
        if is_labelled and scores > MOST_SCORES and isinstance(task.metrics, ClassMetrics):
            task.metrics.leave_out_ranking()
        yield _table(new, outputs, first)
        first += len(sequences.lengths)
    return metrics_of(task, bool(is_labelled))


def _outputs(task: SequencesTask, sequences: Sequences, is_labelled: bool) -> Tensor:
    """Return the outputs of all sequences, (N, …), or of all their steps, (S, …), and count their metrics."""
    batches = SortedBatches(SplitExamples(sequences, SPLIT), task.data.batch_size, longest_first=True)
    parts = []
    for batch in batches:
        batch = task.transfer_batch_to_device(batch, task.device, 0)
        outputs = task(batch)
        if is_labelled:
            task.metrics.update(outputs, batch, task.loss(outputs, batch))
        if sequences.per_step and batch.lengths is not None:
            outputs = outputs[torch.arange(outputs.shape[1], device=task.device) < batch.lengths[:, None]]
        parts.append((outputs.flatten(0, 1) if sequences.per_step and batch.lengths is None else outputs).cpu())
    order = batches.order
    if sequences.per_step:
        order = np.concatenate([np.arange(start, start + length) for start, length in _spans(sequences, order)])
    sorted_outputs = torch.cat(parts)
    outputs = torch.empty_like(sorted_outputs)
    outputs[torch.from_numpy(order)] = sorted_outputs
    return outputs


def _spans(sequences: Sequences, rows: np.ndarray) -> Any:
    return zip(sequences.starts[rows].tolist(), sequences.lengths[rows].tolist(), strict=True)


def _table(new: New, outputs: Tensor, first: int) -> dict[str, Any]:
    """Return the table of predictions.

    Args:
        new: the sequences.
        outputs: their outputs, one for each sequence or step.
        first: the number of the first sequence.
    """
    sequences, is_labelled, times = new
    schema, lengths = sequences.schema, sequences.lengths
    names: Any = np.array(sequences.names) if sequences.names else np.arange(first, first + len(lengths))
    if schema.target_size is None:
        predicted = class_columns(outputs, schema.labels)
        targets = [[schema.labels[each] if each != IGNORED else "" for each in sequences.targets.tolist()]]
        heads: Sequence[str] = ("target",)
    else:
        heads = ("target",) if schema.target_size == 1 else _target_names(schema.targets, schema.target_size)
        values = outputs.float().numpy()
        targets = [*sequences.targets.T]
        ends = [head.removeprefix("target") for head in heads]
        predicted = {f"prediction{end}": values[:, place] for place, end in enumerate(ends)}
    if is_labelled:
        predicted = {**predicted, **dict(zip(heads, targets, strict=True))}
    taken = {*predicted, "step"} if sequences.per_step else {*predicted}
    name = _free(schema.sequence or "row", "sequence", taken)
    columns = {name: np.repeat(names, lengths) if sequences.per_step else names}
    if sequences.per_step:
        columns["step"] = np.concatenate([np.arange(length) for length in lengths])
        if times is not None:
            own = times if times.dtype.kind in "biuf" else times.astype(str)
            columns[_free(str(schema.time), "time", {*taken, name})] = own
    return {**columns, **predicted}


def _free(name: str, instead: str, taken: Collection[str]) -> str:
    """Return the name of a column of the file, or another one if a column of the table has this name."""
    others = (f"{instead}_{number}" for number in count(2))
    return next(each for each in chain((name, instead), others) if each not in taken)


def _target_names(targets: Sequence[str], size: int) -> list[str]:
    """Return the heads of several targets: the names of their columns, or numbers for the values of one column."""
    return [f"target_{name}" for name in (targets if len(targets) == size else range(size))]
