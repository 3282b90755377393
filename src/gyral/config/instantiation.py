"""Objects from configuration sections. Every error about an option names the option by its whole key.

A section is checked twice, for two kinds of errors. `check_section` checks names and types of its options against the
signature of its target, without calling anything, so that a wrong type is found even where a constructor would accept
it. The constructors themselves check what a type cannot say, such as ranges; they have to, because a library calls them
without a configuration.
"""

import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any, get_args

from omegaconf import DictConfig, ListConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from gyral.config.errors import allocation, place_in_own_code
from gyral.config.plain import WITH_TEXTS, map_texts, walk
from gyral.config.roles import OTHERS, REQUIRED, SECTIONS
from gyral.config.signatures import annotations_of, type_of
from gyral.config.trust import GROUPS, find_object, known_names
from gyral.config.words import hints
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.errors import OptionError, UserError, one_line, suggest_name
from gyral.core.inputs import check_exists, path_of
from gyral.core.memory import is_out_of_memory
from gyral.core.options import checks_of, kinds_of
from gyral.core.signatures import is_open, parameters_of

FACTORIES = ("optimizer", "scheduler", "model.cell")  # sections of objects that are made later, with more arguments
SPECIAL = ("_target_", "_partial_", "_recursive_", "_convert_")  # keys of Hydra in addition to `_args_`
MAX_THREADS = 1024  # the system refuses some tens of thousands, and ends the process
MAX_STEPS = 10**12
MISSING = object()  # in place of the value of an option that a configuration does not have
DOTTED = "must be the dotted name of a class or function"


def make(config: DictConfig, key: str, **arguments: Any) -> Any:
    """Return the object that the section `key` describes, a partial function for `FACTORIES`, or None if it is empty.

    Args:
        config: the whole configuration.
        key: key of the section.
        **arguments: further arguments of the target.

    Raises:
        OptionError: an option that is unknown, of the wrong type, or refused by the target.
    """
    node = OmegaConf.select(config, key)
    if node is None or (OmegaConf.is_dict(node) and not node):
        return None
    check_target(node, key)
    section = check_section(node, key)
    if section.get("_partial_") and key not in FACTORIES:
        raise OptionError(f"{key}._partial_", "true", "must be left out: the object is made at once")
    with located(config, key):
        factory: partial[Any] = _build(section | {"_partial_": True})
        return factory if key in FACTORIES else factory(**arguments)


def _as_path(value: str) -> str:
    """Return the value of an option; if it is a path that begins with ~, or that the locale writes otherwise, that."""
    if value == "~" or value.startswith("~/"):
        return str(path_of(value))
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return str(path_of(value)) if path_of(value).exists() else value
    return value


def _build(value: Any) -> Any:
    """Return the object that plain containers describe, in the form of Hydra's `instantiate`.

    `instantiate` itself turns values into configurations again and so evaluates texts that hold `${…}`.
    """
    if isinstance(value, str):
        return _as_path(value) if value.startswith("~") or not value.isascii() else value
    if isinstance(value, list):
        return [_build(item) if isinstance(item, WITH_TEXTS) else item for item in value]
    inner = {name: item for name, item in value.items() if name not in SPECIAL}
    change = _build if value.get("_recursive_", True) else partial(map_texts, change=_as_path)
    inner |= {name: change(item) for name, item in inner.items() if isinstance(item, WITH_TEXTS)}
    if "_target_" not in value:
        return inner
    factory = partial(find_object(value["_target_"]), *inner.pop("_args_", ()), **inner)
    return factory if value.get("_partial_") else factory()


