"""Command line entry: Hydra's, with every user error as one line. Imports no torch: `--help` stays fast."""

import functools
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any, NoReturn

import hydra
import yaml  # type: ignore[import-untyped]
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from gyral.core.errors import OptionError
from gyral.core.signals import Interrupted
from gyral.sweeps.grid import SweepError
from gyral.sweeps.launchers import JobError

CONFIG_PATH = str(Path(__file__).parents[3] / "conf")
NO_GROUPS = ("wandb",)  # folders of conf/ that are no words of the command line: what W&B's agents read
INTERRUPTED = 130  # 128 + SIGINT, as shells count


def main(task_function: Callable[[DictConfig], Any], config_name: str, literal: tuple[str, ...] = ()) -> None:
    """Compose the configuration from the command line and run the function on it, once or over a sweep.

    Ends the process with status 1 and one line on standard error when anything fails; HYDRA_FULL_ERROR=1 shows the
    traceback, too.

    Args:
        task_function: what is run.
        config_name: of its file in conf/, with the folder where its groups lie if that is not conf/ itself.
        literal: options whose values are text that is taken as it stands, not in Hydra's grammar.
    """
    sys.argv[1:] = [quote(word) if word.partition("=")[0] in literal else word for word in sys.argv[1:]]
    file = Path(CONFIG_PATH, config_name)
    names_sweep = (file.parent / "sweep").is_dir() and any(word.startswith("sweep=") for word in sys.argv)
    if names_sweep and not any(word.startswith("-") for word in sys.argv):
        sys.argv.append("-m")  # what the sweep's file says, but Hydra forgets where something else is wrong
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR", "0") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let exceptions reach this function instead of Hydra's own printing

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

    try:
        if {"--help", "-h"} & set(sys.argv):
            print(help_text(file, [word for word in sys.argv[1:] if not word.startswith("-")]))
            return
        hydra.main(version_base="1.3", config_path=str(file.parent), config_name=file.name)(job)()
    except (KeyboardInterrupt, Interrupted):
        sys.exit(INTERRUPTED)
    except SweepError as error:
        fail(str(error))
    except Exception as error:
        if wants_traceback:
            raise
        fail(describe(error))


def help_text(file: Path, overrides: list[str]) -> str:
    """Return what --help prints: the template hydra.help.template with the groups' choices and the configuration.

    Hydra's own takes a second longer, for a scan of its plugins' groups, and lists the files that are no choices.
    """
    with hydra.initialize_config_dir(str(file.parent), version_base="1.3"):
        config = hydra.compose(file.name, overrides, return_hydra_config=True)
    template = Template(config.hydra.help.template)
    with open_dict(config):
        del config["hydra"]
    folders = sorted(folder.name for folder in file.parent.iterdir() if folder.is_dir())
    groups = [name for name in folders if not name.startswith("_") and name not in NO_GROUPS]
    listed = "\n".join(f"{group}: {', '.join(choices(group))}" for group in groups) + "\n"
    return template.substitute(APP_CONFIG_GROUPS=listed, CONFIG=OmegaConf.to_yaml(config))


def quote(override: str) -> str:
    """Return an override key=value that Hydra reads as this very text; one whose value has quotes around it stays.

    Hydra takes unquoted text apart: it strips spaces, sweeps over commas and refuses apostrophes.
    """
    key, equals, value = override.partition("=")
    if not equals or re.fullmatch(r"'.*'|\".*\"", value, re.DOTALL):
        return override
    escaped = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)  # no interpolation
    return f"{key}={QuotedString(escaped, Quote.single).with_quotes()}"


def plain(override: str) -> str:
    """Return an override key=value as one types it: with quotes where Hydra would take its value apart."""
    return override if re.fullmatch(r"[\w./+@:-]*", override.partition("=")[2]) else quote(override)


def typed(words: list[str]) -> str:
    """Return a command as one types it in a shell: what has Hydra's single quotes has the shell's double ones."""
    return " ".join(
        f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word) for word in words
    )


def fail(message: str) -> NoReturn:
    """End the process with one line on standard error."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)


def describe(error: BaseException) -> str:
    """Return what a user needs to know of an error, in one line."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        if isinstance(cause, OptionError):
            return str(cause)
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _describe_composition(causes)
    if isinstance(error, OSError):
        return f"{error.filename or 'writing'}: {error.strerror or error}"
    first_line = (str(error).strip() or "no message").splitlines()[0]
    if isinstance(error, MemoryError) or ("memory" in first_line and "allocate" in first_line):  # of a CPU, of a GPU
        return f"out of memory: {first_line.rpartition('Allocator: ')[2]}"
    return f"{type(error).__name__}: {first_line} (HYDRA_FULL_ERROR=1 shows the traceback)"


def _describe_composition(causes: list[BaseException]) -> str:
    for cause in causes:
        if isinstance(cause, OverrideParseException):
            return f"{cause.override}: cannot be read; one value is key=value, a sweep key=a,b without empty items"
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            group, _, name = cause.missing_cfg_file.partition("/")
            names = choices(group)
            if names:
                return f"{group}={name}: must be one of {', '.join(names)}"
        node = getattr(cause, "parent_node", None)
        if isinstance(cause, OmegaConfBaseException) and isinstance(node, DictConfig):
            allowed = ", ".join(str(key) for key in node if key != "hydra" and not str(key).startswith("_"))
            return f"{cause.full_key}: no such option; allowed: {allowed}"
    return " ".join(str(causes[0]).split())


def choices(group: str) -> list[str]:
    """Return the names that a group has on the command line."""
    if group == CELL:
        return [name for name in choices("model") if _cell(name)]
    folder = Path(CONFIG_PATH) / group
    names = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.yaml")]
    return sorted(str(name) for name in names if not name.name.startswith("_"))


def _cell(family: str) -> dict[str, Any]:
    """Return the section `cell` of a file in conf/model, with what the files that it begins with say of it."""
    # the reader in C: this is done at every start
    node = yaml.load((Path(CONFIG_PATH) / "model" / f"{family}.yaml").read_bytes(), yaml.CSafeLoader)
    own = node.get(CELL)
    inherited = [_cell(name) for name in node.get("defaults", []) if own and name != "_self_"]
    return {key: value for part in (*inherited, own or {}) for key, value in part.items()}


CELL = "cell"  # a group made of the cells in conf/model, for networks of more than one
for name in choices(CELL):
    ConfigStore.instance().store(name, _cell(name), group=CELL)

logging.captureWarnings(True)
OmegaConf.register_new_resolver("data_dir", lambda: os.environ.get("DATA_DIR", "data"), replace=True)
