"""What the configuration of a run directory may name, and what `trust=` lets in."""

import copy
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import gyral
from gyral.config.groups import choices, load_choice
from gyral.config.plain import flatten
from gyral.config.trust import DOTTED_NAME, check_names, trust_words, trusted_modules
from gyral.core.errors import OptionError, UserError
from gyral.runs.directory import load_run, resolve
from tests.helpers.found import at_least
from tests.helpers.running import SMALL_COPY, compose_config, invoke

RELEASED = Path(__file__).parents[1] / "runs" / "released"
PLAIN: Any = OmegaConf.to_container(resolve(compose_config(*SMALL_COPY, "model=fs_rum", "scheduler=plateau")))
EXTERNAL = {"_target_": "gyral.cells.external.ExternalCell", "_partial_": True}
CELL = """
import torch
from os import system
from gyral.cells.gru import GRUCell
class MyCell(GRUCell):
    pass
"""


def changed(key: str, value: Any) -> dict[str, Any]:
    """Return a saved configuration with another value."""
    config = OmegaConf.create(copy.deepcopy(PLAIN))
    OmegaConf.update(config, key, value, merge=False, force_add=True)
    saved: Any = OmegaConf.to_container(config)
    return saved


def refusal(config: dict[str, Any], trust: Any = None) -> str:
    with pytest.raises(OptionError) as raised:
        check_names(config, "run", Path("outputs/x"), trust)
    return str(raised.value).removeprefix("run=outputs/x: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1),
        ("optimizer._target_", "torch.optim.Adadelta"),  # of torch, but not in conf/
        ("scheduler._target_", "torch.optim.lr_scheduler.StepLR"),
        ("scheduler", None),
        ("callbacks.pruning", {"_target_": "gyral.training.callbacks.pruning.Pruning"}),  # of a search
        ("model.cell", {**EXTERNAL, "cell": "torch.nn.LSTMCell"}),
        ("logger.wandb", {"_target_": "gyral.training.loggers.wandb_logger", "notes": "costs $5 {a: 1}"}),
    ],
)
def test_names_of_gyral_and_torch_need_no_trust(key: str, value: Any) -> None:
    check_names(changed(key, value), "run", Path())
    assert trust_words(changed(key, value)) == []


@pytest.mark.parametrize(
    "directory", at_least(1, [path.parent for path in sorted(RELEASED.rglob("config.yaml"))]), ids=str
)
def test_runs_of_released_versions_need_no_trust(directory: Path) -> None:
    assert load_run(directory).config.seed


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("model.cell", "gyral.cells.base.RecurrentCell"),  # a class that no file of conf/ has
        ("model.cell", "gyral.tasks.copy.CopyTask"),  # of another role
        ("model", "gyral.cells.gru.GRUCell"),
        ("task", "gyral.tasks.base.os.system"),
        ("task.corpus", "gyral.core.files.write_atomically"),
        ("callbacks.guard", "os.system"),
        ("paper", "builtins.exec"),
    ],
)
def test_other_names_of_gyral_and_python_are_refused_whatever_is_trusted(key: str, name: str) -> None:
    config = changed(key, {"_target_": name})
    assert refusal(config) == f"its configuration names {name} ({key}), which the configuration of a run must not name"
    assert refusal(config, ["torch", "numpy"]) == refusal(config)
    assert trust_words(config) == []


SECTIONS = (
    *("task", "task.corpus", "model", "model.cell", "model.cell.slow", "optimizer", "scheduler", "scheduler.lr_lambda"),
    *("trainer", "trainer.plugins", "callbacks.guard", "logger.wandb", "paper", "extra.deep"),
)


def functions(names: Sequence[str]) -> Iterator[str]:
    """Yield the dotted names of all functions and classes that modules of these names have, whoever defined them."""
    for name in names:
        for attribute, value in vars(importlib.import_module(name)).items():
            if callable(value) and attribute.isidentifier():
                yield f"{name}.{attribute}"


