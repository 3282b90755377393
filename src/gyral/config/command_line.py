"""Entry of the commands: Hydra's, with every user error as one line. Imports no torch: `--help` stays fast."""

import contextlib
import functools
import io
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any, NoReturn

import hydra
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from gyral.config import resolvers as resolvers  # registers them
from gyral.config.errors import describe
from gyral.config.groups import CONFIG_PATH, NO_GROUPS, choices, groups, list_choices, user_config_path
from gyral.config.mistakes import arrange_words, check_additions, check_words
from gyral.config.overrides import defer_options, program, quote
from gyral.core.errors import JobError
from gyral.core.signals import Interrupted

COMMANDS = ("train", "evaluate", "generate", "report", "fetch", "dashboard")
PATHS = ("run", "resume", "weights")  # options of all commands whose values may contain any sign
INTERRUPTED = 130  # 128 + SIGINT, as shells count

logging.captureWarnings(True)
logging.raiseExceptions = False  # a log that cannot be written prints no traceback; results name the full disk


def main(
    task_function: Callable[[DictConfig], Any],
    config_name: str,
    literal: tuple[str, ...] = (),
    after_sweep: Callable[[DictConfig], None] | None = None,
) -> None:
    """Compose the configuration from the command line and call the function with it, once or for each job of a sweep.

    If anything fails, the process ends with status 1 and one line on standard error; HYDRA_FULL_ERROR=1 also shows the
    traceback.

    Args:
        task_function: the function to call.
        config_name: name of the primary file in conf/, with its folder if its groups are not in conf/ itself.
        literal: options besides `PATHS` whose values are literal text, not in Hydra's grammar.
        after_sweep: a function that the sweeper calls with the configuration of the sweep when all jobs have ended.
    """
    file = Path(CONFIG_PATH, config_name)
    words = arrange_words(sys.argv[1:], file)
    sys.argv[1:] = [quote(word) if _is_literal(word, literal, words) else word for word in words]
    names_sweep = (file.parent / "sweep").is_dir() and any(word.startswith("sweep=") for word in sys.argv)
    if names_sweep and not any(word.startswith("-") for word in sys.argv):
        sys.argv.append("-m")  # the sweep's file sets it, but Hydra ignores that if composition fails
    if {"-m", "--multirun"} & set(sys.argv):
        sys.argv[1:] = defer_options(sys.argv[1:])
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR", "0") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let exceptions reach this function instead of Hydra's own printing
    add_user_modules()

    @functools.wraps(task_function)
    def job(config: DictConfig) -> Any:
        try:
            return task_function(config)
        except Exception as error:
            if wants_traceback:
                raise
            if HydraConfig.get().mode == RunMode.RUN:
                fail(describe(error))
            print(f"error: {describe(error)}", file=sys.stderr)
            raise JobError(f"{HydraConfig.get().runtime.output_dir}: {describe(error)}") from None

    vars(job)["after_sweep"] = after_sweep  # Hydra passes the sweeper nothing else than the function
    try:
        if {"--help", "-h"} & set(sys.argv):
            print(help_text(file, [word for word in sys.argv[1:] if not word.startswith("-")]))
            return
        check_words(sys.argv[1:], config_name)
        check_additions(sys.argv[1:], file)
        _compose_once()
        run = hydra.main(version_base="1.3", config_path=str(file.parent), config_name=file.name)(job)
        if {"--shell-completion", "-sc"} & set(sys.argv):
            print(complete(run, config_name))
        else:
            run()
    except (KeyboardInterrupt, Interrupted):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain when it exits
    except Exception as error:
        if wants_traceback:
            raise
        fail(describe(error))


def _is_literal(word: str, literal: tuple[str, ...], words: list[str]) -> bool:
    """Return whether the value of a word is literal text. In a sweep, that of a path is if the path exists."""
    key, _, value = word.partition("=")
    sweeps = bool({"-m", "--multirun"} & set(words))
    return key in literal or (key in PATHS and value != "null" and (not sweeps or os.path.exists(value)))


def _compose_once() -> None:
    """Keep Hydra from composing the configuration twice, which takes 0.3 s: the first time it only reads `hydra.mode`.

    Without the mode of the configuration, as here, -m determines it.
    """
    if not any(word.startswith("hydra.mode=") for word in sys.argv):
        Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]


def fail(message: str) -> NoReturn:
    """End the process with one line on standard error."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)


def help_text(file: Path, overrides: list[str]) -> str:
    """Return the text of --help: the template hydra.help.template with the groups' choices and the configuration.

    Hydra's own help takes a second longer, because it scans the groups of its plugins, and it lists private files.
    """
    with hydra.initialize_config_dir(str(file.parent), version_base="1.3"):
        config = hydra.compose(file.name, overrides, return_hydra_config=True)
    template = Template(config.hydra.help.template)
    with open_dict(config):
        del config["hydra"]
    commands = {command: " ".join(program(command)) for command in COMMANDS}
    listed = "\n".join(map(list_choices, groups()))
    return template.substitute(APP_CONFIG_GROUPS=listed, CONFIG=OmegaConf.to_yaml(config), **commands)


def complete(run: Callable[[], None], config_name: str) -> str:
    """Return the output of Hydra's shell completion, with the choices of groups as Gyral lists them."""
    available = groups() if config_name == "train" else []
    if "query=bash" in sys.argv:
        group, equals, _ = os.environ["COMP_LINE"].split(" ")[-1].partition("=")
        if equals and group in available:
            return " ".join(f"{group}={choice}" for choice in choices(group))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run()
    if "query=bash" not in sys.argv:
        return out.getvalue().rstrip("\n")
    hidden = [*NO_GROUPS, *(set(groups()) - set(available))]
    words = out.getvalue().split()
    return " ".join(
        word for word in words if not word.startswith(("_", *(f"{name}{end}" for name in hidden for end in "=/")))
    )


def add_user_modules() -> None:
    """Make modules in the current directory importable, here and in child processes, if it has a folder conf/."""
    if user_config_path() is None:
        return
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*paths, folder]))
