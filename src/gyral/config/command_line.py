"""Entry of the commands: Hydra's, with every user error as one line. Imports no torch: `--help` stays fast."""

import functools
import logging
import os
import re
import sys
import textwrap
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT
from string import Template
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from gyral.config import own_modules
from gyral.config import resolvers as resolvers  # registers them
from gyral.config.errors import describe
from gyral.config.groups import CONFIG_PATH, choices, groups, list_choices
from gyral.config.overrides import MULTIRUN, defer_options
from gyral.config.plain import flatten
from gyral.config.roles import GENERATED
from gyral.config.words import read_words
from gyral.core.commands import leave_out_current_directory, limit_spinning, print_version, program
from gyral.core.errors import JobError, UserError, hide_passwords
from gyral.core.signals import SIGNALS, Interrupted, handlers, interrupt
from gyral.core.streams import check_directory, end_without_reader, fail, finish_output, open_streams

COMMANDS = ("train", "evaluate", "predict", "export", "generate", "report", "fetch", "dashboard")
# in the help
GROUPS = ("task", "model", "optimizer", "scheduler", "trainer", "callbacks", "logger", "launcher", "debug")
HELP_WIDTH = 100  # characters
INTERRUPTED = 130  # 128 + SIGINT, as shells count

logging.captureWarnings(True)
logging.raiseExceptions = False  # a log that cannot be written prints no traceback; results name the full disk


def main(
    task_function: Callable[[DictConfig], Any],
    config_name: str,
    literal: tuple[str, ...] = (),
    after_sweep: Callable[[DictConfig], None] | None = None,
    check_options: Callable[[DictConfig, str], None] | None = None,
    measure: Callable[[DictConfig, float], Any] | None = None,
    runs_jobs: bool = True,
    explains: bool = False,
) -> None:
    """Compose the configuration from the command line and call the function with it, once or for each job of a sweep.

    If anything fails, the process ends with status 1 and one line on standard error; HYDRA_FULL_ERROR=1 also shows the
    traceback.

    Args:
        task_function: the function to call.
        config_name: name of the primary file in conf/, with its folder if its groups are not in conf/ itself.
        literal: options whose values are literal text instead of Hydra's grammar, besides `words.PATHS`.
        after_sweep: a function that the sweeper calls with the configuration of the sweep when all jobs have ended.
        check_options: a function that the sweeper calls before the first job, to check the options in a section of the
            configuration of a job.
        measure: a function that the sweeper calls before the first job with the configuration of a job and with about
            how many seconds it may take, to know how long the job takes.
        runs_jobs: whether Hydra runs jobs, with directories and logs; it composes the configuration twice for that.
        explains: whether the command without any word prints its help.
    """
    file = Path(CONFIG_PATH, config_name)
    wants_traceback = shows_traceback()

    @functools.wraps(task_function)
    def job(config: DictConfig) -> Any:
        try:
            return task_function(config)
        except Exception as error:
            if wants_traceback:
                raise
            if HydraConfig.get().mode == RunMode.RUN:
                fail_with(error)
            print(f"error: {describe(error)}", file=sys.stderr)
            raise JobError(f"{HydraConfig.get().runtime.output_dir}: {describe(error)}") from None

    # Hydra passes the function to the sweeper
    vars(job).update(after_sweep=after_sweep, check_options=check_options, measure=measure)
    with one_line_errors():
        if "--version" in sys.argv[1:]:  # Hydra would print its own
            print_version()
            return
        os.environ["HYDRA_FULL_ERROR"] = "1"  # let exceptions reach this function instead of Hydra's own printing
        own_modules.set_command(sys.argv[1:])
        if config_name != "train":
            Plugins.instance()  # now: what Hydra imports from folders hydra_plugins is for training alone
        own_modules.add_user_modules()
        is_train, given = config_name == "train", sys.argv[1:]
        asks = not {"--help", "-h"}.isdisjoint(given)
        if asks and is_train and (asked := [*filter(groups().__contains__, given)]):
            print(*map(list_choices, asked), sep="\n")
            return
        has_flags = any(word.startswith("-") for word in given)
        if is_train and not has_flags and any(word.startswith(("sweep=", "+sweep=")) for word in given):
            given = ["-m", *given]  # the sweep's file sets it, but Hydra ignores that if composition fails
        words = read_words(given, file, literal)
        if asks or (explains and not words):
            print(help_text(file, [word for word in words if not word.startswith("-")]))
            return
        sys.argv[1:] = defer_options(words) if MULTIRUN & set(words) else words
        try:
            if runs_jobs or has_flags:
                hydra.main(version_base="1.3", config_path=str(file.parent), config_name=file.name)(job)()
            else:
                task_function(_compose(file, words)[0])
        except Exception as error:  # of a job, or of Hydra itself
            if wants_traceback:
                raise
            fail_with(error, [word for word in words if re.match(r"[+~]*hydra[./@=]", word)])


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Let a process end with status 1 and one line on standard error if anything fails within this context.

    HYDRA_FULL_ERROR=1 shows the traceback. Ctrl-C or another of `SIGNALS`, and a reader of standard output that has
    gone, end it silently.
    """
    wants_traceback = shows_traceback()
    try:
        open_streams()
        check_directory()
        leave_out_current_directory()
        limit_spinning()
        with handlers(interrupt, [number for number in SIGNALS if number != SIGINT]):  # which Python handles
            yield
    except (KeyboardInterrupt, Interrupted):
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich ends the process with status 1
            end_without_reader()
        if not end.code:
            finish_output()
        raise
    except Exception as error:
        if wants_traceback:
            sys.excepthook = print_traceback
            raise
        fail_with(error)
    finish_output()


def print_traceback(kind: Any, error: BaseException, trace: Any) -> None:
    """Print the traceback of an error as Python does, without passwords of URLs."""
    print(hide_passwords("".join(traceback.format_exception(error))), end="", file=sys.stderr)


def shows_traceback() -> bool:
    """Return whether the user asks for tracebacks."""
    return os.environ.get("HYDRA_FULL_ERROR", "0") == "1"


def fail_with(error: Exception, options: Sequence[str] = ()) -> NoReturn:
    """End the process with one line for an error, or silently if the reader of standard output has gone.

    Args:
        error: the error.
        options: see `describe`.
    """
    if isinstance(error, BrokenPipeError):
        end_without_reader()
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        finish_output("\n")  # which fails again if this has been the reason
    fail(describe(error, options))


def parse_words(parser: ArgumentParser) -> Any:
    """Return the arguments of the command line; a wrong one raises `UserError`.

    The process ends with what --help or --version asks for.
    """
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(parser.format_help(), end="")  # argparse would ignore a standard output that cannot be written
        sys.exit()
    if "--version" in sys.argv[1:]:
        print_version()
        sys.exit()

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; see {parser.prog} --help")

    parser.error = refuse  # type: ignore[method-assign]  # it prints several lines
    return parser.parse_args()


def help_text(file: Path, overrides: list[str]) -> str:
    """Return the text of --help: the template hydra.help.template with the groups' choices and the configuration.

    Hydra's own help takes a second longer, because it scans the groups of its plugins, and it lists private files.
    """
    config, template_text = _compose(file, overrides)
    template = Template(template_text)
    commands = {command: " ".join(program(command)) for command in COMMANDS}
    shown = {"APP_CONFIG_GROUPS": list_groups(), "CONFIG": list_keys(config), "OPTIONS": list_options(file, config)}
    return template.substitute(shown, **commands)


def list_groups() -> str:
    """Return a line for each group with its first choices; of the choices that tables make, only their number."""
    lines = [textwrap.shorten(list_choices(group), HELP_WIDTH, placeholder=" …") for group in GROUPS]
    numbers = (f"{group}: {len(choices(group))}" for group in GENERATED)
    return "\n".join((*lines, f"{', '.join(numbers)}  rows, columns and tables of papers"))


def list_keys(config: DictConfig) -> str:
    """Return the options of a configuration for the help, in a paragraph for each section; classes are left out."""
    sections: dict[str, list[str]] = {}
    for key, value in flatten(OmegaConf.to_container(config)):
        section, dot, name = key.partition(".") if "." in key else ("", "", key)
        if not key.rpartition(".")[2].startswith("_"):
            option = f"{name}: {OmegaConf.to_yaml([value])[2:].rstrip()}"
            sections.setdefault(section + dot, []).append(option.replace(" ", "\0"))  # lines end between options
    paragraphs = (
        textwrap.fill(", ".join(options), HELP_WIDTH, initial_indent=f"{section:11}", subsequent_indent=" " * 11)
        for section, options in sections.items()
    )
    return "\n".join(paragraphs).replace("\0", " ")


def list_options(file: Path, config: DictConfig) -> str:
    """Return the options of a command with their defaults and the comments behind them in its file."""
    blocks = []
    for line in file.with_suffix(".yaml").read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"(\w+): (.*?)  # (.*)", line)
        if found and found[1] in list(config):  # also if its value is missing
            name, value, comment = found.groups()
            default = "" if value in ("null", "???") else f" (default: {value})"
            wrapped = textwrap.wrap(f"{comment}{default}", HELP_WIDTH - 14, break_on_hyphens=False)
            blocks.append(f"  {name + '=':12}" + ("\n" + " " * 14).join(wrapped))
    return "\n".join(blocks)


def _compose(file: Path, words: list[str]) -> tuple[DictConfig, str]:
    """Return the configuration of a command without the section of Hydra, which `HydraConfig` has, and its help."""
    with hydra.initialize_config_dir(str(file.parent), version_base="1.3"):
        config = hydra.compose(file.name, words, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    template = str(config.hydra.help.template)
    with open_dict(config):
        del config["hydra"]
    return config, template
