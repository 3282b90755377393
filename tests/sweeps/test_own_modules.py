"""A cell of the user's own, in the current directory, trains in every process that a launcher or DDP starts."""

import importlib.util
from pathlib import Path

import pytest

from tests.helpers.running import SMALL_COPY, spawn

# named like a module of Python: those of Python and of packages come first, also in other processes
CELL = """
import torch

class Cell(torch.nn.GRUCell):
    pass
"""
MODEL = """
defaults: [external, _self_]
cell: {cell: leaky.Cell}
"""
LAUNCHERS = {
    "one run": (),
    "launcher=local": ("-m", "seed=1,2"),
    "launcher=joblib": ("-m", "seed=1,2", "launcher=joblib", "hydra.launcher.n_jobs=2"),
    "launcher=slurm": ("-m", "seed=1", "launcher=slurm", "hydra.launcher.cluster=local"),
    "launcher=ray": ("-m", "seed=1", "launcher=ray"),
    "DDP": ("+trainer.strategy=ddp", "trainer.devices=2"),
    "DDP in workers of joblib": ("-m", "seed=1", "launcher=joblib", "+trainer.strategy=ddp", "trainer.devices=2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_an_own_cell_trains_under_every_launcher(launcher: str, tmp_path: Path) -> None:
    words = LAUNCHERS[launcher]
    for engine, package in (("launcher=slurm", "submitit"), ("launcher=ray", "ray")):
        if engine in words and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "leaky.yaml").write_text(MODEL)
    (tmp_path / "leaky.py").write_text(CELL)
    (tmp_path / "json.py").write_text("raise RuntimeError('a module of the user comes before that of Python')\n")
    steps = ("trainer.max_steps=2", "trainer.val_check_interval=1", "trainer.log_every_n_steps=1")
    options = (word for word in SMALL_COPY if "max_steps" not in word)
    ended = spawn("-P", "-m", "gyral", "train", "model=leaky", *options, *steps, *words, cwd=tmp_path, PYTHONPATH=None)
    assert ended.status == 0, ended.err
    assert len([*tmp_path.rglob("DONE")]) == (2 if "seed=1,2" in words else 1)


@pytest.mark.slow
def test_a_module_that_is_trusted_trains_in_a_run_of_somebody_else(tmp_path: Path) -> None:
    """Of the other modules there, none is imported."""
    test_an_own_cell_trains_under_every_launcher("one run", tmp_path)
    (run,) = (path.parent for path in tmp_path.rglob("DONE"))
    (run / "DONE").unlink()
    (run / "leaky.py").write_text(CELL)
    for name in ("cmaes", "fla", "hydra_plugins/evil"):
        (run / f"{name}.py").parent.mkdir(exist_ok=True)
        (run / f"{name}.py").write_text("open('CANARY', 'w')\n")
    (run / "conf").mkdir()
    refused = spawn("-P", "-m", "gyral", "train", "resume=.", cwd=run)
    assert "trust=leaky" in refused.error
    assert "conf/ and the modules of the current directory are not used" in refused.err
    ended = spawn("-P", "-m", "gyral", "train", "resume=.", "trust=leaky", cwd=run)
    assert ended.status == 0, ended.err
    assert not (run / "CANARY").exists()
