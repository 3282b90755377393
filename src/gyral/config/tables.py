"""Tables and figures of papers: a file of conf/table is a choice of `sweep`, and its rows are choices of `experiment`.

    experiment: rum_paper/table1               # the rows are experiment=rum_paper/table1/<row>
    source: {paper: "Dangovski et al., 2019", place: Table 1, verified: true}  # of the published values
    report: {title: Table 1, measure: accuracy, column: task.length}      # see gyral.reports.catalogue
    sweep: {task.length: [30, 50], seed: [1, 2]}
    columns: {short: {task.length: 30, …}}     # if columns differ in several options: column=rum_paper/table1/short
    choose: {optimizer.lr: [0.001, 0.01], seed: 0}  # on the validation split, with a seed that is not reported
    protocol: {task: recall, task.length: 30}  # options of all rows, as on the command line
    rows:
      gru: {name: GRU, model: gru, paper: {accuracy: {30: 21.5, 50: 17.6}}}
      rum: {name: RUM, model: rum, model.cell.lambd: 1.0}
      larger: {name: larger RUM, extends: rum, model.cell.hidden_size: 100}

A protocol or the rows may inherit those of another table: protocol: {extends: other, …}, rows: {extends: other, …}.

Imports no torch.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf

from gyral.config import roles
from gyral.config.overrides import as_word, text
from gyral.config.own_modules import config_folders
from gyral.config.plain import Loader, yaml_fault
from gyral.core.errors import UserError, one_line, suggest_name

GROUP = "table"  # the folder of the files
COLUMN = "column"  # the group of the columns of tables whose columns differ in several options
PROTOCOL = "_protocol"  # the choice of `experiment` that has the options of all rows alone
EXTENDS = "extends"  # in the protocol or the rows: the table to inherit from; in a row: the rows to inherit from
LIKE = "like"  # the name of `extends` in earlier tables
SECTIONS = ("experiment", "report", "sweep", "columns", "choose", "protocol", "rows", "hydra", "source")
# see gyral.reports.catalogue.Sweep
REPORT = ("title", "layout", "measure", "column", "ngrams", "solved", "also", "best_seed", "trained", "levels")
# verified: true if the values were read there, false if not, and a text names another source in which they were read
SOURCE = ("paper", "place", "verified")
OWN = ("name", EXTENDS, "paper", "source", "published_only")  # what a row has besides options


@dataclass(frozen=True)
class Table:
    """A file of conf/table.

    Attributes:
        file: its path; its name is that of the sweep.
        experiment: the rows are experiment=<experiment>/<row>.
        content: its sections.
        rows: the rows, by their names on the command line; those that begin with an underscore are only for others.
    """

    file: Path
    experiment: str
    content: dict[str, Any]
    rows: dict[str, dict[str, Any]]

    @cached_property
    def protocol(self) -> dict[str, Any]:
        """The options of all rows by their keys.

        Raises:
            UserError: the protocol extends that of a table that does not exist.
        """
        own = dict(self.content.get("protocol") or {})
        other = _extended(self.file, "protocol", own)
        return own if other is None else other.protocol | own

    def options(self, name: str) -> dict[str, Any]:
        """Return the options of a row, or of `PROTOCOL`, by their keys; those of the protocol come first.

        Raises:
            UserError: the row extends one that does not exist, or itself.
        """
        return self.protocol if name == PROTOCOL else self.protocol | self._own_options(name)

    def _own_options(self, name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
        if name in seen or name not in self.rows:
            reason = "extends itself" if name in seen else f"must be one of {', '.join(self.rows)}"
            raise UserError(f"{self.file}: extends={name}: {reason}")
        others = self.rows[name].get(EXTENDS, [])
        found: dict[str, Any] = {}
        for other in [others] if isinstance(others, str) else others:
            found |= self._own_options(other, (*seen, name))
        return found | {key: value for key, value in self.rows[name].items() if key not in OWN}

    def source(self, name: str) -> dict[str, Any]:
        """Return where the published values of a row come from, by `SOURCE`; None is not known."""
        return dict.fromkeys(SOURCE) | (self.content.get("source") or {}) | (self.rows[name].get("source") or {})

    @cached_property
    def experiments(self) -> list[str]:
        """The names of the rows that can be trained on the command line, and of the protocol."""
        trained = (name for name, row in self.rows.items() if not row.get("published_only"))
        return [f"{self.experiment}/{name}" for name in (PROTOCOL, *trained)]

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """The options of the columns by their names on the command line; empty if the table has no such section."""
        columns = self.content.get("columns") or {}
        return {f"{self.experiment}/{name}": options for name, options in columns.items()}

    def choices(self, group: str) -> list[str]:
        """Return the names that the table adds to the group `experiment` or `column`."""
        return [*self.columns] if group == COLUMN else self.experiments

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of each key that the sweep varies, the rows first; the seed is 1 unless the table has seeds."""
        rows = [name for name in self.experiments if not name.rpartition("/")[2].startswith("_")]
        columns = {COLUMN: [*self.columns]} if self.columns else {}
        axes = {"experiment": rows, **columns, **(self.content.get("sweep") or {})}
        return axes if "seed" in axes else axes | {"seed": [1]}

    @property
    def choose(self) -> dict[str, Any]:
        """The values of options of which the sweep chooses one on the validation split, and the `seed` for this."""
        return self.content.get("choose") or {}

    @property
    def papers(self) -> dict[str, dict[str, Any]]:
        """The node `paper` of each row that the sweep trains or that is published only, in their order."""
        names = {f"{self.experiment}/{name}": name for name in self.rows}
        trained = self.axes["experiment"]
        shown = {full: name for full, name in names.items() if full in trained or self.rows[name].get("published_only")}
        return {full: self._paper(name) for full, name in shown.items()}

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """Where the published values of each row of `papers` come from, see `source`."""
        return {name: self.source(name.removeprefix(f"{self.experiment}/")) for name in self.papers}

    def config(self, group: str, name: str) -> DictConfig:
        """Return the configuration of a choice, with the list of defaults for Hydra."""
        if group == "sweep":
            return self._sweep()
        if group == COLUMN:
            return self._composed(self.columns[name])
        row = name.removeprefix(f"{self.experiment}/")
        config = self._composed(self.options(row))
        if row != PROTOCOL:
            config.paper = self._paper(row)
        return config

    def _composed(self, options: dict[str, Any]) -> DictConfig:
        """Return the configuration with these options."""
        config = OmegaConf.create({"defaults": []})
        for key, value in options.items():
            if "@" in key or key in roles.CHOSEN:
                config.defaults.append({f"override /{key}": value})
            elif key.partition(".")[0] in (*roles.SECTIONS, *roles.OTHERS):
                OmegaConf.update(config, key, value, force_add=True)
            else:
                known = sorted({*roles.CHOSEN, *roles.OTHERS})
                allowed = f"must begin with one of {', '.join(known)}"
                raise UserError(f"{self.file}: {key}: no such option; {suggest_name(key, known)}{allowed}")
        return config

    def _sweep(self) -> DictConfig:
        sweeper: dict[str, Any] = {
            "params": {key: ",".join(map(_as_word, values)) for key, values in self.axes.items()}
        }
        if self.choose:
            sweeper["choose"] = self.choose
        # a row, so that the command line accepts the options of its task and its model
        row = next(iter(self.axes["experiment"]), f"{self.experiment}/{PROTOCOL}")
        return OmegaConf.create(
            {
                "defaults": ["_base", {"override /experiment": row}, "_self_"],
                "report": self.content["report"],
                "hydra": {**self.content.get("hydra", {}), "sweeper": sweeper},
            }
        )

    def _paper(self, name: str) -> dict[str, Any]:
        """Return the node `paper` of a row: its title and what was published."""
        row = self.rows[name]
        return {"row": row.get("name", name), **_with_text_keys(row.get("paper") or {})}


