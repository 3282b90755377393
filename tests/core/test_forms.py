"""The form of saved states: what is compared with a fresh state, and the places that errors name."""

from typing import Any

import pytest
import torch

from gyral.core.forms import FormError, check_form

FRESH = {
    "best": None,
    "count": 0,
    "rate": 0.1,
    "worst": float("inf"),
    "name": "a",
    "mean": torch.zeros(2),
    "ends": [1, 2],
}


@pytest.mark.parametrize(
    "saved",
    [
        FRESH,
        {},
        {"best": "anything", "later": object()},
        {"count": 7, "rate": -3, "worst": float("nan"), "mean": torch.ones(2, dtype=torch.float16)},
        {"count": torch.tensor(7), "ends": (3, 4)},
        {"ends": [0.5, 2]},  # as learning rates that were given as integers
    ],
)
def test_states_of_this_form(saved: Any) -> None:
    check_form("state", saved, FRESH)


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ([], "state is a list, and must be a dictionary"),
        ({"count": -1}, "state.count is -1, and must be an integer from 0 to"),
        ({"count": 0.5}, "state.count is 0.5, and must be an integer"),
        ({"count": True}, "state.count is True, and must be a number"),
        ({"count": "1"}, "state.count is 1, and must be a number"),
        ({"rate": 1e300}, "state.rate is 1e.300, and must be a number of float32"),
        ({"rate": float("nan")}, "state.rate is nan"),
        ({"rate": torch.zeros(2)}, "state.rate is a Tensor, and must be a number"),
        ({"name": 3}, "state.name is 3, and must be text"),
        ({"mean": [0.0, 0.0]}, "state.mean is a list, and must be a tensor"),
        ({"mean": torch.zeros(3)}, r"state.mean is of shape \(3,\), and must be of shape \(2,\)"),
        ({"mean": torch.zeros(2, dtype=torch.complex64)}, "state.mean is of torch.complex64"),
        ({"mean": torch.zeros(2, dtype=torch.int64)}, "state.mean is of torch.int64"),
        ({"mean": torch.zeros(2, device="meta")}, "state.mean is a tensor in another form"),
        ({"ends": [1]}, "state.ends is 1 entries, and must be 2 entries"),
        ({"ends": [1, "2"]}, "state.ends.1 is 2, and must be a number"),
    ],
)
def test_states_of_another_form(saved: Any, message: str) -> None:
    with pytest.raises(FormError, match=message):
        check_form("state", saved, FRESH)


def test_counts_have_no_other_entries() -> None:
    with pytest.raises(FormError, match="state is step, and must be only ready"):
        check_form("state", {"ready": 1, "step": 2}, {"ready": 0})
