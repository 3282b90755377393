"""Handling of Ctrl-C and of signals of schedulers: training stops between two steps, everything else stops at once.

Every signal asks for the same, a stop after the current step with a checkpoint. SIGINT is Ctrl-C. SIGTERM comes from
the system or a scheduler: SLURM sends two of them within milliseconds when it preempts a job. SIGHUP means that the
terminal has closed. SIGUSR1 and SIGUSR2 are what schedulers send before a time limit, such as `sbatch --signal`.
"""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
SECOND = 0.3  # seconds after which another SIGINT is a second Ctrl-C: one may arrive twice, from terminal and parent
STOPPING = "Stopping after this step"


class Interrupted(BaseException):
    """The user asked a run to stop. Not a KeyboardInterrupt, because Lightning would turn that into its own exit."""


class StopRequest:
    """State of a request to stop.

    Attributes:
        deferrable: True while a training loop checks `asked` after each step. The first signal then only sets `asked`;
            at another time it also raises `Interrupted`.
        announcement: what the first signal prints while `deferrable`.
        received: the signals, in their order. After the first one, only a second Ctrl-C has an effect: it raises
            `Interrupted`.
    """

    def __init__(self) -> None:
        self.deferrable = False
        self.announcement = STOPPING
        self.received: list[int] = []
        self._first = 0.0  # time of the first signal
        self._handles = False

    @property
    def asked(self) -> bool:
        """Whether to stop."""
        return bool(self.received)

    def add(self, number: int) -> bool:
        """Add a signal, and return whether it has an effect: it is the first one, or a second Ctrl-C."""
        now, is_first = time.monotonic(), not self.received
        self.received.append(number)
        self._first = now if is_first else self._first
        return is_first or (number == signal.SIGINT and now - self._first > SECOND)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Handle `SIGNALS` in this context. Within another such context, this does nothing."""
        if self._handles:
            yield
            return
        self.deferrable, self.received = False, []
        with handlers(self._handle):
            self._handles = True
            try:
                yield
            finally:
                self._handles = self.deferrable = False

    @contextmanager
    def deferred(self, announcement: str) -> Iterator[None]:
        """Let the first signal in this context only set `asked` and print a line: what is in it ends soon."""
        with self.on_signals():
            self.deferrable, self.announcement = True, announcement
            try:
                yield
            finally:
                self.deferrable, self.announcement = False, STOPPING

    def ask_on_signals(self) -> None:
        """Let `SIGNALS` only set `asked` from now on, also those that have been blocked until now."""
        for number in SIGNALS:
            signal.signal(number, lambda number, _: self.received.append(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _handle(self, number: int, frame: Any) -> None:
        is_first = not self.asked
        # added first: where Python ignores exceptions, as in a destructor, the request remains
        if not self.add(number):
            return
        if not (is_first and self.deferrable):
            raise Interrupted
        print(f"\n{self.announcement}; press Ctrl-C again to stop immediately.", file=sys.stderr, flush=True)


def interrupt(number: int, frame: Any) -> None:
    """Handle a signal by raising `Interrupted`."""
    raise Interrupted


@contextmanager
def handlers(handler: Callable[[int, Any], None], numbers: Sequence[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Handle signals in this context by a function. In other threads than the main thread, this does nothing.

    SIGHUP stays ignored if it is, as under nohup.
    """
    former: dict[signal.Signals, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    former[number] = signal.signal(number, handler)
        yield
    finally:
        for number, previous in former.items():
            signal.signal(number, previous)


stop = StopRequest()
