"""launcher=ray: the jobs of a sweep on a Ray cluster."""

import contextlib
import logging
import os
import subprocess
import sys
from typing import Any

from hydra.core.utils import JobReturn

from gyral.core.checks import check_real
from gyral.core.errors import JobError, OptionError
from gyral.core.extras import import_extra
from gyral.core.parallel import available_cores
from gyral.sweeps.launchers.base import ParallelLauncher, SweepJob, add_to_python_path, check_n_jobs, execute_in_worker
from gyral.sweeps.launchers.gpus import check_gpus_per_job

# what jobs read of the environment of the sweep; hydra.job.env_copy names more
VARIABLES = ("DATA_DIR", "GYRAL_", "WANDB_", "TORCH", "TRITON_", "CUBLAS_", "NCCL_", "PG")
CONNECTING = 12  # seconds for an answer of a cluster
POLL = 1.0  # seconds between two looks at the nodes
PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"


def execute_on_node(job: SweepJob, variables: dict[str, str]) -> JobReturn:
    """Run a job in a worker of Ray, with variables of the sweep's environment.

    They are an argument because Ray writes a runtime environment to its logs, and these variables may be keys.
    """
    os.environ.update(variables)
    return execute_in_worker(job)


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
        add_to_python_path()
        options: dict[str, Any] = {"address": self.address}
        if self.address is None:
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # no other user can join a local cluster
            cpus = None if self.n_jobs is None else max(available_cores(), int(self.n_jobs * self.cpus))
            options = {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        else:
            check_cluster(self.address)
        try:
            with contextlib.chdir(sys.prefix):  # Ray puts the current directory first on the path of its workers
                self.ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError) as error:
            raise OptionError("hydra.launcher.address", self.address, " ".join(str(error).split())) from None
        if not self.ray.cluster_resources().get("GPU"):
            self.gpus = 0
        variables = {"OMP_NUM_THREADS": str(max(1, int(self.cpus))), "PYTHONPATH": os.environ["PYTHONPATH"]}
        self.remote = self.ray.remote(
            num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0, runtime_env={"env_vars": variables}
        )(execute_on_node)
        capacity = self.capacity()
        if capacity < 1:
            raise OptionError("hydra.launcher.cpus", self.request(), "no node of the cluster has as many")
        return min(self.n_jobs or capacity, capacity)

    def capacity(self) -> int:
        """Return the number of jobs that the living nodes can run at once."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        gpus = [node.get("GPU", 0) / self.gpus if self.gpus else float("inf") for node in nodes]
        return sum(int(min(node.get("CPU", 0) / self.cpus, gpu)) for node, gpu in zip(nodes, gpus, strict=True))

    def request(self) -> str:
        """Return the resources of a job as values of the option hydra.launcher.cpus and of the next one."""
        return f"{self.cpus:g}, gpus={self.gpus:g}"

    def submit(self, jobs: list[SweepJob]) -> list[Any]:
        variables = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
        return [self.remote.remote(job, variables) for job in jobs]

    def wait(self, handles: list[Any]) -> list[Any]:
        while not (ended := self.ray.wait(handles, timeout=POLL)[0]):
            if self.capacity() < 1:  # Ray would wait for such a node for ever
                for handle in handles:
                    self.ray.cancel(handle, force=True)
        return ended

    def result(self, handle: Any, job: SweepJob) -> JobReturn:
        errors = self.ray.exceptions
        try:
            return self.ray.get(handle)
        except errors.OutOfMemoryError:
            raise JobError(
                "out of memory: Ray ended its worker, because the memory of its node was almost full"
            ) from None
        except errors.NodeDiedError:
            raise JobError("its node died") from None
        except errors.WorkerCrashedError:
            raise JobError("its worker was killed, or its node died") from None
        except errors.TaskCancelledError:
            if self.capacity() < 1:
                raise JobError(f"no node is left that has cpus={self.request()}") from None
            raise

    def stop(self, at_once: bool) -> None:
        for handle in self.running:
            self.ray.cancel(handle, force=at_once)

    def end(self) -> None:
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


def check_cluster(address: str) -> None:
    """Raise `OptionError` if no cluster answers at an address.

    Another process tries, because Ray tries for minutes and cannot be interrupted.
    """
    reason = f"no cluster answers within {CONNECTING} seconds"
    try:
        subprocess.run(
            [sys.executable, "-P", "-c", PROBE, address], stdin=subprocess.DEVNULL, capture_output=True,
            encoding="utf-8", errors="replace", check=True, timeout=CONNECTING,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OptionError("hydra.launcher.address", address, reason) from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or reason).splitlines()[-1]
        raise OptionError("hydra.launcher.address", address, last.partition("Error: ")[2] or last) from None
