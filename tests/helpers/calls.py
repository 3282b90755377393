"""Calls of Gyral's functions, which are counted where times would depend on the machine."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gyral

SOURCE = str(Path(gyral.__file__).parent)
COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")  # calls in some versions of Python only


def calls_of(run: Callable[[], Any], until: Callable[..., Any] | None = None, name: str = "co_qualname") -> list[str]:
    """Return the names of the functions of Gyral that a function calls, one for each call.

    Args:
        run: the function.
        until: the last function to count; None: count them all.
        name: the attribute of the code of a function that names it, such as "co_filename" for its file.
    """
    calls = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name not in COMPREHENSIONS:
            calls.append(getattr(code, name))
        if until is not None and code is until.__code__:
            sys.setprofile(None)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls
