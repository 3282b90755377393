"""Dynamic evaluation is the recursion of the paper, scores before it learns, and leaves the model alone."""

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.config import offers
from gyral.core.errors import OptionError
from gyral.models.sequence import SequenceModel
from gyral.tasks.copy import CopyTask
from gyral.tasks.dynamic_evaluation import DynamicEvaluation
from gyral.tasks.text import use_dynamic_evaluation
from tests.helpers.running import build_task, invoke, small_text

ON_LSTM = ("model=on_lstm", "model.cell.hidden_size=6", "model.cell.chunk_size=2", "model.embedding_size=4")
TEXT = ("task=text_file", *ON_LSTM)


@pytest.fixture
def model() -> SequenceModel:
    torch.manual_seed(1)
    options = ("model.weight_drop=0.5", "model.output_dropout=0.5", "model.input_dropout=0.5", "model.num_layers=2")
    return build_task(*TEXT, *options).model.double().train()


@pytest.fixture
def tokens(model: SequenceModel) -> np.ndarray:
    return np.random.default_rng(2).integers(model.vocabulary_size, size=123).astype(np.uint8)


def losses_and_gradients(model: SequenceModel, tokens: np.ndarray, rows: int, window: int) -> Any:
    """Yield loss, number of predictions and gradients of consecutive windows of a text whose rows are equally long."""
    each = (len(tokens) - 1) // rows
    inputs = torch.from_numpy(tokens[: each * rows].astype(int)).view(rows, each)
    targets = torch.from_numpy(tokens[1 : each * rows + 1].astype(int)).view(rows, each)
    state: Any = None
    for start in range(0, each, window):
        part = slice(start, start + window)
        logits, state = model(inputs[:, part], state)
        state = tuple(type(one)(*(leaf.detach() for leaf in one)) for one in state)
        loss = F.cross_entropy(logits.flatten(0, 1), targets[:, part].flatten())
        yield loss.item(), targets[:, part].numel(), torch.autograd.grad(loss, list(model.parameters()))


def expected_loss(
    model: SequenceModel, train: np.ndarray, tokens: np.ndarray, rule: str, lr: float, decay: float
) -> float:
    """Return the loss of dynamic evaluation in windows of 7, parameter by parameter."""
    model = copy.deepcopy(model).eval()
    parameters = list(model.parameters())
    trained = [parameter.detach().clone() for parameter in parameters]
    rates: list[Any] = [lr] * len(parameters)
    decays: list[Any] = [decay] * len(parameters)
    if rule == "rms":
        squares: list[Tensor] = [torch.zeros_like(parameter) for parameter in parameters]
        windows = 0
        for _, _, gradients in losses_and_gradients(model, train, 100, 7):
            squares = [square + gradient**2 for square, gradient in zip(squares, gradients, strict=True)]
            windows += 1
        roots = [(square / windows).sqrt() for square in squares]
        mean = sum(root.mean().item() for root in roots) / len(roots)
        rates = [lr / (root + 2e-5) for root in roots]
        decays = [(decay * root / mean).clamp(max=1) for root in roots]
    total, count = 0.0, 0
    for loss, number, gradients in losses_and_gradients(model, tokens, 1, 7):
        total, count = total + loss * number, count + number
        with torch.no_grad():
            for parameter, old, gradient, rate, factor in zip(
                parameters, trained, gradients, rates, decays, strict=True
            ):
                parameter += factor * (old - parameter) - rate * gradient
    return total / count


@pytest.mark.parametrize(("rule", "lr", "decay"), [("sgd", 0.7, 0.05), ("rms", 0.01, 0.3)])
def test_dynamic_evaluation_equals_the_equations_of_the_paper(
    model: SequenceModel, tokens: np.ndarray, rule: str, lr: float, decay: float
) -> None:
    train = np.random.default_rng(3).integers(model.vocabulary_size, size=100 * 21 + 1).astype(np.uint8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = expected_loss(model, train, tokens, rule, lr, decay)
    with torch.inference_mode():  # as in a test by Lightning
        found = DynamicEvaluation(rule, lr, decay, window=7).evaluate(model, train, tokens)
    assert found["loss"] == pytest.approx(expected, rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["bits"] == pytest.approx(found["loss"] / math.log(2))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_without_steps_it_equals_the_usual_loss_and_with_steps_it_learns_repetition(
    model: SequenceModel, tokens: np.ndarray
) -> None:
    still = DynamicEvaluation("sgd", lr=1e-12, decay=0.0).evaluate(model, tokens, tokens)["loss"]
    with torch.no_grad():
        logits, _ = model.eval()(torch.from_numpy(tokens[None, :-1].astype(int)))
    assert still == pytest.approx(F.cross_entropy(logits[0], torch.from_numpy(tokens[1:].astype(int))).item(), rel=1e-6)
    repeated = np.tile(tokens[:4], 80)
    assert DynamicEvaluation("sgd", lr=1.0).evaluate(model, repeated, repeated)["loss"] < 0.7 * still


def test_weights_without_a_gradient_stay_finite(model: SequenceModel) -> None:
    model = copy.deepcopy(model).float()
    tokens = np.tile(np.arange(3, dtype=np.uint8), 60)  # the embeddings of other tokens have no gradient
    assert math.isfinite(DynamicEvaluation("rms", epsilon=1e-300).evaluate(model, tokens, tokens)["loss"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        list(model.parameters())[-1][0] = 1e4  # the bias of a token: all others have the probability 0
    found = DynamicEvaluation("rms").evaluate(model, np.zeros_like(tokens), tokens)
    assert 709 < found["loss"] < math.inf
    assert found["perplexity"] == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "adam"}, "rule=adam: must be one of sgd, rms"),
        ({"rule": "sgd", "lr": 0}, "lr=0: must be a finite number > 0"),
        ({"rule": "sgd", "decay": 1.5}, "decay=1.5: must be a finite number ≥ 0 and ≤ 1"),
        ({"rule": "rms", "window": 0}, "window=0: must be an integer ≥ 1"),
        ({"rule": "rms", "epsilon": 0}, "epsilon=0: must be a finite number > 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        use_dynamic_evaluation(build_task(*TEXT), None, **options)
    assert str(raised.value) == message


def test_the_command_names_the_whole_option(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^dynamic\.lr=0: must be"):
        raise offers.located(OptionError("lr", 0, "must be positive"), {"dynamic.rule": "sgd", "dynamic.lr": "0"})
    assert "dynamic" not in CopyTask.evaluations


@pytest.mark.slow
def test_test_and_command_report_dynamic_evaluation(tmp_path: Path) -> None:
    arguments = (*small_text(tmp_path), "model=gru", "task.dynamic=rms", "trainer.max_steps=2")
    outcome = invoke(*arguments, f"hydra.run.dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    again = invoke(f"run={tmp_path / 'run'}", "dynamic.rule=rms", "dynamic.lr=0.01", entry="evaluate")
    assert again.status == 0, again.err
    results = json.loads((tmp_path / "run" / "DONE").read_text())
    printed = {name: float(value) for name, value in re.findall(r"test (.*loss).* +│ ([\d.]+)", again.out)}
    assert printed["loss"] == pytest.approx(results["test/loss"], abs=1e-3)
    assert printed["dynamic loss"] != pytest.approx(results["test/dynamic_loss"], abs=1e-3), "not another rate"
