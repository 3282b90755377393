"""The processes of a run that a launcher has started: how they find each other, and how each learns that one failed.

The process of rank 0 keeps the records. All meet in a store of torch, which has these keys:

* directory, options: of process 0, which the others take part in.
* start: process 0 has built the run and opened its records, so that the others may build it, too.
* end: process 0 has written the marker DONE.
* agreed, ready, left: numbers of processes.
* name/<rank>: what messages call a process. alive/<rank>: a counter that each process increases every second.
* failure: the message of the process that failed first.
"""

import functools
import itertools
import json
import logging
import math
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from torch import distributed

from gyral.config.plain import as_config, plain_values
from gyral.config.roles import first_difference, identity_of
from gyral.core.commands import output_of
from gyral.core.errors import OptionError, UserError
from gyral.core.files import to_json
from gyral.core.ranks import Place, launched, node_name, on_nodes, refuse
from gyral.core.signals import Interrupted
from gyral.runs.directory import load_run, resolve
from gyral.runs.opening import check_resume, remove_empty
from gyral.training.ddp.peers import GRACE, TICK, ProcessError, end_process
from gyral.training.ddp.strategy import ClusterEnvironment

log = logging.getLogger(__name__)

# Time limits in seconds: of the processes to start; of a process to give a sign of life, and to do so when torch has
# lost a connection; of the other processes to end after process 0.
START_TIMEOUT, SILENCE_TIMEOUT, FAILURE_TIMEOUT, EXIT_TIMEOUT = 600.0, 60.0, 4.0, 5.0
POLL = 0.1  # seconds
INTERRUPTED = "interrupted"  # the failure of a process that was asked to stop

_runs = itertools.count()  # of this process, which may train several, one after another


