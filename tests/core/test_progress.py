"""The line of progress on a terminal: durations, and the column of the time."""

from rich.progress import Task, TaskID

from gyral.core.progress import _time_column, format_seconds


def test_durations() -> None:
    assert [format_seconds(seconds) for seconds in (0, 5.4, 65, 7265)] == ["0:00", "0:05", "1:05", "2:01:05"]


def test_the_time_is_that_which_is_left_or_has_passed_if_the_number_of_steps_is_unknown() -> None:
    def text(total: float | None, time: float) -> str:
        task = Task(TaskID(0), "training", total, completed=0, _get_time=lambda: time)
        task.start_time = 0.0
        return str(_time_column().render(task))

    assert text(None, 75.0) == "1:15"
    assert text(100, 75.0) == ""  # no step has ended
