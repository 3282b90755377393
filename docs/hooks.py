"""Pages that MkDocs generates: a card per cell and task, the list of applications, the API reference, and copies of the
repository's pages.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import speeds
from cards import cell_page, index_page, measured_table, names, task_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from uses import table

ROOT = Path(__file__).parents[1]
SUBPACKAGES = ("cells", "nn", "ops", "data", "models", "tasks", "config", "runs", "training", "generation", "sweeps",
               "reports", "core", "applications")  # fmt: skip
APPLICATIONS = ROOT / "src" / "gyral" / "applications"
PAGES = {"index.md": "README.md", "benchmarks.md": "benchmarks/README.md",
         "applications/index.md": "src/gyral/applications/README.md",
         "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md",
         "changelog.md": "CHANGELOG.md"}  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections of the navigation whose pages are generated."""
    sections = {
        "Cells": ["cells/index.md", *(f"cells/{name}.md" for name in names("cell"))],
        "Applications": ["applications/index.md", *map(application_entry, applications())],
        "Tasks": ["tasks/index.md", *(f"tasks/{name}.md" for name in names("task"))],
        "API reference": ["reference/gyral.md", *(f"reference/{name}.md" for name in SUBPACKAGES)],
    }
    for entry in config.nav or []:
        for title in sections.keys() & entry.keys():
            entry[title] = sections[title]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = dict(copied_pages())
    pages["applications/index.md"] += applications_table()
    pages |= {f"cells/{name}.md": cell_page(name) for name in names("cell")}
    pages |= {f"tasks/{name}.md": task_page(name) for name in names("task")}
    pages |= {"cells/index.md": index_page("Cells", "cell"), "tasks/index.md": index_page("Tasks", "task")}
    pages |= {f"reference/{name}.md": reference_page(name) for name in SUBPACKAGES}
    pages["reference/gyral.md"] = public_page()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    for picture in (ROOT / "results").glob("*.png"):
        files.append(File.generated(config, f"results/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the tables of speeds, uses and cells."""
    tables = {"speed": speeds.overview, "gpu": speeds.gpu, "uses": table, "cells": measured_table}
    for name, make in tables.items():
        if (place := f"{{{{ {name} }}}}") in markdown:
            markdown = markdown.replace(place, make())
    return markdown


def copied_pages() -> Iterator[tuple[str, str]]:
    """Yield the pages of the repository that are part of the site, with their links adapted."""
    sources = {source: page for page, source in PAGES.items()}
    for page, source in PAGES.items():
        folder = (ROOT / source).parent
        up = "../" * page.count("/")

        def link(match: re.Match[str], folder: Path = folder, up: str = up) -> str:
            target, _, anchor = match[2].partition("#")
            path = (folder / target).resolve().relative_to(ROOT).as_posix()
            path = sources.get(path, path.removeprefix("docs/"))
            if path.startswith(("outputs/", "data/", "conf/", "src/", "tests/")) or path in ("CITATION.cff", "LICENSE"):
                return match[1]  # not part of the site
            return f"[{match[1]}]({up}{path}{'#' + anchor if anchor else ''})"

        text = (ROOT / source).read_text(encoding="utf-8")
        yield page, re.sub(r"\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", link, text)


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
        place = f"{found.__module__}.{name}"
        rows.append(f"| [`gyral.{name}`][{place}] | {' '.join(about.replace('|', ' ').split())} |")
    head = (
        "# gyral\n\n[Use Gyral from Python](../how-to/python.md) shows the functions in use.\n\n| | |\n| --- | --- |\n"
    )
    return f"{head}{chr(10).join(rows)}\n\n::: gyral.train.fit\n    options: {{heading: gyral.fit}}\n"


def reference_page(subpackage: str) -> str:
    """Return the API reference of a subpackage: every public module."""
    folder = ROOT / "src" / "gyral" / subpackage
    modules = []
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(ROOT / "src").with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        modules.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return f"# gyral.{subpackage}\n\n" + "\n\n".join(f"::: {module}" for module in modules) + "\n"
