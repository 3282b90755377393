"""The place of a process among those that launchers have started, from the variables that they set."""

import os

import pytest

from gyral.core.errors import UserError
from gyral.core.ranks import launched, on_nodes

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "29500",
}
SRUN = {
    "SLURM_JOB_ID": "71",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "3",
    "SLURM_NTASKS": "16",  # of the job, not of the step
}
ONE_PER_NODE = {
    **SRUN,
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_STEP_NODELIST": "cpu-3,gpu7",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "3134455809",
}
INTEL_MPI = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
KUBERNETES = {
    "RANK": "2",
    "WORLD_SIZE": "3",
    "MASTER_ADDR": "job-master-0",
    "MASTER_PORT": "23456",
    "PYTHONUNBUFFERED": "0",
}
BATCH_SCRIPT = {
    "SLURM_JOB_ID": "71",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    beginnings = ("SLURM", "TORCHELASTIC", "OMPI", "PMI", "MPI_", "RANK", "WORLD", "LOCAL_", "MASTER", "NODE_RANK")
    for name in os.environ:
        if name.startswith(beginnings):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (TORCHRUN, ("torchrun", 5, 8, 1, 4, 2, "first", 29500, "none.2", True)),
        ({**SRUN, **TORCHRUN}, ("torchrun", 5, 8, 1, 4, 2, "first", 29500, "none.2", True)),
        (SRUN, ("srun", 6, 7, 0, 1, 4, "gpu07", 15000 + 7103, "71.3.0", False)),
        (ONE_PER_NODE, ("srun", 1, 2, 0, 1, 2, "cpu-3", 15000 + 7103, "71.3.0", False)),
        (
            {**ONE_PER_NODE, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "5", "SLURM_RESTART_COUNT": "1"},
            ("srun", 1, 2, 0, 1, 2, "10.0.0.1", 5, "71.3.1", False),
        ),
        (OPEN_MPI, ("mpirun", 1, 2, 1, 2, 1, "127.0.0.1", 30502, "3134455809", False)),
        ({**SRUN, **INTEL_MPI}, ("mpiexec", 3, 4, 1, 2, 2, "", 0, "", False)),
        (KUBERNETES, ("the launcher", 2, 3, 0, 1, 3, "job-master-0", 23456, "", False)),
        ({**KUBERNETES, "LOCAL_RANK": "2"}, ("the launcher", 2, 3, 2, 3, 1, "job-master-0", 23456, "", False)),
    ],
    ids=["torchrun", "torchrun in srun", "srun", "one per node", "own port", "mpirun", "mpiexec", "pods", "one node"],
)  # fmt: skip
def test_a_launcher_gives_the_place_of_a_process(
    variables: dict[str, str], place: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = launched()
    assert found is not None
    assert tuple(vars(found).values()) == place
    assert found.one_per_node == (found.size == found.nodes)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        BATCH_SCRIPT,
        {**BATCH_SCRIPT, "SLURM_STEP_ID": "4294967291"},
        {**SRUN, "SLURM_STEP_ID": "4294967290"},
        {**SRUN, "SLURM_STEP_NUM_TASKS": "1"},
        {**TORCHRUN, "WORLD_SIZE": "1"},
        {**SRUN, **TORCHRUN, "WORLD_SIZE": "1"},
        {"RANK": "1", "LOCAL_RANK": "1"},
        {"RANK": "1", "WORLD_SIZE": "2"},
    ],
    ids=[
        "nothing",
        "sbatch",
        "batch step",
        "salloc",
        "srun -n1",
        "torchrun 1",
        "packed torchrun",
        "rank",
        "no address",
    ],
)
def test_a_process_that_was_started_alone_has_no_place(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched() is None


def test_what_is_no_number_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KUBERNETES, "RANK": "two"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"^environment variable RANK=two: must be a number$"):
        launched()


def test_nodes_that_a_user_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_RANK", "1")
    monkeypatch.setenv("MASTER_ADDR", "first")
    assert on_nodes(3) is None, "the port is missing"
    monkeypatch.setenv("MASTER_PORT", "5")
    found = on_nodes(3)
    assert found is not None
    assert (found.rank, found.size, found.nodes, found.one_per_node) == (1, 3, 3, True)
