"""The inputs and targets of a trained model, as checkpoints save them: names of columns, sizes and labels."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gyral.core.forms import FormError

MISSING = ("refuse", "mask")


@dataclass(frozen=True)
class Schema:
    """The names, the order and the sizes of the inputs and targets of a file.

    Attributes:
        inputs: names of the columns of the inputs, in the order of the dimensions of a step.
        targets: names of the columns of the targets.
        lengths, sequence, time: names of the columns with lengths, sequences and times; None: there is none.
        missing: what missing inputs are, see `gyral.data.sequences.corpus.SequencesFile`.
        time_gaps: whether the time since the previous step is the last dimension of a step.
        per_step: whether each step has a target.
        vocabulary_size: number of tokens; None for real inputs.
        input_size: number of real values per step, the time gap included; None for tokens.
        labels: names of the classes in the order of the outputs; empty for real targets.
        counts: how often each class is a target in the training split; empty for real targets.
        target_size: number of real values of a target; None for classes.
        longest: number of steps of the longest sequence.
        step_tokens: W, the most tokens of a step; None: a step has one, or real values.
    """

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    lengths: str | None
    sequence: str | None
    time: str | None
    missing: str
    time_gaps: bool
    per_step: bool
    vocabulary_size: int | None
    input_size: int | None
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    target_size: int | None
    longest: int
    step_tokens: int | None = None

    @property
    def is_real(self) -> bool:
        """Whether the inputs are real values rather than tokens."""
        return self.input_size is not None

    def plain(self) -> dict[str, Any]:
        """Return the attributes as a dictionary of lists, texts and numbers, for a checkpoint."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def of_plain(cls, saved: Any) -> "Schema":
        """Return the schema that `plain` wrote.

        Raises:
            FormError: it has other contents.
        """
        kinds: dict[str, Any] = {
            "inputs": _are_texts,
            "targets": _are_texts,
            **dict.fromkeys(("lengths", "sequence", "time"), _is_text_or_none),
            "missing": MISSING.__contains__,
            **dict.fromkeys(("time_gaps", "per_step"), lambda value: isinstance(value, bool)),
            **dict.fromkeys(("vocabulary_size", "input_size", "target_size", "step_tokens"), _is_size_or_none),
            "labels": _are_texts,
            "counts": _are_counts,
            "longest": lambda value: value is not None and _is_size_or_none(value),
        }
        if not isinstance(saved, Mapping):
            raise FormError("schema: must be a dictionary")
        saved = {"step_tokens": None, **saved}  # which older runs lack
        for name, fits in kinds.items():
            if name not in saved or not fits(saved[name]):
                raise FormError(f"schema.{name}: is absent or has another type than a run writes")
        if len(saved["counts"]) != len(saved["labels"]):
            raise FormError("schema.counts: must have a number for each label")
        lists = ("inputs", "targets", "labels", "counts")
        values: dict[str, Any] = {name: tuple(saved[name]) if name in lists else saved[name] for name in kinds}
        return cls(**values)


def _are_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


def _are_counts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(each) is int and each >= 0 for each in value)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_size_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31)
