"""The processes that a launcher such as srun, torchrun or mpirun has started. Reads environment variables only."""

import os
import re
import socket
import sys
import time
import zlib
from dataclasses import dataclass
from typing import NoReturn

from gyral.core.errors import UserError

NO_STEP = 0xFFFFFFF0  # from here on, SLURM's ids are of batch scripts and interactive shells, not of steps of srun
DELAY = 3.0  # seconds in which process 0 prints an error
FIRST_PORT, PORTS = 15000, 16000  # below the ports that the system gives to connections


@dataclass(frozen=True)
class Place:
    """The place of a process among those that a launcher has started together.

    Attributes:
        launcher: name of the launcher, for messages.
        rank, size: rank of the process, from 0, and number of processes.
        local_rank, local_size: the same among the processes of its node.
        nodes: number of nodes.
        address, port: where process 0 listens; "" and 0 if the launcher does not say.
        job: distinguishes these processes from others that meet there.
        has_store: whether torchrun listens there, with a store of torch, instead of process 0.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    nodes: int
    address: str
    port: int
    job: str = ""
    has_store: bool = False

    @property
    def one_per_node(self) -> bool:
        """Whether a process starts the others of its node. torchrun starts all of them."""
        return self.size == self.nodes and self.launcher != "torchrun"


def launched() -> Place | None:
    """Return the place of this process among those that a launcher has started, or None if it was started alone.

    Raises:
        UserError: a variable is not a number.
    """
    # The launcher of the process itself comes first: SLURM may start the daemons of mpirun and torchrun.
    for variable, read in (
        ("TORCHELASTIC_RUN_ID", _torchrun),
        ("OMPI_COMM_WORLD_SIZE", _open_mpi),
        ("MPI_LOCALRANKID", _mpich),
        ("SLURM_STEP_ID", _srun),
        ("WORLD_SIZE", _variables),
    ):
        place = read() if variable in os.environ else None
        if place is not None:
            return place if place.size > 1 else None
    return None


def node_name() -> str:
    """Return the name of this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def refuse(place: Place, error: UserError) -> NoReturn:
    """Raise an error that all processes of a launcher have, in process 0 alone. The others end silently, with status 1.

    They end later, because torchrun ends process 0 as soon as another process has ended with an error.
    """
    if place.rank > 0:
        time.sleep(DELAY)
        sys.exit(1)
    raise error


def _torchrun() -> Place:
    size, local_size = _number("WORLD_SIZE"), _number("LOCAL_WORLD_SIZE")
    job = f"{os.environ['TORCHELASTIC_RUN_ID']}.{_number('TORCHELASTIC_RESTART_COUNT', 0)}"
    own_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    ranks = (_number("RANK"), size, _number("LOCAL_RANK"), local_size, _nodes(size, local_size))
    return Place("torchrun", *ranks, *_meeting_point(), job, own_store)


def _open_mpi() -> Place:
    prefix = "OMPI_COMM_WORLD_"
    size, local_size = _number(f"{prefix}SIZE"), _number(f"{prefix}LOCAL_SIZE")
    nodes, job = _nodes(size, local_size), os.environ.get("PMIX_NAMESPACE", "")
    here = ("127.0.0.1", _port(zlib.crc32(job.encode()))) if nodes == 1 and job else ()
    ranks = (_number(f"{prefix}RANK"), size, _number(f"{prefix}LOCAL_RANK"), local_size, nodes)
    return Place("mpirun", *ranks, *_meeting_point(*here), job)


def _mpich() -> Place:
    size, local_size = _number("PMI_SIZE"), _number("MPI_LOCALNRANKS")
    ranks = (_number("PMI_RANK"), size, _number("MPI_LOCALRANKID"), local_size, _nodes(size, local_size))
    return Place("mpiexec", *ranks, *_meeting_point())


def _srun() -> Place | None:
    """Return the place in a step of srun; None in a batch script, in a shell, and in a step of one process."""
    step, size = _number("SLURM_STEP_ID"), _number("SLURM_STEP_NUM_TASKS", 1)
    if step >= NO_STEP or size == 1:
        return None
    node = _number("SLURM_NODEID")
    local_sizes: list[int] = []
    for part in os.environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):  # "2(x3),1": on three nodes 2, on one 1
        counts = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if counts is None:
            raise UserError(f"environment variable SLURM_STEP_TASKS_PER_NODE={part}: must be numbers of processes")
        local_sizes += [int(counts[1])] * int(counts[2] or 1)
    job = _number("SLURM_JOB_ID")
    nodes = os.environ.get("SLURM_STEP_NODELIST", "")
    first = re.sub(r"\[(\d+)[^]]*\]", r"\1", nodes).partition(",")[0]  # "node[01-03,07],other2" begins with node01
    return Place(
        "srun",
        _number("SLURM_PROCID"),
        size,
        _number("SLURM_LOCALID"),
        local_sizes[min(node, len(local_sizes) - 1)],
        len(local_sizes),
        *_meeting_point(first, _port(100 * job + step)),
        f"{job}.{step}.{_number('SLURM_RESTART_COUNT', 0)}",
    )


def _variables() -> Place | None:
    """Return the place that the variables of torch give, which other launchers set, too."""
    if not {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        return None
    size, rank = _number("WORLD_SIZE"), _number("RANK")
    alone = "LOCAL_RANK" not in os.environ  # on its node
    local_size = _number("LOCAL_WORLD_SIZE", 1 if alone else size)
    ranks = (rank, size, _number("LOCAL_RANK", 0), local_size, _nodes(size, local_size))
    return Place("the launcher", *ranks, *_meeting_point())


def on_nodes(count: int) -> Place | None:
    """Return the place of the only process of a node, of `count` nodes; None if the variables do not give it."""
    if not {"NODE_RANK", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        return None
    return Place("the user", _number("NODE_RANK"), count, 0, 1, count, *_meeting_point())


def _nodes(size: int, local_size: int) -> int:
    return -(-size // max(1, local_size))


def _meeting_point(address: str = "", port: int = 0) -> tuple[str, int]:
    """Return address and port from the variables by which users set them, or these."""
    return os.environ.get("MASTER_ADDR", address), _number("MASTER_PORT", port)


def _port(number: int) -> int:
    return FIRST_PORT + number % PORTS


def _number(name: str, default: int | None = None) -> int:
    value = os.environ.get(name, "" if default is None else str(default))
    if not value.isdecimal():
        raise UserError(f"environment variable {name}={value}: must be a number")
    return int(value)
