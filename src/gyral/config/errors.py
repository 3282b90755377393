"""Errors as one line of text for the user."""

import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb

from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import GrammarParseError, InterpolationResolutionError, OmegaConfBaseException, ValidationError

from gyral.config.groups import allowed_choices, choices
from gyral.config.overrides import parse, text
from gyral.config.words import suggest
from gyral.core.commands import typed
from gyral.core.errors import SweepError, UserError, hide_passwords, one_line, printable
from gyral.core.memory import is_out_of_memory

# folders of Python, of installed packages, and of Gyral with the scripts beside it
KNOWN = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (*sysconfig.get_paths().values(), *map(str, Path(__file__).parents[1:3]))
)


def describe(error: BaseException, options: Sequence[str] = ()) -> str:
    """Return the message of an error in one line, with escapes for control characters and without passwords of URLs.

    Args:
        error: the error.
        options: words of the command line that set options of Hydra; an error that is not known otherwise is theirs.
    """
    return printable(hide_passwords(_describe(error, options)))


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and what led to it, which is the deepest in the code."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def _describe(error: BaseException, options: Sequence[str]) -> str:
    from gyral.core.extras import missing_extra  # now: most commands have no error

    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, UserError | SweepError):
            return "\\n".join(str(cause).splitlines())  # names in files and names of files may have line breaks
        if missing := missing_extra(cause):
            return missing
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _describe_composition(causes)
    if isinstance(error, OSError):
        return f"{error.filename or 'writing'}: {error.strerror or error}"
    message = one_line(error) if str(error).strip() else "no message"
    if is_out_of_memory(error):
        return f"out of memory: {allocation(error)}; reduce task.batch_size, or the sizes of the model or the task"
    if options:
        return f"{' '.join(options)}: not possible: {type(error).__name__}: {message}"
    place = place_in_own_code(error)
    where = f"{place}: " if place else ""
    return f"{where}{type(error).__name__}: {message} (HYDRA_FULL_ERROR=1 shows the traceback)"


def allocation(error: BaseException) -> str:
    """Return the allocation that failed, from the message of torch or Python."""
    return (str(error).strip() or "no memory is left").splitlines()[0].rpartition("Allocator: ")[2]


def _describe_composition(causes: list[BaseException]) -> str:
    for cause in causes:
        if isinstance(cause, OverrideParseException):
            override = str(cause.override)
            if os.path.isdir(override):
                return f"{override}: write run={override}"
            key, equals, value = override.partition("=")
            quoted = f"{key}={text(value)}"
            as_text = f"; as one text, it is {typed([quoted])}" if equals and parse(quoted) else ""
            advice = f"write key=value, or key=a,b without empty items for a sweep{as_text}"
            return f"{override}: cannot be parsed; {advice}"
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            group, _, name = cause.missing_cfg_file.partition("/")
            if (other := Path("conf", group, f"{name}.yml")).is_file():
                return f"{other}: must have the suffix .yaml"
            if choices(group):
                return f"{group}={name}: {allowed_choices(group, name)}"
        if isinstance(cause, InterpolationResolutionError | GrammarParseError | ValidationError) and cause.full_key:
            return f"{cause.full_key}: {one_line(cause)}"
        node = getattr(cause, "parent_node", None)
        if isinstance(cause, OmegaConfBaseException) and isinstance(node, DictConfig):
            allowed = ", ".join(str(key) for key in node if key != "hydra" and not str(key).startswith("_"))
            root = node._get_root()
            hint = suggest(str(cause.full_key), root if isinstance(root, DictConfig) else node)
            return f"{cause.full_key}: no such option{hint or ';'} allowed: {allowed or 'none'}"
    names_reason = not isinstance(causes[0], InstantiationException) or one_line(causes[-1]) in one_line(causes[0])
    return ": ".join(map(one_line, causes[:1] if names_reason else causes[:2]))


def place_in_own_code(error: BaseException) -> str:
    """Return the last line of the user's own code that led to an error, as "mgu.py:24", or "" if there is none."""
    for cause in reversed(_causes(error)):
        for frame, line in reversed(list(walk_tb(cause.__traceback__))):
            file = frame.f_code.co_filename
            is_file = os.path.isfile(file) and frame.f_globals.get("__name__") != "__main__"
            if is_file and not os.path.realpath(file).startswith(KNOWN):
                return f"{os.path.relpath(file)}:{line}"
    return ""
