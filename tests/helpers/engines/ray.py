"""A Ray cluster for tests: two nodes on this machine."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.helpers.engines import daemon, free_port, wait_until

# a node counts as dead after 1.5 seconds without an answer
SETTINGS = '{"health_check_period_ms": 500, "health_check_timeout_ms": 500, "health_check_failure_threshold": 3}'


class Cluster:
    """A Ray cluster. Its nodes see each other by their address alone, as on several machines.

    Attributes:
        address: the address for hydra.launcher.address.
        folder: the folder with its logs.
        nodes: the processes that have started the nodes, the head node first.
    """

    def __init__(self, address: str, folder: Path, nodes: list[psutil.Process]) -> None:
        self.address, self.folder, self.nodes = address, folder, nodes

    def workers(self, node: int) -> list[psutil.Process]:
        """Return the processes of a node that run jobs now."""
        return [process for process in _descendants(self.nodes[node]) if "execute_on_node" in _title(process)]

    def kill_node(self, node: int) -> None:
        """Kill all processes of a node, as the loss of its machine does."""
        for process in _descendants(self.nodes[node]):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def cluster(cpus: Sequence[int] = (1, 1)) -> Iterator[Cluster]:
    """Start a Ray cluster in a folder of its own, on free ports; end its processes, by their ids, with the context.

    Args:
        cpus: for each node, the number of cores that Ray counts.
    """
    pytest.importorskip("ray", reason="Ray is not installed; see make test-cluster-install")
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short, because paths of sockets are
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_DISABLE_IMPORT_WARNING": "1"}
    for name in ("DATA_DIR", "OMP_NUM_THREADS", "PYTHONPATH", "RAY_ADDRESS"):  # jobs get them from the sweep
        environment.pop(name, None)
    own = ("--block", "--num-gpus=0", "--disable-usage-stats", f"--object-store-memory={10**8}")
    port = free_port()
    try:
        with ExitStack() as stack:
            started: list[psutil.Process] = []
            for number, cores in enumerate(cpus):
                head = ("--head", f"--port={port}", f"--temp-dir={folder}", f"--system-config={SETTINGS}")
                place = (*head, "--include-dashboard=false", f"--ray-client-server-port={free_port()}")
                if number > 0:
                    place = (f"--address=127.0.0.1:{port}",)
                ports = [f"--dashboard-agent-listen-port={free_port()}", "--min-worker-port=0", "--max-worker-port=0"]
                ray = [sys.executable, "-m", "ray.scripts.scripts"]
                command = [*ray, "start", *place, *own, *ports, f"--num-cpus={cores}"]
                log = folder / f"start{number}.log"
                process = stack.enter_context(daemon(command, log, environment))
                started.append(psutil.Process(process.pid))
                stack.callback(_kill, started[-1])
                wait_until(lambda log=log: "--block" in log.read_text(), 60, f"Ray's node {number}")  # type: ignore[misc]
            yield Cluster(f"127.0.0.1:{port}", folder, started)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # processes of Ray may still write


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _kill(process: psutil.Process) -> None:
    """Kill a process with all that it has started."""
    for each in [*_descendants(process), process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