class Group:
    """The processes of a run that a launcher has started.

    Args:
        place: the place of this process.

    Attributes:
        rank: rank of the process; if each starts others on its node, rank of the node.
        directory: the run directory, after `agree`.

    Raises:
        ProcessError: process 0 cannot be reached.
    """

    def __init__(self, place: Place) -> None:
        self.rank, self._place = place.rank, place
        self._others = [rank for rank in range(place.size) if rank != place.rank]
        self._prefix = f"gyral/{place.job}/{next(_runs)}"
        self._store = distributed.PrefixStore(self._prefix, _connect(place))
        self._seen = ""  # the failure of the process that failed first
        self._first_ended = False
        self._in_body, self._left = False, threading.Event()
        node = node_name()
        self._name = f"node {place.rank} ({node})" if place.one_per_node else f"process {place.rank} on {node}"
        self._store.set(f"name/{self.rank}", self._name)
        self._store.add(f"alive/{self.rank}", 1)  # here, because this process may end before its thread counts
        threading.Thread(target=self._watch, daemon=True).start()

    def agree(self, config: DictConfig, directory: Path) -> None:
        """Take the run directory of process 0, and wait until all processes have started.

        Args:
            config: the configuration of this process, resolved, which must be that of process 0.
            directory: the run directory that this process would have alone.
        """
        self.directory = directory
        own = to_json(identity_of(plain_values(config)))
        if self.rank == 0:
            self._store.set("options", own)
            self._store.set("directory", str(directory.absolute()))
        else:
            self._wait(lambda: self._has("directory"), START_TIMEOUT)
            self.directory = Path(self._store.get("directory").decode())
            difference = first_difference(json.loads(self._store.get("options")), json.loads(own))
            if difference:
                raise UserError(f"{self._place.launcher} started processes with different options ({difference})")
        self._store.add("agreed", 1)
        if self.rank == 0:
            self._wait(lambda: self._count("agreed") == self._place.size, START_TIMEOUT)

    @property
    def environment(self) -> ClusterEnvironment:
        """The environment for the trainer of this process."""
        address, port = _reachable(self._place)
        return ClusterEnvironment(0, self._place, address, port, f"{self._prefix}/trainer")

    def configured(self, config: DictConfig) -> DictConfig:
        """Return a configuration with the processes that the launcher has started, instead of its own number."""
        values = plain_values(config)
        trainer: dict[str, Any] = {"strategy": "ddp", "num_nodes": self._place.nodes}
        if not self._place.one_per_node:
            trainer["devices"] = self._place.local_size
        return as_config({**values, "trainer": {**values["trainer"], **trainer}})

    def start(self) -> None:
        """Let the other processes build the run, and wait until all are ready."""
        self._in_body = True
        if self.rank == 0:
            self._store.set("start", "")
        self._store.add("ready", 1)
        self._wait(lambda: self._count("ready") == self._place.size)

    def wait_for_start(self) -> bool:
        """Wait until process 0 has opened the run; return False if it is DONE already.

        If process 0 fails before, this process ends silently: process 0 has reported the reason.
        """
        try:
            self._wait(lambda: self._has("start") or self._has("end"))
        except ProcessError as error:
            if self._first_ended:
                raise
            refuse(self._place, UserError(str(error)))
        return self._has("start")

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Publish an error of the body, unless it follows from the failure of another process, which is raised then."""
        try:
            yield
        except BaseException as error:
            cause = self._cause_of(error)
            self._fail(cause or error)
            if cause is None:
                raise
            raise cause from error
        finally:
            self._in_body = False

    def leave(self, failed: bool) -> None:
        """End the part of this process. Process 0 waits for the others, which read the store until then."""
        try:
            if self.rank > 0 and not failed:
                self._wait(lambda: self._has("end"))
            with suppress(ProcessError):
                if self.rank > 0:
                    self._ask(self._store.add, "left", 1)
                    return
                if not failed:
                    self._ask(self._store.set, "end", "")
                self._poll(lambda: self._count("left") == self._place.size - 1, EXIT_TIMEOUT)
        finally:
            self._left.set()

    def _wait(self, condition: Callable[[], bool], seconds: float = math.inf) -> None:
        """Wait until a condition holds.

        Raises:
            ProcessError: another process failed, or the time has passed.
            Interrupted: another process was asked to stop.
        """

        def holds() -> bool:
            met = condition()
            if not met:
                self._raise_failure()
            return met

        if not self._poll(holds, seconds):
            absent = [f"process {rank}" for rank in self._others if not self._has(f"name/{rank}")]
            raise ProcessError(
                f"{', '.join(absent) or 'another process'} did not start within {START_TIMEOUT:g} seconds"
            )

    @staticmethod
    def _poll(condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, for some seconds at most; return whether it does."""
        until = time.monotonic() + seconds
        while not (holds := condition()) and time.monotonic() < until:
            time.sleep(POLL)  # here, this process handles signals
        return holds

    def _has(self, key: str) -> bool:
        return bool(self._ask(self._store.check, [key]))

    def _count(self, key: str) -> int:
        return int(self._ask(self._store.add, key, 0))

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the store, which is in process 0."""
        if not self._first_ended:  # else torch would print a warning for each call
            try:
                return method(*arguments)
            except RuntimeError:
                self._first_ended = True
                self._seen = self._seen or "process 0 ended without a message"
        raise ProcessError(self._seen)

    def _failure(self) -> str:
        """Return the failure of the process that failed first, or an empty text."""
        if not self._seen and self._has("failure"):
            self._seen = self._store.get("failure").decode()
        return self._seen

    def _raise_failure(self) -> None:
        failure = self._failure()
        if failure == INTERRUPTED:
            raise Interrupted
        if failure:
            raise ProcessError(failure)

    def _fail(self, error: BaseException) -> None:
        """Publish an error as the failure of this process, unless another has failed before."""
        if isinstance(error, ProcessError):  # it says which process failed
            text = str(error)
        elif isinstance(error, Interrupted | KeyboardInterrupt):
            text = INTERRUPTED
        else:
            summary = str(error) if isinstance(error, UserError) else traceback.format_exception_only(error)[-1].strip()
            text = f"{self._name}: {summary}\n{''.join(traceback.format_exception(error))}"
        with suppress(ProcessError):
            self._ask(self._store.compare_set, "failure", "", text)

    def _cause_of(self, error: BaseException) -> BaseException | None:
        """Return the failure of another process from which an error follows, or None.

        torch raises a RuntimeError when it loses the connection to a process. torchrun stops all when one has failed.
        """
        if isinstance(error, ProcessError) or not isinstance(error, RuntimeError | Interrupted):
            return None
        try:
            self._raise_failure()
            if isinstance(error, Interrupted):
                return None
            before = self._signs_of_life()
            self._poll(lambda: bool(self._failure()), FAILURE_TIMEOUT)
            self._raise_failure()
            lost = [rank for rank, count in self._signs_of_life().items() if count and count == before[rank]]
        except (ProcessError, Interrupted) as cause:
            return None if isinstance(error, Interrupted) and isinstance(cause, Interrupted) else cause
        return ProcessError(f"{self._named(lost[0])} ended without a message") if lost else None

    def _signs_of_life(self) -> dict[int, int]:
        """Return the counters of the other processes, 0 for one that has not started yet."""
        return {rank: self._count(f"alive/{rank}") for rank in self._others}

    def _watch(self) -> None:
        """Give signs of life, and end this process when another has failed and this one waits for it nevertheless."""
        silent = dict.fromkeys(self._others, 0.0)
        counts = dict.fromkeys(self._others, 0)
        failed = 0.0
        while not self._left.wait(TICK):
            try:
                self._ask(self._store.add, f"alive/{self.rank}", 1)
                for rank in self._others if self.rank == 0 else [0]:
                    count = self._count(f"alive/{rank}")
                    silent[rank] = silent[rank] + TICK if 0 < count == counts[rank] else 0.0
                    counts[rank] = count
                    if silent[rank] >= SILENCE_TIMEOUT:
                        self._fail(
                            ProcessError(f"{self._named(rank)} has not responded for {SILENCE_TIMEOUT:g} seconds")
                        )
                failure = self._failure()
            except ProcessError as error:
                failure = str(error)
            failed = failed + TICK if failure and self._in_body else 0.0
            if failed > GRACE:
                end_process(self.directory if self.rank == 0 and failure != INTERRUPTED else None, failure)

    def _named(self, rank: int) -> str:
        return self._store.get(f"name/{rank}").decode()


@functools.cache
def _connect(place: Place) -> distributed.TCPStore:
    """Return the store where the processes of a launcher meet, which exists as long as this process."""
    address, port = _reachable(place)
    if place.rank == 0 and not place.has_store:
        try:
            return distributed.TCPStore(address, port, is_master=True, wait_for_workers=False)
        except RuntimeError as error:
            raise UserError(f"MASTER_PORT={port}: cannot be used: {str(error).splitlines()[0]}") from None
    until = time.monotonic() + START_TIMEOUT
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return distributed.TCPStore(address, port, is_master=False, wait_for_workers=False)
        except OSError as error:
            if time.monotonic() > until:
                raise ProcessError(f"process 0 cannot be reached at {address}:{port}: {error.strerror}") from None
            time.sleep(POLL)


def _reachable(place: Place) -> tuple[str, int]:
    """Return address and port of the store.

    Raises:
        UserError: the launcher does not say where processes of several nodes meet.
    """
    if not place.address or not place.port:
        raise UserError(f"{place.launcher}: set MASTER_ADDR and MASTER_PORT, an address and a free port of process 0")
    if place.rank == 0 and not place.has_store:
        return "127.0.0.1", place.port
    return _address_of(place.address) if place.launcher == "srun" else place.address, place.port


@functools.cache
def _address_of(node: str) -> str:
    """Return the address of a node, which SLURM knows if the name has none."""
    try:
        socket.getaddrinfo(node, None)
        return node
    except OSError:
        command = ["scontrol", "show", "node", "--oneliner", node]
        with suppress(OSError):
            for word in output_of(*command).split():
                if word.startswith("NodeAddr="):
                    return word.partition("=")[2]
        return node


@contextmanager
def meet(config: DictConfig) -> Iterator[Group | None]:
    """Form one run of the processes that a launcher has started, if the configuration is for several processes.

    Yields:
        the processes; None if this process trains its own run.

    Raises:
        UserError: the processes cannot form one run.
    """
    directory = Path(HydraConfig.get().runtime.output_dir)
    check_resume(config, directory)
    config = resolve(config) if config.resume is None else load_run(directory, config.get("trust"), "resume").config
    nodes = config.trainer.get("num_nodes", 1)
    place = launched() or on_nodes(nodes)
    if place is None or place.size == 1:
        yield None
        return
    forms_one_run = config.trainer.get("strategy") == "ddp" or nodes != 1
    try:
        _check_numbers(place) if forms_one_run else _check_alone(place, config.trainer.get("devices"))
    except OptionError as error:
        remove_empty(directory)  # Hydra has created it
        refuse(place, error)
    if not forms_one_run:
        yield None
        return
    group = Group(place)
    failed = True
    try:
        with group.reporting():
            group.agree(config, directory)
            if group.rank > 0 and group.directory.resolve() != directory.resolve():
                remove_empty(directory)
            yield group
            failed = False
    finally:
        group.leave(failed)


def _check_alone(place: Place, devices: Any) -> None:
    """Check that each process of a launcher may train its own run."""
    if place.launcher == "torchrun" or "SUBMITIT_EXECUTOR" in os.environ:  # with launcher=slurm: for one job
        reason = f"{place.launcher} started {place.size} processes; trainer=ddp trains one model in all of them"
        raise OptionError("trainer.devices", devices, reason)
    if place.rank == 0:
        _announce(place)


@functools.cache  # once, however many runs this process trains
def _announce(place: Place) -> None:
    each = "each of which trains its own run; trainer=ddp trains one model in all"
    log.info("%s started %d processes, %s", place.launcher, place.size, each)


def _check_numbers(place: Place) -> None:
    """Check that numbers of processes on the command line, if any, are those of the launcher."""
    numbers = {"num_nodes": place.nodes, **({} if place.one_per_node else {"devices": place.local_size})}
    for override in HydraConfig.get().overrides.task:
        key, _, value = override.lstrip("+").partition("=")
        number = numbers.get(key.removeprefix("trainer."))
        if key.startswith("trainer.") and number is not None and value not in (str(number), "auto"):
            what = "nodes" if key == "trainer.num_nodes" else "processes on this node"
            raise OptionError(key, value, f"{place.launcher} started {number} {what}; leave this option out")
