"""Text of others in Markdown, shown as text. Jinja2 escapes it in HTML, `printable` of `core.errors` in terminals."""

import re


def escape_markdown(text: str) -> str:
    """Return a text as one line in which no sign is markup.

    It has no spans, links and tags, also no address that GitHub would make a link. It begins neither a rule, an item of
    a list nor a block of code.
    """
    text = re.sub(r"([\\|*_<>`\[\]#~$]|&(?=#?\w+;))", r"\\\1", " ".join(text.splitlines()))
    text = re.sub(r"(:(?=//)|(?<=\bwww)\.)", r"\\\1", text, flags=re.IGNORECASE)
    text = re.sub(r"^\s+(?=\S)", " ", text)
    return re.sub(r"^(\s*\d*)([-+.)=])(?=\s|-|=|$)", r"\1\\\2", text)
