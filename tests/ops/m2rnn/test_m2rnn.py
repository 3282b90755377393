"""`gyral.ops.m2rnn`; test_contract.py has what every operator keeps."""

import pytest
import torch

from gyral.ops.m2rnn import m2rnn
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.ops.contract import Contract, Named, each

compiled = skip_without(m2rnn)


def drawn(
    steps: int, batch: int, groups: int, heads: int, key: int, value: int, clip: float | None
) -> tuple[Named, Named]:
    """Return q, k, v, f, W and the memory before the first step."""
    q, k = (torch.randn(steps, batch, groups, key, dtype=torch.float64) for _ in range(2))
    tensors = {
        "q": q,
        "k": k,
        "v": torch.randn(steps, batch, heads, value, dtype=torch.float64),
        "forget": torch.rand(steps, batch, heads, dtype=torch.float64),
        "weight": torch.randn(heads, value, value, dtype=torch.float64) / value**0.5,
        "s0": torch.randn(batch, heads, key, value, dtype=torch.float64),
    }
    return tensors, {"clip": clip}


CONTRACT = Contract(
    run=m2rnn,
    draw=drawn,
    kinds=each(clip=[None, 0.5]),
    # T, B, G, H, K, V: one number, whole chunks of 32 steps and some more, keys of each head and shared ones, sizes
    # around those of one vector and of several, and strips of 32 rows
    sizes=[
        *((1, 1, 1, 1, 1, 1), (7, 3, 1, 3, 3, 5), (32, 2, 2, 2, 16, 16), (70, 2, 1, 2, 9, 17)),
        *((33, 1, 3, 3, 65, 25), (5, 2, 1, 2, 12, 50), (5, 1, 1, 1, 7, 65)),
    ],
    small=(35, 19, 1, 2, 5, 3),
    tiny=(3, 2, 1, 2, 2, 1),
    states=["s0"],
    single=5e-5,
    loops=True,
    is_smooth=lambda kind: kind["clip"] is None,
)


@for_each("chunk", [1, 5, 100])
def test_results_do_not_depend_on_the_size_of_a_chunk(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("gyral.ops.m2rnn.CHUNK", chunk)
    CONTRACT.case((23, 2, 1, 2, 5, 18), {"clip": 0.5}).check()


def test_clipping_turns_no_nan_into_a_number() -> None:
    for name in CONTRACT.case(CONTRACT.tiny, {"clip": 0.5}).tensors:
        case = CONTRACT.case((3, 1, 1, 1, 2, 3), {"clip": 0.5}, False, False)
        case.tensors[name].view(-1)[0] = torch.nan
        assert case.results(dtype=torch.float32)["gradient of s0"].isnan().any(), name
