"""Errors that are reported to the user in one line, without a traceback."""

from typing import Any


class UserError(ValueError):
    """Something that the user gave cannot be used. The message is one line that says what, and what is allowed."""


class OptionError(UserError):
    """The value of an option is not allowed.

    The message is `<option>=<value>: <reason>`.

    Args:
        option: name of the option, with the sections that it is in if they are known: `model.cell.hidden_size`.
        value: the value that was given.
        reason: what is allowed, as "must be an integer ≥ 1".
    """

    def __init__(self, option: str, value: Any = None, reason: str | None = None) -> None:
        self.option, self.value, self.reason = option, value, reason
        # TODO(refactoring): remove the form with the message alone
        super().__init__(option if reason is None else f"{option}={value}: {reason}")

    def within(self, section: str) -> "OptionError":
        """Return the same error about the option of a section."""
        return OptionError(f"{section}.{self.option}", self.value, self.reason)
