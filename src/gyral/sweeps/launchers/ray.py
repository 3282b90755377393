"""launcher=ray: the jobs of a sweep on a Ray cluster."""

import logging
import os
import sys
from typing import Any

from hydra.core.utils import JobReturn

from gyral.core.checks import check_real
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.parallel import available_cores
from gyral.sweeps.launchers.base import ParallelLauncher, SweepJob, add_to_python_path, check_n_jobs, execute_in_worker
from gyral.sweeps.launchers.gpus import check_gpus_per_job


class Ray(ParallelLauncher):
    """Runs jobs on a Ray cluster, or on this machine as a cluster of one node.

    Args:
        address: address of a cluster that shares this machine's file system. None: this machine alone.
        n_jobs: maximum number of simultaneous jobs. None: as many as the resources allow.
        cpus: cores per job.
        gpus: GPUs per job, if the cluster has any. With a fraction, several jobs share one.
    """

    def __init__(self, address: str | None = None, n_jobs: int | None = None, cpus: float = 1, gpus: float = 1) -> None:
        self.address, self.n_jobs, self.gpus = address, check_n_jobs(n_jobs), check_gpus_per_job(gpus)
        self.cpus = check_real("hydra.launcher.cpus", cpus, above=0)

    def begin(self) -> int:
        self.ray = import_extra("ray", "launcher=ray", "ray")
        self.running: set[Any] = set()
        add_to_python_path()
        options: dict[str, Any] = {"address": self.address}
        if self.address is None:
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # no other user can join a local cluster
            cpus = None if self.n_jobs is None else max(available_cores(), int(self.n_jobs * self.cpus))
            options = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        try:
            self.ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise OptionError("hydra.launcher.address", self.address, " ".join(str(error).split())) from None
        resources = self.ray.cluster_resources()
        gpus = self.gpus if resources.get("GPU") else 0
        variables = {"OMP_NUM_THREADS": str(max(1, int(self.cpus))), "PYTHONPATH": os.environ["PYTHONPATH"]}
        self.remote = self.ray.remote(
            num_cpus=self.cpus, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": variables}
        )(execute_in_worker)
        capacity = min(resources["CPU"] / self.cpus, resources["GPU"] / gpus if gpus else float("inf"))
        if capacity < 1:
            raise OptionError(
                "hydra.launcher.cpus", f"{self.cpus:g}, gpus={self.gpus:g}", "the cluster does not have as many"
            )
        return min(self.n_jobs or int(capacity), int(capacity))

    def submit(self, jobs: list[SweepJob]) -> list[Any]:
        handles = [self.remote.remote(job) for job in jobs]
        self.running.update(handles)
        return handles

    def wait(self, handles: list[Any]) -> list[Any]:
        return self.ray.wait(handles)[0]

    def result(self, handle: Any) -> JobReturn:
        self.running.remove(handle)
        return self.ray.get(handle)

    def stop(self, at_once: bool) -> None:
        for handle in self.running:
            self.ray.cancel(handle)

    def end(self) -> None:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