def files() -> dict[str, Path]:
    """Return the tables in the folders of configurations by name. The first of two with the same name counts."""
    found: dict[str, Path] = {}
    for folder in config_folders():
        for file in sorted((folder / GROUP).glob("*.yaml")):
            found.setdefault(file.stem, file)
    return found


def that_may_have(choices: Iterable[str]) -> Iterator[Path]:
    """Yield the tables among whose rows and columns choices could be, by their names. No table is parsed."""
    folders = {str(folder) for choice in choices for folder in PurePosixPath(choice).parents if folder.name}
    for file in files().values() if folders else ():
        if _experiment_of(file, file.stat().st_mtime_ns) in folders:
            yield file


@cache
def _experiment_of(file: Path, changed: int) -> str:
    """Return the name of the rows of a table, "" if it has none. The rest of the file may be damaged."""
    named = re.search(r"^experiment: *([^\s#]+)", file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return "" if named is None else named[1].strip("\"'")


def load_table(file: Path) -> Table:
    """Return the table in a file.

    Raises:
        UserError: the file is not a table; the message names what is wrong.
    """
    return _load(file, file.stat().st_mtime_ns)


@cache
def _load(file: Path, changed: int) -> Table:
    content = _content(file, changed)
    own = dict(content["rows"])
    other = _extended(file, "rows", own)
    first = {} if other is None else other.rows  # an own row of the same name adds options to such a row
    own = {str(name): first.get(str(name), {}) | (row or {}) for name, row in own.items()}
    return Table(file, content["experiment"], content, first | own)


@cache
def _content(file: Path, changed: int) -> dict[str, Any]:
    """Return the sections of a table as its file has them.

    Raises:
        UserError: as `load_table`, for the file alone.
    """
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=Loader)
    except yaml.YAMLError as error:
        raise UserError(f"{file}{yaml_fault(error)}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: must have the sections experiment, report and rows")
    rows = content.get("rows")
    for mapping in (content.get("protocol"), rows, *(rows.values() if isinstance(rows, dict) else ())):
        if isinstance(mapping, dict) and LIKE in mapping:
            mapping[EXTENDS] = mapping.pop(LIKE)
    if (fault := next(_faults(content), None)) is not None:
        raise UserError(f"{file}: {fault}")
    return content


