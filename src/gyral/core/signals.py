"""Ctrl-C and SIGTERM: a run that trains stops between two steps, anything else stops at once."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """The user asked a run to stop. No KeyboardInterrupt, which Lightning would turn into an exit of its own."""


class StopRequest:
    """Whether a signal asked to stop.

    Attributes:
        deferrable: True while someone looks at `asked` after each step. The first signal then sets `asked`; the second,
            or any signal at another time, raises `Interrupted`.
        asked: whether to stop.
    """

    def __init__(self) -> None:
        self.deferrable = False
        self.asked = False

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to SIGINT and SIGTERM within this context; outside the main thread they are left alone."""
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

    def _handle(self, number: int, frame: Any) -> None:
        if self.asked or not self.deferrable:
            raise Interrupted
        self.asked = True
        print("\nStopping after this step; once more stops at once.", file=sys.stderr, flush=True)


stop = StopRequest()
