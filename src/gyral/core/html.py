"""Self-contained HTML pages from templates of jinja2, which is imported when a page is made; colors of attention."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gyral.core.files import replace_when_written

if TYPE_CHECKING:
    import numpy as np
    from jinja2 import Template


def page_template(module_file: str) -> "Template":
    """Return the template of a page, which is beside a module: `page.html` for `page.py`.

    The template extends `base.html`, which is beside this module. Values are escaped, so that no text becomes markup,
    and one that is missing is an error.

    Args:
        module_file: `__file__` of the module.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    path = Path(module_file).with_suffix(".html")
    loader = FileSystemLoader([path.parent, Path(__file__).parent])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(path.name)


def write_html(path: Path, module_file: str, **values: Any) -> None:
    """Write the page of a module piece by piece, so that values may be iterators that do not fit in memory.

    Args:
        path: path of the page, which is written completely or not at all.
        module_file: see `page_template`.
        **values: values of the template; `title` is the title of the page.

    Raises:
        OSError: the page cannot be written.
    """
    template = page_template(module_file)

    def write(temporary: Path) -> None:
        # Names of files may have bytes that are not UTF-8.
        with temporary.open("w", encoding="utf-8", errors="replace") as file:
            file.writelines(template.generate(values))

    replace_when_written(path, write)


def strengths(attention: "np.ndarray") -> "np.ndarray":
    """Return the strengths of color in [0, 1] for attention (…, S) to the S words of an article.

    The strength is 1 + log(attention) / log(S), at least 0: it is 0 up to the share 1/S that every word has if the
    attention is uniform, and 1 for a word with all of the attention.
    """
    import numpy as np  # reports of tables need none

    words = attention.shape[-1]
    if words < 2:
        return np.clip(attention, 0, 1)
    return np.clip(1 + np.log(np.maximum(attention, 1 / words)) / np.log(words), 0, 1)
