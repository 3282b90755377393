"""Text of others, shown as text: in terminals and in Markdown. Jinja2 escapes it in HTML."""

import re
import unicodedata


def printable(text: str) -> str:
    r"""Return a text with escapes such as \x1b in place of control characters, which terminals obey.

    Line ends, tabs and all spaces stay. Bytes that are no text, and signs that change the direction of writing, become
    escapes, too.
    """
    if text.isprintable():
        return text
    return "".join(sign if _is_shown(sign) else repr(sign)[1:-1] for sign in text)


def _is_shown(sign: str) -> bool:
    return sign.isprintable() or sign in "\n\t" or unicodedata.category(sign) == "Zs"


def escape_markdown(text: str) -> str:
    """Return a text as one line in which no sign is markup, at its beginning neither a rule nor an item of a list."""
    text = re.sub(r"([\\|*_<>`\[\]#~$]|&(?=#?\w+;))", r"\\\1", " ".join(text.splitlines()))
    return re.sub(r"^(\s*\d*)([-+.)])(?=\s|-|$)", r"\1\\\2", text)
