"""Errors that are reported to the user in one line, without a traceback."""

import difflib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

SIMILARITY = 0.75  # of two names, 1 for equal ones
LONGEST_REASON = 400  # characters of an error of a library
# Parts of the messages of omegaconf, hydra, pydantic, SQLAlchemy and torch that say nothing about this error.
COMMON = re.compile(
    r"^ *((full_key|object_type|reference_type)\b|For further information visit|\(Background on this error at|"
    r"CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE_CUDA_DSA).*|"
    r"Exception raised from [\s\S]*|, set env var HYDRA_FULL_ERROR=1 to see chained exception\.",
    re.MULTILINE,
)
KEPT = "\n\t\u200c\u200d"  # signs that `printable` keeps, besides spaces and what is printable for Python
NOT_PLAIN = re.compile(r"[^ -~\n\t]")


def one_line(error: BaseException) -> str:
    """Return the message of an error of a library in one line, or the name of its class.

    What matters may be in any line of the message: a message that is too long is shortened in the middle.
    """
    text = " ".join(COMMON.sub("", str(error)).split()) or type(error).__name__
    if len(text) <= LONGEST_REASON:
        return text
    return f"{text[: LONGEST_REASON * 2 // 3]} … {text[-LONGEST_REASON // 3 :]}"


def suggest_name(name: str, allowed: Sequence[str]) -> str:
    """Return "did you mean …? " with the most similar of the allowed names, or an empty text."""
    found = difflib.get_close_matches(name.lower(), [each.lower() for each in allowed], n=1, cutoff=SIMILARITY)
    similar = [each for each in allowed if found and each.lower() == found[0] and each != name]
    return f"did you mean {similar[0]}? " if similar else ""


def similar_keys(key: str, known: Sequence[str], count: int = 3) -> list[str]:
    """Return known dotted keys that a key may stand for, such as optimizer.lr for lr.

    These are similar names in the same section, else equal names in other sections, else similar ones there.
    """
    section, _, name = key.lower().replace("-", "_").rpartition(".")
    names = {each: each.rpartition(".")[2] for each in known}
    near = set(difflib.get_close_matches(name, names.values(), n=count, cutoff=SIMILARITY))
    similar = [each for each in known if names[each] in near]
    own = [each for each in similar if each.rpartition(".")[0] == section]
    equal = [each for each in known if names[each] == name]
    return (own or equal or similar)[:count]


class UserError(ValueError):
    """The user's input cannot be used. The message is one line with the reason and, if possible, what is allowed.

    As text it has no control characters: the message may have names of files and contents of others, and Python prints
    it in tracebacks.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class OptionError(UserError, TypeError):
    """The value of an option is not allowed, or there is no such option: a ValueError or a TypeError for torch.

    The message is `<option>=<value>: <reason>`.

    Args:
        option: name of the option, with its sections if they are known: `model.cell.hidden_size`.
        value: value of the option.
        reason: the requirement that the value does not meet, such as "must be an integer ≥ 1".
    """

    def __init__(self, option: str, value: Any, reason: str) -> None:
        self.option, self.value, self.reason = option, value, reason
        shown = "null" if value is None and "." in option else value  # as the command line has it, which has sections
        super().__init__(f"{option}={shown}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.option, self.value, self.reason)  # an exception is pickled with its message alone


class MissingPackageError(UserError, ImportError):
    """A package is not installed. The message names what needs it and the command that installs it."""


class InputError(ValueError, TypeError, RuntimeError):
    """A layer was called on tensors that do not fit. The message is one line.

    It is an error of each class that the layers of torch raise there: ValueError for another dtype or number of
    dimensions, RuntimeError for other sizes.
    """


class ChoiceError(OptionError):
    """The value of an option is not one of its choices.

    Args:
        option, value: see `OptionError`.
        choices: the values that are allowed.
    """

    def __init__(self, option: str, value: Any, choices: Sequence[str]) -> None:
        self.choices = tuple(choices)
        super().__init__(option, value, f"{suggest_name(str(value), self.choices)}must be one of {', '.join(choices)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.option, self.value, self.choices)


class JobError(Exception):
    """A job of a sweep failed; the other jobs continue. The message is one line: the run directory and the reason."""


class SweepError(Exception):
    """Some jobs of a sweep failed. The message is one line."""


def printable(text: str) -> str:
    r"""Return a text with escapes such as \x1b in place of control characters, which terminals obey.

    Line ends, tabs, all spaces, and the joiners of Indic and Persian words stay. Bytes that are not text, and signs
    that change the direction of writing, become escapes, too.
    """
    if text.isprintable() or not NOT_PLAIN.search(text):
        return text
    return "".join(sign if _is_shown(sign) else repr(sign)[1:-1] for sign in text)


def _is_shown(sign: str) -> bool:
    return sign.isprintable() or sign in KEPT or unicodedata.category(sign) == "Zs"


def hide_passwords(text: str) -> str:
    """Return a text with *** in place of each password of a URL: scheme://user:password@host, or ?password=."""
    text = re.sub(r"(://[^\s:/@]*):[^\s]*@", r"\1:***@", text)
    return re.sub(r"(?i)([?&](?:password|passwd|pwd)=)[^\s&'\"]*", r"\1***", text)
