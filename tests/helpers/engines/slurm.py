"""A SLURM cluster of two nodes on this machine, each with one core, and two partitions: high preempts main.

The daemons run as the user of the tests, without munge. SLURM_CONF names their configuration, so that the commands of
SLURM that a test calls know this cluster alone.
"""

import contextlib
import getpass
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.helpers.engines import daemon, free_port, require, wait_until

NODES = ("node1", "node2")
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
"""
DATABASE_DAEMON = """\
AuthType=auth/none
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost={url.hostname}
StoragePort={url.port}
StorageUser={url.username}
StoragePass={password}
StorageLoc={database}
"""
CONFIGURATION = """\
ClusterName=gyral
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SwitchType=switch/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldTimeout=10
SlurmdTimeout=20
KillWait={kill_wait}
MinJobAge={min_job_age}
InactiveLimit=0
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,requeue_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
{accounting}
{nodes}
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace_time} MaxTime=60
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True)
class Slurm:
    """A running cluster.

    Attributes:
        folder: the folder of its files.
        environment: variables by which commands of SLURM find it.
        daemons: the daemons of the nodes.
    """

    folder: Path
    environment: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def call(self, *command: str, check: bool = True, **options: object) -> str:
        """Return what a command of SLURM prints."""
        variables = {**os.environ, **self.environment}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return str(done.stdout)

    def states(self) -> dict[str, str]:
        """Return the state of each job, or task of an array, that SLURM still knows."""
        lines = self.call("scontrol", "show", "job", "--oneliner", check=False).splitlines()
        facts = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
        return {job_id(fact): fact["JobState"] for fact in facts if "JobId" in fact}

    def preempt(self, node: str, seconds: float = 1.0) -> str:
        """Submit a job that preempts whatever runs on a node; return its id."""
        command = ["sbatch", "--parsable", "--partition=high", f"--nodelist={node}", "--output=/dev/null"]
        return self.call(*command, "--wrap", f"sleep {seconds}", cwd=self.folder).strip()

    def fail(self, node: str) -> None:
        """Let a node vanish from the network; its processes continue."""
        self.daemons[node].kill()
        self.daemons[node].wait()

    def wait_for(self, job: str, *states: str, seconds: float = 90) -> None:
        """Wait until a job has one of some states."""
        wait_until(lambda: self.states().get(job) in states, seconds, f"job {job}: {states}")


def job_id(facts: dict[str, str]) -> str:
    """Return the id of a job from what `scontrol show job` says of it."""
    return f"{facts['ArrayJobId']}_{facts['ArrayTaskId']}" if "ArrayTaskId" in facts else facts["JobId"]


@contextlib.contextmanager
def slurm(
    folder: Path, *, grace_time: int = 0, kill_wait: int = 30, min_job_age: int = 300, database: str | None = None
) -> Iterator[Slurm]:
    """Start a cluster in a folder, and end it when the context exits.

    Args:
        folder: an empty folder.
        grace_time: seconds that a preempted job has after its first SIGTERM.
        kill_wait: seconds between SIGTERM and SIGKILL.
        min_job_age: seconds until the controller forgets a job that has ended.
        database: URL of a MariaDB database for accounting. None: no accounting.
    """
    controller, node_daemon, *_ = require("SLURM", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
    (folder / "state").mkdir(parents=True)
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    configuration = folder / "slurm.conf"
    cluster = Slurm(folder, {"SLURM_CONF": str(configuration)})
    variables = {**clean(os.environ), **cluster.environment}
    with contextlib.ExitStack() as stack:
        # not in the folder: the paths of the Unix sockets there have at most 107 bytes, and SLURM holds a job for ever
        # whose socket cannot be opened, as "launch failed requeued held"
        spool = stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm", ignore_cleanup_errors=True))
        stack.callback(kill_processes, configuration)
        accounting = "" if database is None else stack.enter_context(_accounting(folder, host, user, database))
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=1 RealMemory=4000"
            for node in NODES
        ]
        configuration.write_text(
            CONFIGURATION.format(
                host=host,
                port=free_port(),
                user=user,
                folder=folder,
                spool=spool,
                kill_wait=kill_wait,
                grace_time=grace_time,
                min_job_age=min_job_age,
                accounting=accounting,
                nodes="\n".join(nodes),
            )
        )
        stack.enter_context(daemon([controller, "-D", "-i", "-f", configuration], folder / "ctld.log", variables))
        stack.callback(end_jobs, cluster)
        for node in NODES:
            command = [node_daemon, "-D", "-N", node, "-f", configuration]
            cluster.daemons[node] = stack.enter_context(daemon(command, folder / f"{node}.log", variables))
        ready = {f"{node} idle" for node in NODES}
        look = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        wait_until(lambda: set(cluster.call(*look, check=False).splitlines()) == ready, 30, "nodes that are idle")
        yield cluster


@contextlib.contextmanager
def _accounting(folder: Path, host: str, user: str, database: str) -> Iterator[str]:
    """Start the daemon of accounting; yield the lines by which the controller finds it."""
    (program,) = require("SLURM's accounting", "slurmdbd")
    url, port = urlsplit(database), free_port()
    assert url.password is not None
    configuration = folder / "slurmdbd.conf"
    text = DATABASE_DAEMON.format(
        host=host, port=port, user=user, folder=folder, url=url, password=unquote(url.password), database=url.path[1:]
    )
    configuration.write_text(text)
    configuration.chmod(0o600)  # slurmdbd refuses others
    with daemon([program, "-D"], folder / "dbd.log", {**clean(os.environ), "SLURM_CONF": str(folder / "slurm.conf")}):
        wait_until(lambda: "started" in (folder / "dbd.log").read_text(), 60, "slurmdbd")
        yield ACCOUNTING.format(port=port)


def clean(variables: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """Return environment variables without those of a job that the tests may run in."""
    return {name: value for name, value in variables.items() if not name.startswith(("SLURM", "SBATCH"))}


def kill_processes(configuration: Path) -> None:
    """Kill what is left of a cluster: daemons of steps, and processes of a node that was lost."""
    own = f"SLURM_CONF={configuration}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if own in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def end_jobs(cluster: Slurm) -> None:
    """Cancel all jobs of a cluster, and wait until they have ended."""
    cluster.call("scancel", "--user", getpass.getuser(), "--signal=KILL", "--full", check=False)
    cluster.call("scancel", "--user", getpass.getuser(), check=False)
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not cluster.call("squeue", "-h", check=False).strip(), 20)
