"""Parts of self-contained HTML pages: the head, and colors of attention."""

import html
from string import Template

import numpy as np


def page_head(title: str, style: str) -> str:
    """Return the start of a page, up to and including `<body>`, with a light and a dark color scheme.

    Args:
        title: title of the page, which is escaped.
        style: CSS rules of the page.
    """
    return HEAD.substitute(title=html.escape(title), style=style)


HEAD = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b1b1f; --faint: #5c5f66; --line: #d5d7db }
@media (prefers-color-scheme: dark) { :root { --page: #16171b; --ink: #e6e6e9; --faint: #a3a6ad; --line: #3a3c43 } }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
h1 { margin: 0.5rem 0 0; font-size: 1.4rem; overflow-wrap: anywhere }
p { margin: 0.25rem 0 }
$style
</style>
</head>
<body>
""")


def strengths(attention: np.ndarray) -> np.ndarray:
    """Return the strengths of color in [0, 1] for attention (…, S) to the S words of an article.

    The strength is 1 + log(attention) / log(S), at least 0: it is 0 up to the share 1/S that every word has if the
    attention is uniform, and 1 for a word with all of the attention.
    """
    words = attention.shape[-1]
    if words < 2:
        return np.clip(attention, 0, 1)
    return np.clip(1 + np.log(np.maximum(attention, 1 / words)) / np.log(words), 0, 1)