def test_no_function_of_python_torch_or_gyral_may_stand_in_any_section() -> None:
    python = ("builtins", "os", "subprocess", "shutil", "runpy", "pty", "importlib", "pickle", "socket", "ctypes")
    packages = ("torch", "torch.hub", "torch.serialization", "torch.utils.collect_env", "numpy", "hydra.utils", "yaml")
    own = ("gyral.core.files", "gyral.core.locks", "gyral.training.build", "gyral.train", "gyral.runs.directory")
    names = [*functions((*python, *packages, *own, "pytorch_lightning", "pytorch_lightning.callbacks"))]
    assert len(names) > 1000
    for number, key in enumerate(SECTIONS):
        top = key.partition(".")[0]  # alone, because every check reads the whole configuration
        config = {top: changed(key, {"_target_": "pytorch_lightning.Trainer"})[top]}
        section: Any = config
        for part in key.split("."):
            section = section[part]
        everywhere = ("os.system", "builtins.exec", "subprocess.run", "torch.load", "gyral.core.files.write_atomically")
        for name in (*everywhere, *names[number % 5 :: 5]):  # each of the others in two or three sections
            section["_target_"] = name
            if (key, name) != ("trainer", "pytorch_lightning.Trainer"):
                assert refusal(config), name


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("model.cell", {"_target_": "my_cells.MyCell"}, "trust=my_cells"),
        ("model.cell.slow", {"_target_": "my_cells.deep.MyCell"}, "trust=my_cells"),
        ("model.cell", {**EXTERNAL, "cell": "torchrecurrent.MGUCell"}, "trust=torchrecurrent"),
        ("scheduler", {"_target_": "torch.optim.lr_scheduler.Counter"}, "trust=torch"),
        ("scheduler.lr_lambda", {"_target_": "numpy.load"}, "trust=numpy"),
        ("optimizer", {"_target_": "torch.hub.load"}, "trust=torch"),
    ],
)
def test_names_of_other_packages_need_trust(key: str, value: Any, word: str) -> None:
    config = changed(key, value)
    assert refusal(config).endswith(f"is not part of Gyral; write {word} if you trust its author and the run's")
    assert trust_words(config) == [word]


def test_all_modules_that_need_trust_are_named_at_once() -> None:
    config = changed("model.cell", {"_target_": "my_cells.MyCell"})
    config["callbacks"]["own"] = {"_target_": "my_callbacks.Own"}
    assert trust_words(config) == ["trust=[my_cells,my_callbacks]"]
    assert "write trust=[my_cells,my_callbacks] if" in refusal(config, "my_cells")


def test_texts_in_conf_that_are_names_equal_those_that_are_checked() -> None:
    """`check_names` knows that `cell` of one of Gyral's cells names a class; no other option of a section may."""
    found = set()
    for group in ("model", "cell", "task", "optimizer", "scheduler"):
        for choice in at_least(4, choices(group)):
            for key, value in flatten(OmegaConf.to_container(load_choice(group, choice))):
                if isinstance(value, str) and DOTTED_NAME.fullmatch(value) and "." in value:
                    found.add(key.rpartition(".")[2])
    assert found == {"_target_", "cell"}


@pytest.mark.parametrize("value", [3, "", "a b", "os", "gyral", "gyral.tasks", "my_cells,os", ["my_cells", None], {}])
def test_untrustable_modules_are_refused(value: Any) -> None:
    with pytest.raises(OptionError, match=r"^trust="):
        trusted_modules(value)


def test_trust_lets_in_what_a_module_defines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_cells.py").write_text(CELL)
    monkeypatch.syspath_prepend(tmp_path)
    for trust in ("own_cells", ["own_cells", "others"]):
        check_names(changed("model.cell", {"_target_": "own_cells.MyCell"}), "run", Path(), trust)
    for name, origin in (("own_cells.system", "posix.system"), ("own_cells.GRUCell", "gyral.cells.gru.GRUCell")):
        reason = f"which is {origin}, of a module that trust= does not name"
        message = f"its configuration names {name} (model.cell), {reason}"
        assert refusal(changed("model.cell", {"_target_": name}), "own_cells") == message
    assert "cannot be imported" in refusal(changed("model.cell", {"_target_": "own_cells.Nothing"}), "own_cells")


def test_a_run_with_an_own_cell_resumes_with_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_cell.py").write_text(CELL)
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    short = ("trainer.max_steps=2", "trainer.val_check_interval=1", "trainer.log_every_n_steps=1")
    outcome = invoke(*SMALL_COPY, *short, "model=gru", "model.cell._target_=own_cell.MyCell", f"hydra.run.dir={run}")
    assert outcome.status == 0, outcome.err
    assert f"run={run} trust=own_cell split=val" in outcome.out
    assert "trust" not in (run / "config.yaml").read_text()

    (run / "DONE").unlink()
    line = "its configuration names own_cell.MyCell (model.cell), which is not part of Gyral; write trust=own_cell if "
    assert f"resume={run}: {line}" in invoke(f"resume={run}").error
    with pytest.raises(UserError, match="names own_cell"):
        gyral.load(run)

    outcome = invoke(f"resume={run}", "trust=own_cell")
    assert outcome.status == 0, outcome.err
    assert type(gyral.load(run, trust="own_cell").model.recurrent.cells[0]).__name__ == "MyCell"
