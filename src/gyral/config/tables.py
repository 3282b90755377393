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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf

from gyral.config import roles
from gyral.config.overrides import text
from gyral.config.plain import Loader, yaml_fault
from gyral.core.errors import UserError, one_line, suggest_name

GROUP = "table"
GENERATED = ("experiment", "column", "sweep")  # the groups whose choices come from tables
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
        groups: the groups of the command line, which a row may choose from.
    """

    file: Path
    experiment: str
    content: dict[str, Any]
    groups: frozenset[str]

    @cached_property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows, by their names on the command line; those that begin with an underscore are only for others.

        With `extends`, the rows of another table come first, and an own row of the same name adds options to its row.

        Raises:
            UserError: the other table does not exist.
        """
        own = {str(name): row or {} for name, row in self.content["rows"].items() if name != EXTENDS}
        others = self._other("rows", self.content["rows"].get(EXTENDS))
        found = {} if others is None else others.rows
        return found | {name: found.get(name, {}) | row for name, row in own.items()}

    def options(self, name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the options of a row by their keys, without those of the protocol.

        Raises:
            UserError: the row extends one that does not exist, or itself.
        """
        if name in seen or name not in self.rows:
            reason = "extends itself" if name in seen else f"must be one of {', '.join(self.rows)}"
            raise UserError(f"{self.file}: extends={name}: {reason}")
        row = self.rows[name]
        others = row.get(EXTENDS, [])
        found: dict[str, Any] = {}
        for other in [others] if isinstance(others, str) else others:
            found |= self.options(other, (*seen, name))
        return found | {key: value for key, value in row.items() if key not in OWN}

    def protocol(self) -> dict[str, Any]:
        """Return the options of all rows by their keys.

        Raises:
            UserError: the protocol extends that of a table that does not exist.
        """
        own = dict(self.content.get("protocol") or {})
        other = self._other("protocol", own.pop(EXTENDS, None))
        return own if other is None else other.protocol() | own

    def _other(self, section: str, name: str | None) -> "Table | None":
        """Return the table that a section extends, None for no name."""
        if name is None:
            return None
        file = self.file.with_name(f"{name}.yaml")
        if not file.is_file():
            raise UserError(f"{self.file}: {section}.extends={name}: there is no table {file}")
        return read(file, self.groups)

    def source(self, name: str) -> dict[str, Any]:
        """Return where the published values of a row come from, by `SOURCE`; None is not known."""
        own = self.rows[name].get("source") or {}
        return dict.fromkeys(SOURCE) | (self.content.get("source") or {}) | own

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
        rows = {f"{self.experiment}/{name}": row for name, row in self.rows.items()}
        shown = {name for name, row in rows.items() if row.get("published_only")} | {*self.axes["experiment"]}
        return {name: _paper(name.rpartition("/")[2], row) for name, row in rows.items() if name in shown}

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
        return self._row(name.removeprefix(f"{self.experiment}/"))

    def _composed(self, options: dict[str, Any]) -> DictConfig:
        """Return the configuration with these options."""
        config = OmegaConf.create({"defaults": []})
        for key, value in options.items():
            if "@" in key or key in self.groups:
                config.defaults.append({f"override /{key}": value})
            elif key.partition(".")[0] in (*roles.SECTIONS, *roles.OTHERS):
                OmegaConf.update(config, key, value, force_add=True)
            else:
                known = sorted({*self.groups, *roles.SECTIONS, *roles.OTHERS})
                allowed = f"must begin with one of {', '.join(known)}"
                raise UserError(f"{self.file}: {key}: no such option; {suggest_name(key, known)}{allowed}")
        return config

    def _row(self, name: str) -> DictConfig:
        options = self.protocol()
        if name != PROTOCOL:
            options |= self.options(name)
        config = self._composed(options)
        if name != PROTOCOL:
            config.paper = _paper(name, self.rows[name])
        return config

    def _sweep(self) -> DictConfig:
        protocol = f"{self.experiment}/{PROTOCOL}"
        return OmegaConf.create(
            {
                # a row, so that the command line accepts the options of its task and its model
                "defaults": ["_base", {"override /experiment": (self.axes["experiment"] or [protocol])[0]}, "_self_"],
                "report": self.content["report"],
                "hydra": {
                    **self.content.get("hydra", {}),
                    "sweeper": {
                        "params": {key: ",".join(map(_as_word, values)) for key, values in self.axes.items()},
                        **({"choose": self.choose} if self.choose else {}),
                    },
                },
            }
        )


def files(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the tables in folders of configurations by name. The first of two with the same name counts."""
    found: dict[str, Path] = {}
    for folder in folders:
        for file in sorted((folder / GROUP).glob("*.yaml")):
            found.setdefault(file.stem, file)
    return found


def experiment_of(file: Path) -> str:
    """Return the name of the rows of a table, "" if it has none. The rest of the file may be damaged."""
    return _experiment_of(file, file.stat().st_mtime_ns)


@cache
def _experiment_of(file: Path, changed: int) -> str:
    named = re.search(r"^experiment: *([^\s#]+)", file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return "" if named is None else named[1].strip("\"'")


def that_may_have(choices: Iterable[str], folders: Iterable[Path]) -> dict[Path, list[str]]:
    """Return the tables among whose rows and columns choices could be, by their names, with those of each table."""
    named = [choice for choice in choices if "/" in choice]
    found = {}
    for file in files(folders).values() if named else ():
        prefix = f"{experiment_of(file)}/"
        if own := [choice for choice in named if choice.startswith(prefix)]:
            found[file] = own
    return found


def read(file: Path, groups: Iterable[str]) -> Table:
    """Return the table in a file; `groups` are those of the command line.

    Raises:
        UserError: the file is not a table; the message names what is wrong.
    """
    return _read(file, file.stat().st_mtime_ns, frozenset(groups))


@cache
def _read(file: Path, changed: int, groups: frozenset[str]) -> Table:
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=Loader)
    except yaml.YAMLError as error:
        raise UserError(f"{file}{yaml_fault(error)}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise UserError(f"{file}: must have the sections experiment, report and rows")
    for section in content:
        if section not in SECTIONS:
            raise UserError(f"{file}: {section}: must be one of {', '.join(SECTIONS)}")
    rows = content.get("rows")
    for mapping in (content.get("protocol"), rows, *(rows.values() if isinstance(rows, dict) else ())):
        if isinstance(mapping, dict) and LIKE in mapping:
            mapping[EXTENDS] = mapping.pop(LIKE)
    named = isinstance(content.get("experiment"), str) and isinstance(content.get("report"), dict)
    own = [row or {} for name, row in rows.items() if name != EXTENDS] if isinstance(rows, dict) else [None]
    if not named or not all(isinstance(row, dict) for row in own):
        raise UserError(f"{file}: must have the name `experiment`, the section `report`, and `rows` with options each")
    for key in content["report"]:
        if key not in REPORT:
            raise UserError(f"{file}: report.{key}: {suggest_name(str(key), REPORT)}must be one of {', '.join(REPORT)}")
    for source in (content, *own):
        if not {*(source.get("source") or {})} <= {*SOURCE}:
            raise UserError(f"{file}: source: must have the keys {', '.join(SOURCE)} alone")
    for key, values in (content.get("sweep") or {}).items():
        if not (isinstance(values, list) and values):
            raise UserError(f"{file}: sweep.{key}={values}: must be a list of values, at least one")
    _check_columns(file, content)
    return Table(file, content["experiment"], content, groups)


def _check_columns(file: Path, content: dict[str, Any]) -> None:
    """Check the sections `columns` and `choose`."""
    columns = content.get("columns") or {}
    if not isinstance(columns, dict) or not all(isinstance(options, dict) for options in columns.values()):
        raise UserError(f"{file}: columns: must have options for each column")
    choose = content.get("choose") or {}
    if not isinstance(choose, dict) or (choose and not isinstance(choose.get("seed"), int)):
        raise UserError(f"{file}: choose: must have lists of values and a `seed`")
    for key, values in choose.items():
        if key != "seed" and not (isinstance(values, list) and values):
            raise UserError(f"{file}: choose.{key}={values}: must be a list of values")


def _paper(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the node `paper` of a row: its title and what was published."""
    return {"row": row.get("name", name), **_with_text_keys(row.get("paper") or {})}


def _with_text_keys(value: Any) -> Any:
    return {str(key): _with_text_keys(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _as_word(value: Any) -> str:
    """Return a value as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    word = str(value)
    return word if re.fullmatch(r"[\w.+/-]+", word, re.ASCII) else text(word)