def _extended(file: Path, section: str, own: dict[str, Any]) -> Table | None:
    """Return the table that a section extends, None if it extends none; the section loses the name of the table."""
    name = own.pop(EXTENDS, None)
    if name is None:
        return None
    other = file.with_name(f"{name}.yaml")
    if not other.is_file():
        raise UserError(f"{file}: {section}.extends={name}: there is no table {other}")
    chain, last = [file], other
    while last not in chain and last.is_file():
        chain.append(last)
        section_of_last = _content(last, last.stat().st_mtime_ns).get(section) or {}
        last = last.with_name(f"{section_of_last.get(EXTENDS)}.yaml")
    if last in chain:
        circle = " → ".join(each.stem for each in (*chain, last))
        raise UserError(f"{file}: {section}.extends={name}: must not be a circle: {circle}")
    return load_table(other)


def _faults(content: dict[str, Any]) -> Iterator[str]:
    """Yield the errors in the sections of a table; each check needs that the earlier ones found nothing."""
    for section in content:
        if section not in SECTIONS:
            yield f"{section}: must be one of {', '.join(SECTIONS)}"
    report, rows = content.get("report"), content.get("rows")
    own = [row or {} for name, row in rows.items() if name != EXTENDS] if isinstance(rows, dict) else [None]
    is_named = isinstance(content.get("experiment"), str) and isinstance(report, dict)
    if not is_named or not all(isinstance(row, dict) for row in own):
        yield "must have the name `experiment`, the section `report`, and `rows` with options each"
    for key in report or ():
        if key not in REPORT:
            yield f"report.{key}: {suggest_name(str(key), REPORT)}must be one of {', '.join(REPORT)}"
    if not all({*(source.get("source") or {})} <= {*SOURCE} for source in (content, *own)):
        yield f"source: must have the keys {', '.join(SOURCE)} alone"
    sweep, columns, choose = (content.get(section) or {} for section in ("sweep", "columns", "choose"))
    if not isinstance(columns, dict) or not all(isinstance(options, dict) for options in columns.values()):
        yield "columns: must have options for each column"
    if not isinstance(choose, dict) or (choose and not isinstance(choose.get("seed"), int)):
        yield "choose: must have lists of values and a `seed`"
    if "sweeper" in (content.get("hydra") or {}):
        yield "hydra.sweeper: the sections sweep, columns and choose take its place in a table"
    lists = [("sweep", *each) for each in sweep.items()]
    lists += [("choose", key, values) for key, values in choose.items() if key != "seed"]
    for section, key, values in lists:
        if not (isinstance(values, list) and values):
            yield f"{section}.{key}={values}: must be a list of values, at least one"


def _with_text_keys(value: Any) -> Any:
    return {str(key): _with_text_keys(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _as_word(value: Any) -> str:
    """Return a value as on the command line, with quotes if Hydra would read its text otherwise."""
    word = as_word(value)
    return word if re.fullmatch(r"[\w.+/-]+", word, re.ASCII) else text(word)
