"""Handling of Ctrl-C and SIGTERM: training stops between two steps, everything else stops immediately."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """The user asked a run to stop. Not a KeyboardInterrupt, because Lightning would turn that into its own exit."""


class StopRequest:
    """State of a request to stop.

    Attributes:
        deferrable: True while a training loop checks `asked` after each step. The first signal then only sets `asked`;
            the second one, or any signal at another time, also raises `Interrupted`.
        asked: whether to stop.
    """

    def __init__(self) -> None:
        self.deferrable = False
        self.asked = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM in this context. In other threads than the main thread, this does nothing."""
        self.deferrable = self.asked = False
        former: dict[signal.Signals, Any] = {}
        try:
            for number in SIGNALS:
                former[number] = signal.signal(number, self._handle)
        except ValueError:
            former.clear()
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def ask_on_signals(self) -> None:
        """Let SIGINT and SIGTERM only set `asked` from now on, also those that have been blocked until now."""
        for number in SIGNALS:
            signal.signal(number, lambda *_: setattr(self, "asked", True))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _handle(self, number: int, frame: Any) -> None:
        at_once = self.asked or not self.deferrable
        self.asked = True  # first: where Python ignores exceptions, as in a destructor, the request remains
        if at_once:
            raise Interrupted
        print("\nStopping after this step; press Ctrl-C again to stop immediately.", file=sys.stderr, flush=True)


stop = StopRequest()
