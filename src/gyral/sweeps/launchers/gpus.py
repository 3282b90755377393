"""Assignment of GPUs to the workers of a sweep."""

import functools
import os
import re
from collections.abc import Sequence
from typing import Any

from gyral.core.checks import check_real
from gyral.core.errors import OptionError
from gyral.runs.provenance import ask_driver


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, in the notation of CUDA_VISIBLE_DEVICES."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name not in ("", "-1")]
    return list(listed_gpus())


@functools.cache
def listed_gpus() -> tuple[str, ...]:
    """Return the GPUs that the driver lists: numbers, or names of the instances (MIG) that they are split into."""
    gpus: list[str] = []
    for line in (ask_driver("-L") or "").splitlines():
        if name := re.search(r"UUID: (MIG-[^)\s]+)", line):
            if gpus and gpus[-1].isdigit():  # CUDA does not use a GPU beside its instances
                gpus.pop()
            gpus.append(name[1])
        elif number := re.match(r"GPU (\d+):", line):
            gpus.append(number[1])
    return tuple(gpus)


def simultaneous_jobs(gpus: Sequence[str], gpus_per_job: float) -> int:
    """Return how many jobs run at the same time if each has its GPUs, or its share of one; at least one."""
    shared = round(1 / gpus_per_job) if gpus_per_job < 1 else 1
    return max(1, len(gpus) * shared // max(1, int(gpus_per_job)))


def gpus_of_worker(gpus: Sequence[str], gpus_per_job: float, worker: int) -> list[str]:
    """Return the GPUs of one worker.

    Args:
        gpus: all available GPUs.
        gpus_per_job: an integer ≥ 1, a fraction if several workers share one GPU, or 0 for none.
        worker: index of the worker, from 0. If there are more workers than GPUs for them, assignment wraps around.
    """
    if not gpus or not gpus_per_job:
        return []
    if gpus_per_job < 1:
        return [gpus[worker // round(1 / gpus_per_job) % len(gpus)]]
    count = min(int(gpus_per_job), len(gpus))
    groups = [gpus[first : first + count] for first in range(0, len(gpus) - count + 1, count)]
    return list(groups[worker % len(groups)])


def describe_sharing(gpus: Sequence[str], gpus_per_job: float, n_jobs: int) -> str:
    """Return which GPUs so many simultaneous jobs use, as a text."""
    used = [gpus_of_worker(gpus, gpus_per_job, worker) for worker in range(n_jobs)]
    count, idle = len(used[0]), len(gpus) - len({gpu for own in used for gpu in own})
    own = "1 GPU" if count == 1 else f"{count} GPUs"
    text = f"{len(gpus)} GPUs: {'1 job' if n_jobs == 1 else f'{n_jobs} jobs at a time'}, "
    shares = {used.count(one) for one in used}
    if max(shares) > 1:
        most = max(shares) if len(shares) == 1 else f"up to {max(shares)}"
        text += f"{most} on each GPU" if count == 1 else f"{most} on the same {own}"
    else:
        text += own if n_jobs == 1 else f"{own} each"
    return f"{text}; {idle} {'stays' if idle == 1 else 'stay'} idle" if idle else text


def check_gpus_per_job(gpus: Any) -> float:
    """Return a number of GPUs per job if it is an integer ≥ 0 or 1 divided by one, else raise `OptionError`."""
    gpus = check_real("hydra.launcher.gpus", gpus, minimum=0)
    if gpus != int(gpus) and not (gpus < 1 and abs(1 / gpus - round(1 / gpus)) < 0.05):
        raise OptionError("hydra.launcher.gpus", gpus, "must be a whole number, or a fraction such as 0.5 or 0.25")
    return gpus