@contextmanager
def located(config: DictConfig, key: str) -> Iterator[None]:
    """Turn errors of the target of a section into errors of one line with the full key of the option.

    An `OptionError` names its option. Errors of other packages do not, so their line has the key of the section and the
    message.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OptionError) and error.option.partition(".")[0] not in SECTIONS:
            section = _find_section(config, key, error)
            reason = _with_null(error.reason, _hint_of(OmegaConf.select(config, section), error.option), error.value)
            raise OptionError(f"{section}.{error.option}", error.value, reason) from error
        if isinstance(error, UserError | OSError):  # the message is complete
            raise error from None
        from pytorch_lightning.utilities.exceptions import MisconfigurationException  # now: it imports PyTorch

        message = " ".join(str(error).split())
        if is_out_of_memory(error):
            message = f"out of memory: {allocation(error)}"
        elif not (message and isinstance(error, ValueError | TypeError | MisconfigurationException)):
            message = f"{type(error).__name__}: {message}".removesuffix(": ")
            if place := place_in_own_code(error):
                message = f"{place}: {message}"
        raise UserError(f"{key}: {message}") from error


def check_config(config: Any) -> None:
    """Raise `UserError` unless a value is a configuration as `compose` returns it."""
    if not isinstance(config, DictConfig) or not {"task", "model", "trainer"} <= set(config):
        raise UserError(f"config: must be what gyral.compose returns, not {type(config).__name__}")


def check_sections(config: DictConfig) -> None:
    """Raise `OptionError` unless the sections of a configuration are there and each names its class or function.

    So does a key that nothing reads, which a saved configuration may have.
    """
    known = (*SECTIONS, *OTHERS)
    for key in map(str, config):
        if key not in known:
            hint = f"{suggest_name(key, known)}allowed: {', '.join(known)}"
            raise OptionError(key, config[key], f"no such option; {hint}")
    for key in REQUIRED:
        if not config.get(key):
            raise OptionError(key, "null", f"must be a section; choose one by {key}=<name>")
        check_target(config[key], key)
    if config.get("scheduler"):
        check_target(config.scheduler, "scheduler")
    for key in ("callbacks", "logger"):
        sections = {} if config.get(key) is None else config[key]
        if not isinstance(sections, dict | DictConfig):
            raise OptionError(key, sections, f"must hold sections; choose some by {key}=<name>")
        for name, section in sections.items():
            check_target(section, f"{key}.{name!s}")


def check_target(node: Any, key: str) -> None:
    """Raise `OptionError` unless a value is a section that names its class or function."""
    if not isinstance(node, DictConfig):
        removed = f"; write ~{key} to leave it out" if "." in key else ""
        raise OptionError(key, "null" if node is None else node, f"must be a section{removed}")
    if "_target_" not in node:
        raise OptionError(f"{key}._target_", "null", DOTTED)


def check_section(node: DictConfig | dict[Any, Any], key: str) -> Any:
    """Check options of a section and of sections in it by the signatures of their targets; return it as plain values.

    Raises:
        OptionError: a target that cannot be imported, an option that it does not have, or a value of the wrong type.
    """
    is_plain = isinstance(node, dict)
    values: Any = node if is_plain else OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    for name, value in values.items():
        if isinstance(value, dict):
            check_section(value, f"{key}.{name}")
    if "_target_" not in values:
        return values
    known = parameters_of(_find_target(values["_target_"], f"{key}._target_"))
    parameters = known or {}
    for name in [name for name in values if not str(name).startswith("_")]:
        option, value = f"{key}.{name}", values[name]
        hint = parameters[name].annotation if name in parameters else Parameter.empty
        if name not in parameters and known is not None and not is_open(known):
            guess = suggest_name(str(name), list(parameters))
            raise OptionError(option, value, f"no such option; {guess}allowed: {', '.join(parameters) or 'none'}")
        if isinstance(value, float) and not math.isfinite(value):
            raise OptionError(option, value, "must be a finite number")
        if isinstance(value, dict) or isinstance(hint, str) or hint is Parameter.empty:
            continue
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hint, config={"arbitrary_types_allowed": True})
            adapter.validate_python(value, strict=isinstance(value, bool | str))
        except PydanticUserError:
            continue  # not a type of plain values
        except ValidationError as error:
            raise _refusal(option, value, hint, error) from None
    return values


def _with_null(reason: str, hint: Any, value: Any) -> str:
    """Return the reason why a value is refused; if the type hint of its option allows null, it says so."""
    is_null = value is None or str(value) == "null"
    allows = type(None) in get_args(hint) and not is_null and "null" not in reason
    return re.sub(r"^(did you mean .*\? )?must be ", r"\1must be null or ", reason) if allows else reason


def _hint_of(section: Any, option: str) -> Any:
    """Return the type hint of an option of a section, None if it has none."""
    has_target = isinstance(section, DictConfig) and "_target_" in section
    parameters = (parameters_of(find_object(section["_target_"])) if has_target else None) or {}
    return parameters[option].annotation if option in parameters else None


def _find_target(target: Any, option: str) -> Any:
    """Return the class or function with a dotted name; raise `OptionError` if it cannot be imported."""
    if not isinstance(target, str) or not target:
        raise OptionError(option, target, DOTTED)
    try:
        found = find_object(target)
    except Exception as error:  # a module may raise anything when it is imported
        reason = one_line(error.__cause__ or error)
        if place := place_in_own_code(error):
            reason = f"{place}: {reason}"
        near = set().union(*(known_names(place) for group in GROUPS for place in (group, f"{group}.")))
        name, _, attribute = target.rpartition(".")
        if (module := sys.modules.get(name)) is not None:  # it was imported, but has no such class or function
            reason = f"{name} has no {attribute}"
            near |= {f"{name}.{each}" for each in vars(module)}
        hint = suggest_name(target, sorted(near))
        raise OptionError(option, target, f"{hint}cannot be imported: {reason}") from error
    if not callable(found):
        raise OptionError(option, target, DOTTED)
    return found


def _find_section(config: DictConfig, key: str, error: OptionError) -> str:
    """Return the key of the section that an option error is about: `key` or a section in it.

    If several have the option, it is the first that has it with this value. A task may also refuse an option of its
    model, such as the capacity of a memory.
    """
    owners: dict[str, bool] = {}  # the sections that have the option, and whether with its value
    for root in (key, "model") if key == "task" else (key,):
        sections = walk(OmegaConf.to_container(OmegaConf.select(config, root)), root) if not owners else ()
        for where in (where for where, node in sections if isinstance(node, dict) and "_target_" in node):
            found = OmegaConf.select(config, f"{where}.{error.option}", default=DictConfig({"_target_": None}))
            if not (isinstance(found, DictConfig) and "_target_" in found):  # `cell` is a section, or an option in one
                owners[where] = str(found) == str(error.value)
    return max(owners, key=owners.__getitem__, default=key)


def check_values(config: DictConfig, overrides: Sequence[str]) -> None:
    """Check the values of given options as far as that is possible without PyTorch.

    Args:
        config: the configuration.
        overrides: the words of the command line.

    Raises:
        OptionError: a value of the wrong type or out of its range, or a path of a file that does not exist.
    """
    check_process(config)
    if isinstance(config.trainer, DictConfig):
        for key in (f"trainer.{name!s}" for name in config.trainer):
            if key in (instead := hints("train")):  # in a file; those of the command line are refused earlier
                raise OptionError(key, OmegaConf.select(config, key), instead[key])
        check_trainer(config)
    check_given(config, overrides)
    if isinstance(config.optimizer, DictConfig) and any("optimizer." in word for word in overrides):
        check_rate(config)


def check_process(config: DictConfig) -> None:
    """Raise `OptionError` if the seed, the number of threads or `deterministic` is not allowed."""
    check_integer("seed", config.seed, minimum=0, maximum=2**32 - 1)
    if config.threads is not None:
        check_integer("threads", config.threads, maximum=MAX_THREADS)
    check_boolean("deterministic", config.deterministic)


def check_rate(config: DictConfig) -> None:
    """Raise `OptionError` if the learning rate is not allowed."""
    if config.optimizer.get("lr") is not None:
        check_real("optimizer.lr", config.optimizer.lr, minimum=0)


def check_trainer(config: DictConfig) -> int:
    """Check the numbers and names among the options of the trainer; return the number of batches of a step.

    Raises:
        OptionError: one is not allowed.
    """
    for key in ("max_steps", "val_check_interval", "log_every_n_steps"):
        check_integer(f"trainer.{key}", config.trainer.get(key), maximum=MAX_STEPS)
    if config.trainer.get("limit_test_batches") is not None:  # without a batch a run would have no results
        check_real("trainer.limit_test_batches", config.trainer.limit_test_batches, above=0)
    if config.trainer.get("gradient_clip_val") is not None:
        check_real("trainer.gradient_clip_val", config.trainer.gradient_clip_val, minimum=0)
    if "strategy" in config.trainer:
        check_choice("trainer.strategy", config.trainer.strategy, ("auto", "ddp"))
    if "accumulate_grad_batches" not in config.trainer:
        return 1
    return check_integer("trainer.accumulate_grad_batches", config.trainer.accumulate_grad_batches)


def check_given(config: DictConfig, overrides: Sequence[str]) -> None:
    """Check the values of given options by the types and ranges in annotations. Their classes are not imported.

    Args:
        config: the configuration.
        overrides: the words of the command line.

    Raises:
        OptionError: see `check_values`.
    """
    sections: dict[str, dict[str, str]] = {}
    for word in overrides:
        key = word.lstrip("+~").partition("=")[0]
        section, _, name = key.rpartition(".")
        if section not in sections:
            node = OmegaConf.select(config, section) if section else None
            target = node.get("_target_") if isinstance(node, DictConfig) else None
            sections[section] = annotations_of(target) if isinstance(target, str) else {}
        annotation = sections[section].get(name)
        value = OmegaConf.select(config, key, default=MISSING) if annotation else MISSING
        if not annotation or value is MISSING or type(value).__name__ in (annotation, "DictConfig"):
            continue
        hint = type_of(annotation)
        value = OmegaConf.to_container(value) if isinstance(value, ListConfig) else value
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hint, config={"arbitrary_types_allowed": True})
            adapter.validate_python(value, strict=isinstance(value, bool | str))
            for check in () if value is None else checks_of(hint)[1]:
                if check is not check_boolean:  # 1 is true where the constructor does not refuse it
                    check(key, value)
        except PydanticUserError:
            continue  # not a type of plain values
        except ValidationError as error:
            raise _refusal(key, value, hint, error) from None
        except OptionError as error:
            raise OptionError(key, value, _with_null(error.reason, hint, value)) from None
        if isinstance(value, str) and Path in kinds_of(hint):
            check_exists(key, value)


def _refusal(option: str, value: Any, hint: Any, error: ValidationError) -> OptionError:
    """Return the error of an option whose value is of a wrong type."""
    first = error.errors()[0]
    reason = re.sub(r"^(Input|String) should|^Value error, must", "must", first["msg"])
    is_of_item = any(isinstance(part, int) for part in first["loc"])
    return OptionError(option, value, reason if is_of_item else _with_null(reason, hint, value))
