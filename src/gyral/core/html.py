"""The head of self-contained HTML pages."""

import html
from string import Template


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
