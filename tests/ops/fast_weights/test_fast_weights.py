"""`gyral.ops.fast_weights`; test_contract.py has what every operator keeps."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.ops.fast_weights import KINDS, OPERATOR, fast_weights
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import made_during
from tests.ops.contract import FLAG, Contract, Named, choices

compiled = skip_without(OPERATOR)


def drawn(
    steps: int,
    batch: int,
    size: int,
    *,
    kind: str,
    inner_steps: int = 2,
    keep: str = "mask",
    drop: bool = True,
    norm: bool = True,
    starts_empty: bool = False,
    epsilon: float = 1e-5,
    decay: float = 0.95,
    rate: float = 0.5,
) -> tuple[Named, Named]:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    def mask(*shape: int) -> Tensor:
        return (torch.rand(shape) < 0.3).double()

    parts, products = (7 * size, 4 * size) if kind == "weinet" else (size, size)
    memory = 0.3 * draw(batch, size, size)
    mean = torch.tensor(0.2, dtype=torch.float64)
    tensors = {
        "x": draw(steps, batch, 3),
        "w_ih": draw(parts, 3),
        "b": draw(parts),
        "w_hh": draw(products, size) / size**0.5,
        "norm": draw(2, size) if norm or kind != "weinet" else None,
        "h0": draw(batch, size),
        "a0": None if starts_empty else memory,
    }
    options = {
        "kind": kind,
        "keep": {"none": None, "mask": mask(steps, batch, size), "mean": mean}[keep],
        "drop": mask(batch, size) * 1.5 if drop else None,
        "epsilon": epsilon,
        "decay": decay,
        "rate": rate,
        "inner_steps": 0 if kind == "weinet" else inner_steps,
    }
    return tensors, options | ({"a0": torch.zeros_like(memory)} if starts_empty else {})


def run(norm: Tensor | None = None, **given: Any) -> tuple[Tensor, Tensor, Tensor]:
    return fast_weights(norm=norm, **given)


CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=[{"kind": kind} for kind in KINDS],
    others=[((100, 3, 6), {"kind": kind}) for kind in KINDS],  # several chunks
    random=choices(
        *([1, 2, 3, 5, 9, 20], [0, 1, 2, 7, 8, 9, 17], [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65]),
        kind=KINDS,
        inner_steps=[1, 2, 3],
        keep=["none", "mask", "mean"],
        decay=[0.95, 1.0, 0.3, 0.0],
        rate=[0.5, 0.05, 0.0],
        epsilon=[1e-5, 0.1],
        **dict.fromkeys(("drop", "norm", "starts_empty"), FLAG),
    ),
    few=24,
    many=1200,
    small=(40, 19, 13),
    tiny=(3, 2, 4),
    states=["h0", "a0"],
    inputs=["x"],
    exact=1e-10,
    single=5e-4,
    typical=1.5,
    is_smooth=lambda options: options["kind"] != "relu",  # ReLU has kinks
    loops=True,
)

every_kind = for_each("kind", KINDS)


@every_kind
def test_every_remainder_of_the_vectors_and_chunks_of_few_steps(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gyral.ops.fast_weights.chunk_size", lambda kind, size: 2)
    for size in (*range(1, 19), 31, 33, 65):
        CONTRACT.case((3, 2, size), {"kind": kind, "inner_steps": 1}, size % 2 == 0, size % 3 == 0).check()


@for_each("chunk", [1, 3, 5])
def test_random_options_with_chunks_of_any_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gyral.ops.fast_weights.chunk_size", lambda kind, size: chunk)
    CONTRACT.check_random(range(chunk, chunk + 4))


@every_kind
def test_few_matrices_are_kept(kind: str) -> None:
    case = CONTRACT.case((64, 2, 32), {"kind": kind}, False, False)
    shapes = made_during(lambda: case.values(leaves=case.leaves()))
    matrices = [shape[0] / (2 * 32 * 32) for shape in shapes if len(shape) == 1]  # of a row
    assert [count for count in matrices if count >= 1 and count.is_integer()] in ([2], [4])  # for 64 steps


def test_fast_weights_without_an_inner_step_are_refused() -> None:
    """The kernel would write beyond its memory."""
    given, options = CONTRACT.draw(*CONTRACT.tiny, **CONTRACT.kinds[0])
    with pytest.raises(ValueError, match=r"^inner_steps is 0, must be at least 1$"):
        fast_weights(**given, **{**options, "kind": "relu", "inner_steps": 0})
