"""Random splits of sequences into training, validation and test."""

from pathlib import Path

import numpy as np
import torch

from gyral.core.errors import OptionError
from gyral.core.inputs import count_of, excerpt
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED, mix_seed
from gyral.data.sequences.columns import Column


def draw_splits(path: Path, count: int, val_fraction: float, test_fraction: float, seed: int) -> dict[str, np.ndarray]:
    """Return random splits of the rows, none of which is empty."""
    if count < len(SPLITS):
        raise OptionError("data", path, f"has {count} sequences; must have at least {len(SPLITS)}, one for each split")
    generator = torch.Generator().manual_seed(mix_seed(seed, "split"))
    order = torch.randperm(count, generator=generator).numpy()
    return {name: np.sort(rows) for name, rows in _cut(order, val_fraction, test_fraction).items()}


def _cut(order: np.ndarray, val_fraction: float, test_fraction: float) -> dict[str, np.ndarray]:
    """Return rows in a random order as splits, each of which has at least one of three or more rows."""
    val = min(max(1, round(val_fraction * len(order))), len(order) - 2)
    test = min(max(1, round(test_fraction * len(order))), len(order) - 1 - val)
    train = len(order) - val - test
    return dict(zip(SPLITS, np.split(order, [train, train + val]), strict=True))


def draw_stratified_splits(
    path: Path, targets: Column, val_fraction: float, test_fraction: float, seed: int
) -> dict[str, np.ndarray]:
    """Return random splits of the rows, in each of which every class has the same share, up to rounding.

    Args:
        path: the file, for errors.
        targets: the class of each row, before it has a number.
        val_fraction, test_fraction: shares of the rows of a class for validation and test, at least one row each.
        seed: seed of the splits.

    Raises:
        OptionError: there is no class for each row, or a class has fewer rows than there are splits.
    """
    values = targets.values
    if values.dtype.kind not in "biuf":
        values = values.astype(str)
    is_measured = values.dtype.kind == "f" and bool((values[~np.isnan(values)] % 1).any())
    if not targets.is_scalar or values.ndim > 1 or is_measured:
        raise OptionError("stratify", True, f"must be false: {targets.place} has no class for each sequence")
    generator = torch.Generator().manual_seed(mix_seed(seed, "split"))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    for value in np.unique(values):
        has_class = value == value and value not in ("", IGNORED)
        rows = np.flatnonzero(values == value) if value == value else np.flatnonzero(values != values)
        if len(rows) < len(SPLITS):
            if has_class:
                label, few = excerpt([str(value)]), count_of(len(rows), "sequence")
                reason = f"the class {label} has {few}; task.stratify=true needs at least {len(SPLITS)} of each class"
                raise OptionError("data", path, f"{targets.place}: {reason}")
            parts["train"].append(rows)
            continue
        order = rows[torch.randperm(len(rows), generator=generator).numpy()]
        for name, own in _cut(order, val_fraction, test_fraction).items():
            parts[name].append(own)
    return {name: np.sort(np.concatenate(own)) for name, own in parts.items()}
