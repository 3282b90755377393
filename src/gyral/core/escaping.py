"""Text of others in Markdown, shown as text. Jinja2 escapes it in HTML, `printable` of `core.errors` in terminals."""

import re


def escape_markdown(text: str) -> str:
    """Return a text as one line in which no sign is markup, at its beginning neither a rule nor an item of a list."""
    text = re.sub(r"([\\|*_<>`\[\]#~$]|&(?=#?\w+;))", r"\\\1", " ".join(text.splitlines()))
    return re.sub(r"^(\s*\d*)([-+.)])(?=\s|-|$)", r"\1\\\2", text)
