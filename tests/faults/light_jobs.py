"""Jobs of a sweep that need no PyTorch, some of which kill their process, while they run or afterwards."""

import os
import signal
import threading
import time
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

DIES, DIES_LATER, GROWS = "dies", "dies_later", "grows"
KEPT: list[bytes] = []


def run(job: Any) -> JobReturn:
    """Run a job in a worker of launcher=joblib."""
    job.directory.mkdir()
    if DIES in job.overrides:
        os.kill(os.getpid(), signal.SIGKILL)
    later = [float(word.removeprefix(DIES_LATER)) for word in job.overrides if word.startswith(DIES_LATER)]
    if later:
        threading.Timer(later[0], os.kill, (os.getpid(), signal.SIGKILL)).start()
    if GROWS in job.overrides:  # by more than loky allows, which looks once a second
        KEPT.append(b"x" * 400_000_000)
        time.sleep(1.1)
    (job.directory / "finished").write_text(str(os.getpid()))
    return JobReturn(job.overrides, status=JobStatus.COMPLETED, _return_value=job.number)
