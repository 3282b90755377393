"""Command lines that are wrong in some way, drawn from the real configuration tree."""

import functools
from typing import Any, NamedTuple

from hypothesis import strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from gyral.config.groups import choices
from gyral.config.plain import flatten
from tests.helpers.running import SMALL, SMALL_COPY, SMALL_RECALL, SMALL_TEXT, compose_config
from tests.helpers.sequences import sequences_file
from tests.helpers.slices import listed

QUICK = ("trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.log_every_n_steps=1")
GROUPS = (
    "model",
    "task",
    "optimizer",
    "scheduler",
    "trainer",
    "callbacks",
    "logger",
    "experiment",
    "debug",
    "launcher",
)
SIZES = ("task.train_size", "task.val_size", "task.test_size")
OTHERS = tuple(word for word in SMALL if not word.startswith(SIZES))
# runs of a second, one for each class of tasks and other choices of the groups
RUNS: tuple[tuple[str, ...], ...] = (
    SMALL_COPY,
    (*SMALL_COPY, "model=fs_rum", "scheduler=plateau", "callbacks=averaging", "optimizer=sgd"),
    (*SMALL_COPY, "model=rum", "callbacks=cosines"),
    (*SMALL_COPY, "model=external", "scheduler=multistep", "callbacks=norms", "optimizer=adam"),
    (*SMALL_COPY, "model=goru", "callbacks=norms", "optimizer=adagrad", "trainer=ddp", "trainer.devices=1"),
    (*SMALL_RECALL, "model=eurnn", "scheduler=cosine", "optimizer=adamw"),
    (*SMALL_COPY, "model=on_lstm", "model.cell.chunk_size=2", "scheduler=piecewise"),
    (*SMALL_TEXT, "model=lstm", "callbacks=positions", "logger=tensorboard"),
    (*SMALL, "task=adding", "task.length=4", "model=weinet"),
    (*OTHERS, "task=digits", "model=gru"),
    (*OTHERS, "task=sequences", "model=fast_weights", f"task.data={sequences_file()}"),
    *listed("COMMAND_LINES", "faults"),
)
# Texts of Hydra's grammar: wrong types, huge, negative, not numbers, null, texts, containers, references
VALUES = (
    *("-1", "0", "1", "2", "3", "0.5", "-0.5", "1.5", "1e-30", "1e20", "1e308", "1e400", "nan", "inf", "-inf"),
    *(
        "100000",
        "1000000",
        "1000000000",
        "10000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "1" + "0" * 30,
    ),
    *("null", "true", "false", "abc", "''", "' '", "é", "'\\n'", "a" * 3000, "/nowhere/file", ".", "/dev/null"),
    *("[]", "{}", "[1,2]", "[null]", "[[1]]", "{a:1}", "{_target_:os.getcwd}", "[a,b,c]"),
    *("${seed}", "${nothing}", "${task}", "${model.cell}", "${now:%Y}", "${oc.env:NOTHING}", "${", "???"),
    *("'${seed}'", "'it''s'", "1,2", "a=b", "-", "~", "+", "=", "@", "*", "--info=x"),
)
TARGETS = (
    *("gyral.cells.rum.RUMCel", "gyral.cells.rum", "gyral", "nothing.at.all", "os.getcwd", "torch.nn.GRUCell"),
    *("gyral.tasks.copy.CopyTask", "gyral.models.sequence.SequenceModel", "torch.optim.Adam", "builtins.dict"),
    *(
        "pytorch_lightning.Trainer",
        "gyral.training.callbacks.checkpoints.Checkpoints",
        "''",
        "null",
        "3",
        "[a]",
        "{a:1}",
        ".",
        "a.",
    ),
    *("torch.optim.lr_scheduler.StepLR", "gyral.data.text.corpora.load", "math.pi", "typing.Any", "gyral.core.errors"),
)


class CommandLine(NamedTuple):
    """Words of a command line, and those among them that were drawn."""

    words: tuple[str, ...]
    drawn: tuple[str, ...]


@functools.cache
def options_of(run: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of the configuration of a run, by their keys."""
    config = compose_config(*run)
    return {key: value for key, value in flatten(plain(config)) if key.partition(".")[0] != "hydra"}


def plain(config: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(config)


def sections_of(run: tuple[str, ...]) -> list[str]:
    """Return the keys of all sections of the configuration of a run."""
    parts = [key.split(".") for key in options_of(run)]
    return sorted({".".join(names[:count]) for names in parts for count in range(1, len(names))})


@strategies.composite
def command_lines(draw: DrawFn) -> CommandLine:
    """Return a command line with one to three words that are probably wrong."""
    run = (*draw(strategies.sampled_from(RUNS)), *QUICK)
    words = draw(strategies.lists(wrong_words(run), min_size=1, max_size=3, unique=True))
    return CommandLine((*run, *words), tuple(words))


def wrong_words(run: tuple[str, ...]) -> SearchStrategy[str]:
    """Return words that are probably wrong in the configuration of a run."""
    keys = strategies.sampled_from(sorted(options_of(run)))
    sections = strategies.sampled_from(sections_of(run))
    values = strategies.sampled_from(VALUES)
    targets = strategies.sampled_from([f"{section}._target_" for section in ("", *sections_of(run))])
    misspelled = strategies.builds(misspell, keys, strategies.integers(0, 50), strategies.sampled_from("aex_"))
    others = strategies.sampled_from([name for group in GROUPS for name in (f"{group}={c}" for c in choices(group))])
    plus = strategies.sampled_from(["", "", "", "+", "++"])
    return strategies.one_of(
        *[strategies.builds(lambda sign, key, value: f"{sign}{key}={value}", plus, keys, values)] * 6,
        strategies.builds(lambda section, value: f"{section}={value}", sections, values),
        strategies.builds(lambda sign, key, value: f"{sign}{key}={value}", plus, misspelled, values),
        strategies.builds(
            lambda sign, key, value: f"{sign}{key}={value}", plus, targets, strategies.sampled_from(TARGETS)
        ),
        strategies.builds(lambda section, key, value: f"+{section}.{key}={value}", sections, misspelled, values),
        strategies.builds(lambda key: f"~{key}", strategies.one_of(keys, sections)),
        strategies.builds(lambda group, value: f"{group}={value}", strategies.sampled_from(GROUPS), values),
        strategies.builds(lambda key: f"--{key}", misspelled),
        others,
        values,
    )


def misspell(key: str, place: int, letter: str) -> str:
    """Return a key with a letter in place of another."""
    place %= len(key)
    return f"{key[:place]}{letter}{key[place + 1 :]}"
