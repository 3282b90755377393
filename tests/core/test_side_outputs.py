"""What is beside the training may fail or hang: one line says so, and the caller continues."""

import logging
import sys
import threading
import time

import pytest

from gyral.core.side_outputs import SideOutput, within


def test_the_result_and_the_error_of_a_call_equal_those_of_the_function() -> None:
    assert within(10, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        within(10, divmod, 7, 0)


def test_a_call_that_takes_too_long_is_left_behind() -> None:
    late = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer in 0\.1 seconds"):
        within(0.1, late.wait, 600)
    late.set()


def refuse(reason: str) -> None:
    raise ValueError(reason)


def test_only_the_first_failure_is_reported_and_further_calls_are_made(caplog: pytest.LogCaptureFixture) -> None:
    output = SideOutput("the plot", "loss.png is missing")
    with caplog.at_level(logging.WARNING):
        assert output.call(refuse, "invalid literal\nand more") is None
        assert output.call(refuse, "no space") is None
        assert output.call(divmod, 7, 2) == (3, 1)
    assert [record.message for record in caplog.records] == ["the plot: invalid literal and more; loss.png is missing"]
    assert output.failed


def test_after_a_call_that_hangs_no_further_calls_are_made(caplog: pytest.LogCaptureFixture) -> None:
    output, called = SideOutput("the dashboard", "it is missing", seconds=0.1), []
    output.call(time.sleep, 60)
    output.call(called.append, 1)
    assert (called, len(caplog.records)) == ([], 1)


def test_a_call_cannot_end_the_program(caplog: pytest.LogCaptureFixture) -> None:
    SideOutput("the plot", "loss.png is missing").call(sys.exit, 3)
    assert [record.message for record in caplog.records] == ["the plot: 3; loss.png is missing"]
