"""Optional outputs of a run, such as dashboards. A failure or timeout is logged in one line; training continues."""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gyral.core.errors import one_line

log = logging.getLogger(__name__)


def within(seconds: float, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function in its own thread and return its result.

    A call that takes too long continues in its thread, which does not keep the process from ending. Signals are handled
    while this function waits.

    Raises:
        TimeoutError: the call has not ended after this many seconds.
        Exception: any exception of the function.
    """
    ended: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def call() -> None:
        try:
            ended.put((function(*arguments, **options), None))
        except BaseException as error:
            ended.put((None, error))

    threading.Thread(target=call, name=f"side output {function!r}", daemon=True).start()
    try:
        result, error = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer in {seconds:g} seconds") from None
    if error is not None:
        raise RuntimeError(str(error)) if isinstance(error, SystemExit) else error
    return result


class SideOutput:
    """An optional output of the training, such as a dashboard, that must not end or block it.

    The first call that fails or takes too long is reported in one line. Later failures are not, and after a call that
    took too long, no further calls are made.

    Args:
        name: the name of the output, at the start of the line.
        missing: what is missing after a failure and how to get it, the end of the line.
        seconds: how long a call may take.

    Attributes:
        failed: whether a call has failed.

    Example:
        >>> picture = SideOutput("the plot", "loss.png is missing")
        >>> picture.call(divmod, 7, 2)
        (3, 1)
    """

    def __init__(self, name: str, missing: str, seconds: float = 60.0) -> None:
        self.name, self.missing, self.seconds = name, missing, seconds
        self.failed = False
        self._hangs = False

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None, **options: Any) -> Any:
        """Call a function and return its result, or None if it fails or takes too long.

        Args:
            function: the function, which runs in its own thread.
            *arguments, **options: its arguments.
            seconds: how long it may take. None: `self.seconds`.
        """
        if self._hangs:
            return None
        with self.guard():
            return within(self.seconds if seconds is None else seconds, function, *arguments, **options)
        return None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Report the failure of the body, which has no time limit, and continue after it."""
        try:
            yield
        except Exception as error:
            self._hangs = isinstance(error, TimeoutError)
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Report a failure, unless one was reported before."""
        if not self.failed:
            from gyral.core.extras import missing_extra  # now: most runs have no failure

            log.warning("%s: %s; %s", self.name, (missing_extra(error) or one_line(error)).rstrip("."), self.missing)
        self.failed = True
