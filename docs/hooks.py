"""Pages that MkDocs generates: a card per cell and task, the list of applications, the API reference, and copies of the
repository's pages.
"""

import importlib.util
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import ConfigurationError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "src" / "gyral"


def check_library() -> None:
    """Raise an error if Python finds no gyral, or another one than that of this repository."""
    found = importlib.util.find_spec("gyral")
    if found is None or Path(found.origin or "").resolve().parent != LIBRARY.resolve():
        there = "is not installed" if found is None else f"is that of {Path(found.origin or '').parent}"
        raise ConfigurationError(
            f"gyral {there}, but the pages document {LIBRARY}; run `make docs`, or set PYTHONPATH=src"
        )


check_library()  # before the modules that import it

import overview  # noqa: E402
import reference  # noqa: E402
import tutorials  # noqa: E402
from cards import cell_page, index_page, names, task_page  # noqa: E402
from equations import Equations  # noqa: E402

INTERNALS = ("cells", "nn", "ops", "data", "models", "tasks", "config", "runs", "training", "generation", "sweeps",
             "reports", "core", "applications")  # fmt: skip
APPLICATIONS = ROOT / "src" / "gyral" / "applications"
PAGES = {"index.md": "README.md", "benchmarks.md": "benchmarks/README.md",
         "applications/index.md": "src/gyral/applications/README.md",
         "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md",
         "changelog.md": "CHANGELOG.md"}  # fmt: skip
