"""Groups of parameters: weight decay and the learning rate of dynamics."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.cells.exprnn import DTRIVCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.mamba import MambaCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.nn import layers
from gyral.nn.recurrent import Recurrent
from gyral.tasks.optimization import GroupedOptimizer
from gyral.training import build
from tests.helpers.found import at_least
from tests.helpers.running import SMALL_COPY, build_task, compose_choices, compose_config, invoke


def made() -> Recurrent:
    return Recurrent(partial(MambaCell, hidden_size=4), 3, 2, block="swiglu")


def names(model: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> set[str]:
    known = {id(parameter): name.rpartition(".")[2] for name, parameter in model.named_parameters()}
    return {known[id(parameter)] for parameter in parameters}


def test_one_group_unless_parameters_are_treated_differently() -> None:
    make = partial(torch.optim.AdamW, weight_decay=0.1)
    model = made()
    (group,) = GroupedOptimizer(make)(model).param_groups
    assert group["params"] == list(model.parameters())


def test_only_matrices_decay_and_dynamics_have_their_own_learning_rate() -> None:
    model = made()
    make = GroupedOptimizer(partial(torch.optim.AdamW, lr=0.1, weight_decay=0.3), "matrices", 0.25)
    found = {}
    for group in make(model).param_groups:
        found[group["weight_decay"], group["lr"]] = names(model, group["params"])
    assert found == {
        (0.3, 0.1): {"weight", "weight_ih", "weight_conv", "weight_x", "weight_dt"},  # `weight`: also of norms
        (0.0, 0.1): {"weight", "bias_conv", "D"},
        (0.0, 0.025): {"A_log", "bias_dt"},
    }


def test_no_gain_and_no_bias_of_a_layer_decays_with_the_matrices() -> None:
    """A new parameter of another name is a matrix, to be named here, or is in `vector_parameters` of its cell."""
    matrices = re.compile(r"weight\w*|head_weight|[BC]|selector|dictionary")
    options: dict[str, dict[str, Any]] = {
        "FSRNN": {"fast": partial(LSTMCell, layer_norm=True), "slow": partial(RUMCell, layer_norm=True)},
        "LSTM": {"layer_norm": True, "peepholes": True},
        "Mamba3": {"rank": 2, "state_size": 4, "norm": True},
        **{name: {"layer_norm": True} for name in ("GRU", "RNN", "ONLSTM", "GORU")},
    }
    make = GroupedOptimizer(partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5), "matrices")
    for layer in at_least(40, [name for name in layers.__all__ if name != "Layer"]):
        model = getattr(layers, layer)(3, 8, **options.get(layer, {}))
        decayed, *_ = make(model).param_groups
        paths = {id(parameter): path for path, parameter in model.named_parameters()}
        found = [paths[id(parameter)] for parameter in decayed["params"]]
        is_gain = re.compile("norm|peephole")
        wrong = [p for p in found if is_gain.search(p) or not matrices.fullmatch(p.rpartition(".")[2])]
        assert found, layer
        assert not wrong, (layer, wrong)


def test_a_learning_rate_of_dynamics_alone() -> None:
    groups = GroupedOptimizer(partial(torch.optim.SGD, lr=0.5), dynamics_lr=0.0)(made()).param_groups
    assert [group["lr"] for group in groups] == [0.5, 0.0]


def test_a_decayed_step_changes_only_matrices() -> None:
    model = made()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = GroupedOptimizer(partial(torch.optim.SGD, lr=0.5, weight_decay=0.5), "matrices")(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        is_dynamic = name.endswith(("A_log", "bias_dt"))
        expected = before[name] if parameter.dim() == 1 or is_dynamic else 0.75 * before[name]
        torch.testing.assert_close(parameter.detach(), expected)


@pytest.mark.parametrize(("option", "reason"), [("decay=some", "all, matrices"), ("dynamics_lr=-1", "0")])
def test_wrong_values_are_named(option: str, reason: str) -> None:
    with pytest.raises(OptionError, match=rf"optimizer\.{option}.*{reason}"):
        build_task(f"optimizer.{option}")


@pytest.mark.parametrize("weight_drop", [0, 0.5])
def test_weight_decay_of_kernels_that_are_held_constant_is_refused(weight_drop: float) -> None:
    options = ("model=rum_prime", "model.cell.hidden_size=4", f"model.weight_drop={weight_drop}", "optimizer=adamw")
    build_task(*options, "optimizer.weight_decay=0").configure_optimizers()
    with pytest.raises(OptionError, match=r"^optimizer\.weight_decay=0\.01: must be 0: .* the model holds constant$"):
        build_task(*options).configure_optimizers()


def test_the_options_equal_those_of_every_optimizer() -> None:
    config = compose_config("model=mamba", "model.cell.hidden_size=4")
    for optimizer in at_least(5, compose_choices("optimizer").values()):
        assert {"decay", "dynamics_lr"} <= set(optimizer)
        config.optimizer = {**optimizer, "decay": "matrices", "dynamics_lr": 0.1}
        assert len(build.build_task(config).configure_optimizers().param_groups) == 3


def test_cells_hear_of_every_step_of_the_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    monkeypatch.setattr(DTRIVCell, "after_optimizer_step", lambda self, step, optimizer: heard.append(step))
    options = [word for word in SMALL_COPY if "callbacks" not in word]
    invoke(*options, "model=dtriv", "trainer.max_steps=3", "callbacks=none", f"hydra.run.dir={tmp_path / 'run'}")
    assert heard == [1, 2, 3]
