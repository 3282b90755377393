"""Dropout of sequences and of weights."""

import threading
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gyral.cells.base import RecurrentCell
from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.nn.dropout import SequenceDropout
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

STEPS, BATCH, X, N = 5, 3, 4, 6
CELLS: dict[str, Any] = {
    "rum": partial(RUMCell, hidden_size=N, zoneout=0.3),
    "lstm": partial(LSTMCell, hidden_size=N, zoneout=0.3, zoneout_cell=0.3, recurrent_dropout=0.3),
    "plain lstm": partial(LSTMCell, hidden_size=N),
    "goru": partial(GORUCell, hidden_size=N, zoneout=0.3),
    "fs_rnn": partial(FSRNNCell, hidden_size=N, fast=LSTMCell, slow=RUMCell, dropout=0.3),
}


def make(name: str, backend: str) -> Recurrent:
    options: dict[str, Any] = {"bidirectional": True, "dropout": 0.3, "weight_drop": 0.5}
    return Recurrent(CELLS[name], X, 2, backend=backend, **options).double()


@for_each("locked", [False, True])
def test_dropout_of_a_sequence_drops_others_at_each_step_or_the_same(locked: bool) -> None:
    dropout = SequenceDropout(0.25, locked)
    vectors = torch.full((40, 30, 50), 3.0)
    dropped = dropout(vectors)
    assert set(dropped.unique().tolist()) == {0.0, 4.0}
    assert (dropped == dropped[:1]).all().item() == locked
    assert not (dropped == dropped[:, :1]).all(), "rows are drawn for themselves"
    draws = 30 * 50 * (1 if locked else 40)
    assert abs((dropped == 0).double().mean() - 0.25) < 4 * (0.25 * 0.75 / draws) ** 0.5
    assert dropout.eval()(vectors) is vectors
    assert SequenceDropout(0.0).train()(vectors) is vectors


@for_each("name", CELLS)
def test_one_seed_gives_the_same_noise_on_every_backend(name: str) -> None:
    reference, fused = (make(name, backend) for backend in ("reference", "fused"))
    fused.load_state_dict(reference.state_dict())
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    results = []
    for model in (reference, fused):
        torch.manual_seed(3)
        outputs, _ = model(inputs)
        results.append([outputs, torch.rand(1), *torch.autograd.grad(outputs.sum(), list(model.parameters()))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    assert not torch.equal(reference(inputs)[0], reference(inputs)[0])


@for_each("given", [("rum", "fused"), ("plain lstm", "reference")])
def test_threads_drop_weights_independently(given: tuple[str, str]) -> None:
    """Each thread computes many sequences with one set of dropped weights; others draw theirs meanwhile."""
    name, backend = given
    cell: RecurrentCell = CELLS[name](X)
    cell.zoneout = 0.0
    model = Recurrent(lambda _: cell, X, weight_drop=0.5, backend=backend).double()
    inputs = torch.randn(STEPS, 1, X, dtype=torch.float64).expand(-1, BATCH, -1).contiguous()
    found: list[Tensor] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            for _ in range(8):
                outputs, _ = model(inputs)
                outputs.sum().backward()
                found.append(outputs.detach())
        except Exception as error:  # a thread's error would be lost
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len({outputs[-1, 0, 0].item() for outputs in found}) == len(found) == 32
    drops = [module for module in model.modules() if type(module).__name__ == "WeightDrop"]
    assert not any(drop._held for drop in drops)


def test_dropped_weights_are_the_same_when_a_checkpoint_runs_again() -> None:
    model = make("rum", "fused")
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    gradients = []
    for run in (model, lambda given: checkpoint(model, given, use_reentrant=False)):
        torch.manual_seed(3)
        gradients.append(torch.autograd.grad(run(inputs)[0].sum(), list(model.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
