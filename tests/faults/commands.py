"""Words that are wrong or unusual, for every command that `gyral --help` lists, from the configuration tree."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from omegaconf import OmegaConf

from gyral.__main__ import COMMANDS
from gyral.applications import offers
from gyral.config.groups import choices, groups
from gyral.config.offers import options_of as options_of_offer
from gyral.tasks.text import TextTask
from tests.faults.command_lines import QUICK, RUNS, options_of, sections_of
from tests.helpers.running import CONF

TRAIN = (*RUNS[0], *QUICK)
EMPTY = ("null", "{}", "[]", "''")
PACKAGES = ("package", "task", "task.x", "_global_", "_group_", "hydra", "", ":", "a:b")
# Words of Hydra, which only `gyral train` sweeps and places.
OF_HYDRA = (
    *("-m", "--multirun", "--resolve", "--info=x", "-c", "--experimental-rerun=x", "--config-name=x", "--package=a"),
    *("hydra.mode=MULTIRUN", "hydra.mode=null", "hydra.mode=x", "hydra=null", "hydra={}", "~hydra", "+hydra.x=1"),
    *("hydra.run.dir=null", "hydra.run.dir=''", "hydra.run=null", "hydra.output_subdir=x", "hydra.sweep.dir=null"),
    *("hydra.verbose=null", "hydra.job.chdir=null", "hydra.job_logging=null", "hydra/job_logging=default"),
    *("hydra.launcher=null", "hydra/launcher=x", "hydra.sweeper=null", "hydra.searchpath=[x]", "hydra.callbacks=null"),
    *("hydra.job=null", "hydra.job.name=null", "hydra.runtime=null", "hydra.overrides=null", "hydra.env={}"),
)
# Shells run the command of the arguments with its standard streams, or its current directory, in this state.
STATES = {
    "closed standard input": '"$@" <&-',
    "closed standard output": '"$@" >&-',
    "closed standard error": '"$@" 2>&-',
    "no standard streams": '"$@" <&- >&- 2>&-',
    "full standard output": '"$@" >/dev/full',
    "output without a reader": '{ "$@"; echo $? >status; } | true; read -r number <status; rm status; exit "$number"',
    "removed directory": 'mkdir gone && cd gone && rmdir ../gone && "$@"',
}
# Words for every command.
ANY = (
    "",
    "null",
    "{}",
    "[]",
    "=",
    "=x",
    "x",
    "-",
    "--",
    "--x",
    "+x=1",
    "~x",
    "a@b=c",
    "dynamic=null",
    "/nowhere",
    "é=1",
)


class Line(NamedTuple):
    """A command, its words, and those among them that are wrong or unusual."""

    command: str
    words: tuple[str, ...]
    drawn: tuple[str, ...]


def primary_file(command: str) -> Path | None:
    """Return the primary configuration file of a command, or None for a command that has none."""
    return next((path for path in CONF.rglob(f"{command}.yaml") if path.parent.name in (CONF.name, "_report")), None)


def lines(command: str, run: Path) -> list[Line]:
    """Return the lines of a command.

    Args:
        command: the name of the command.
        run: a run directory, which the line of a command may name.
    """
    usual: dict[str, tuple[str, ...]] = {
        "train": TRAIN,
        "evaluate": (f"run={run}",),
        "generate": (f"run={run}",),
        "predict": (f"run={run}",),
        "report": (f"sweep={run.parent}",),
    }
    base = usual.get(command, ())
    own = words_of_train() if command == "train" else [*words_of(command), *words_of_task(command)]
    drawn = [(word,) for word in (*own, *OF_HYDRA, *ANY)]
    if command == "train":
        drawn += [("-m", word) for word in (*OF_HYDRA[2:], "seed=null", "seed={}", "seed=[]", "seed=")]
    return [Line(command, (*base, *words), words) for words in drawn]


def words_of(command: str) -> Iterator[str]:
    """Yield words for each option of a command's primary file."""
    file = primary_file(command)
    for key in OmegaConf.load(file) if file is not None else ():
        if key not in ("hydra", "defaults"):
            yield from (f"{key}={value}" for value in (*EMPTY, "[null]", "{a:1}", "1", "true", "${x}", "???"))
            yield from (f"~{key}", f"+{key}=1", f"++{key}=1", f"+{key}.a=1", f"{key}@package=x")


def words_of_task(command: str) -> Iterator[str]:
    """Yield words for each option that a language model offers to a command."""
    kind = {"evaluate": "evaluations", "generate": "generators"}.get(command)
    for name, function in (offers(kind, TextTask) if kind else {}).items():
        keys = options_of_offer(function)
        for key in {name, *keys, *(f"{name}.{key}" for key in keys)} if command == "evaluate" else keys:
            yield from (f"{key}={value}" for value in (*EMPTY, "1e400", "-1"))


def words_of_train() -> Iterator[str]:
    """Yield words that set groups, sections and options to nothing, and that put groups elsewhere."""
    for group in (*groups(), "hydra/launcher", "cell@model.cell"):
        name = next(iter(choices(group.partition("@")[0])), "rum")
        yield from (f"{group}={value}" for value in EMPTY)
        yield from (f"~{group}", f"+{group}=null", f"++{group}=null")
        if "@" not in group:
            yield from (f"+{group}@{package}={name}" for package in PACKAGES)
            yield from (f"{group}@model.cell=null", f"+{group}@package=null", f"{group}@task={name}", f"~{group}@task")
    for section in sections_of(TRAIN):
        yield from (f"{section}={value}" for value in EMPTY)
        yield f"~{section}"
    for option, value in options_of(TRAIN).items():
        if value is None:
            yield from (f"{option}={{}}", f"{option}=[]", f"{option}=''", f"~{option}")


def shares(number: int, of: int, run: Path) -> Iterator[Line]:
    """Yield the lines of an attack: each line of each command is in one of `of` attacks, and each has all commands."""
    for command in COMMANDS:
        yield from lines(command, run)[number::of]
