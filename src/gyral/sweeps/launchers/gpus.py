"""Assignment of GPUs to the workers of a sweep."""

import os
from collections.abc import Sequence
from typing import Any

from gyral.core.checks import check_real
from gyral.core.errors import OptionError
from gyral.runs.provenance import gpu


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, in the notation of CUDA_VISIBLE_DEVICES."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name not in ("", "-1")]
    return [str(number) for number, _ in enumerate((gpu() or "").splitlines())]


def gpus_of_worker(gpus: Sequence[str], gpus_per_job: float, worker: int) -> list[str]:
    """Return the GPUs of one worker.

    Args:
        gpus: all available GPUs.
        gpus_per_job: an integer ≥ 1, or a fraction if several workers share one GPU.
        worker: index of the worker, from 0. If there are more workers than GPUs for them, assignment wraps around.
    """
    if not gpus:
        return []
    if gpus_per_job < 1:
        return [gpus[worker // round(1 / gpus_per_job) % len(gpus)]]
    count = int(gpus_per_job)
    return [gpus[(worker * count + offset) % len(gpus)] for offset in range(min(count, len(gpus)))]


def check_gpus_per_job(gpus: Any) -> float:
    """Return a number of GPUs per job if it is an integer ≥ 1 or 1 divided by one, else raise `OptionError`."""
    gpus = check_real("hydra.launcher.gpus", gpus, above=0)
    if gpus != int(gpus) and not (gpus < 1 and abs(1 / gpus - round(1 / gpus)) < 0.05):
        raise OptionError("hydra.launcher.gpus", gpus, "must be a whole number, or a fraction such as 0.5 or 0.25")
    return gpus
