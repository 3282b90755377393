"""A small file of sequences for `task=sequences`."""

import functools
import tempfile
from pathlib import Path

import numpy as np

_FOLDER = tempfile.TemporaryDirectory(prefix="gyral-sequences-")  # removed when the process ends


@functools.cache
def sequences_file(seed: int = 0) -> Path:
    """Return the path of a file with 60 sequences of at most 6 steps, in arrays of all kinds that the task reads."""
    generator = np.random.default_rng(seed)
    rows, steps = 60, 6
    inputs = generator.normal(size=(rows, steps, 2)).astype(np.float32)
    path = Path(_FOLDER.name) / f"sequences_{seed}.npz"
    np.savez(
        path,
        inputs=inputs,
        targets=inputs[..., 0].cumsum(axis=1),
        lengths=generator.integers(2, steps + 1, rows),
        a=inputs[..., 0],
        b=inputs[..., 1],
        tokens=generator.integers(0, 5, (rows, steps)),
        classes=np.arange(rows) % 3,
        order=np.arange(rows)[::-1],
        part=np.array(["train"] * 30 + ["val"] * 20 + ["test"] * 10),
    )
    return path