# generated pages, by the files and folders of the repository that they show
LISTS = {"conf/cell": "cells/index.md", "conf/task": "tasks/index.md", "src/gyral/nn/layers": "layers/index.md"}
GENERATED = {
    r"conf/(cell|task)/(\w+)\.yaml": r"\1s/\2.md",
    r"examples/(\w+)\.ipynb": r"tutorials/\1.md",
}
MODULE = re.compile(r"^_target_: gyral\.(applications\.)?(\w+)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections of the navigation whose pages are generated. Long lists are in sections that begin closed."""
    families = [{family.title: [f"cells/{cell}.md" for cell in own]} for family, own in overview.families().items()]
    layers = {name: overview.family_of(layer.cell_class).title for name, layer in reference.layers().items()}
    sections: dict[str, list[Any]] = {
        "Tutorials": ["tutorials/index.md", "tutorials/afternoon.md", *tutorials.pages()],
        "Cells": ["cells/index.md", "recurrences.md", {"By family": families}],
        "Applications": ["applications/index.md", *map(application_entry, applications())],
        "Tasks": ["tasks/index.md", {"By subject": _tasks_by_subject()}],
        "Reference": ["reference/gyral.md", "layers/index.md", {"Layers": _grouped(layers, "layers")}],
        "Internals": [f"reference/{name}.md" for name in INTERNALS],
    }

    def fill(entries: list[Any]) -> None:
        for entry in entries:
            if isinstance(entry, dict):
                for title, own in entry.items():
                    if own == []:
                        entry[title] = sections[title]
                    elif isinstance(own, list):
                        fill(own)

    fill(config.nav or [])
    config.markdown_extensions.append(Equations())  # type: ignore[arg-type]  Markdown takes objects, too
    if "MIKE_DOCS_VERSION" in os.environ:  # mike builds this; elsewhere, the list of versions would be an error 404
        config.extra["version"] = {"provider": "mike"}
    return config


def _tasks_by_subject() -> list[dict[str, list[str]]]:
    """Return the pages of tasks, those of each application together."""
    from gyral.config.groups import find_config

    subjects = {}
    for name in names("task"):
        found = MODULE.search(find_config("task", name).read_text(encoding="utf-8"))
        subjects[name] = found[2].capitalize() if found and found[1] else "Memory, algorithms and text"
    return _grouped(subjects, "tasks")


def _grouped(titles: dict[str, str], folder: str) -> list[dict[str, list[str]]]:
    """Return a section of the navigation for each title of pages."""
    found: dict[str, list[str]] = {}
    for name, title in titles.items():
        found.setdefault(title, []).append(f"{folder}/{name}.md")
    return [{title: own} for title, own in found.items()]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = dict(copied_pages())
    pages["index.md"] = f"---\ntitle: {config.site_description}\n---\n\n{pages['index.md']}"
    pages["applications/index.md"] += applications_table()
    pages |= {f"cells/{name}.md": cell_page(name) for name in names("cell")}
    pages |= {f"tasks/{name}.md": task_page(name) for name in names("task")}
    pages |= {"cells/index.md": overview.page(), "tasks/index.md": index_page("Tasks", "task")}
    pages |= {f"layers/{name}.md": reference.layer_page(name) for name in reference.layers()}
    pages["layers/index.md"] = reference.layers_page()
    pages |= {f"reference/{name}.md": reference.internal_page(name) for name in INTERNALS}
    pages["reference/gyral.md"] = public_page()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for path, text, pictures in tutorials.rendered():
        files.append(File.generated(config, path, content=adapted(text, ROOT / "examples", path)))
        for name, content in pictures.items():
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Adapt the links of a page of docs/, which lead to files that a checkout has."""
    source = ROOT / "docs" / page.file.src_uri
    return adapted(markdown, source.parent, page.file.src_uri) if source.is_file() else markdown


def copied_pages() -> Iterator[tuple[str, str]]:
    """Yield the pages of the repository that are part of the site, with their links adapted."""
    for page, source in PAGES.items():
        text = adapted((ROOT / source).read_text(encoding="utf-8"), (ROOT / source).parent, page)
        yield page, re.sub(r"^!\[.*\)$", r'\g<0>{ width="450" }', text, flags=re.MULTILINE)  # of a column


def adapted(text: str, folder: Path, page: str) -> str:
    """Return a text with its links to files of the repository as links from a page of the site.

    Args:
        text: the text of a file of the repository.
        folder: the folder of this file.
        page: the page, relative to the site.
    """
    up = "../" * page.count("/")

    def link(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if not (folder / target).exists():  # code, such as `cells[name](size)`
            return match[0]
        path = place_of((folder / target).resolve().relative_to(ROOT).as_posix())
        return match[1] if path is None else f"[{match[1]}]({up}{path}{'#' + anchor if anchor else ''})"

    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", link, text)


def place_of(path: str) -> str | None:
    """Return the page of the site that shows a file or folder of the repository, None if there is none."""
    pages = {source: page for page, source in PAGES.items()} | LISTS
    if path in pages:
        return pages[path]
    for pattern, page in GENERATED.items():
        if found := re.fullmatch(pattern, path):
            return found.expand(page)
    return path.removeprefix("docs/") if path.startswith(("docs/", "results/")) else None


def applications() -> list[Path]:
    """Return the folders of the pages of applications."""
    return sorted(path.parent for path in (ROOT / "docs" / "applications").glob("*/index.md"))


def application_entry(folder: Path) -> dict[str, list[str]]:
    """Return the entry of an application in the navigation: its title, and its pages with index.md first."""
    pages = sorted(folder.glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
    title = (folder / "index.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return {title: [path.relative_to(ROOT / "docs").as_posix() for path in pages]}


def applications_table() -> str:
    """Return a table of the applications with their subjects and papers, from the READMEs in their folders."""
    rows = []
    for folder in applications():
        title, subject, _, papers, *_ = (
            (APPLICATIONS / folder.name / "README.md").read_text(encoding="utf-8").split("\n\n")
        )
        listed = "<br>".join(line.removeprefix("* ") for line in papers.splitlines())
        rows.append(f"| [{title.removeprefix('# ')}]({folder.name}/index.md) | {subject} | {listed} |")
    return "\n| application | subject | papers |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def public_page() -> str:
    """Return the page of the names that `gyral` itself has, with links to their documentation."""
    import gyral

    functions = [name for name in gyral.__all__ if name.islower()]
    rows = []
    for name in [*functions, *(name for name in gyral.__all__ if name not in functions)]:
        found = getattr(gyral, name)
        about = (inspect.getdoc(found) or "").partition("\n\n")[0]
        place = f"[{found.__module__}.{name}]" if name not in reference.layers() else f"(../layers/{name}.md)"
        rows.append(f"| [`gyral.{name}`]{place} | {' '.join(about.replace('|', ' ').split())} |")
    head = (
        "# gyral\n\n[Use Gyral from Python](../how-to/python.md) shows the functions in use.\n\n| | |\n| --- | --- |\n"
    )
    return f"{head}{chr(10).join(rows)}\n\n::: gyral.train.fit\n    options: {{heading: gyral.fit}}\n"
