"""The cells of published recurrences against their authors' code (golden tensors)."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from gyral.cells.mamba3 import add_up
from tests.helpers.goldens import FAMILIES, OPERATORS, OPTIONAL, UnsupportedGoldenError, check, find

DELTA = (
    *("delta_net", "delta_net_negative", "delta_net_no_conv", "delta_product_3", "gated_delta_net"),
    *("gated_delta_net_negative", "gated_delta_product_2", "gdn2", "kda", "kda_lower_bound_negative"),
)
MEMORIES = ("gla", "hgrn2", "mamba2", "mamba2_groups_no_norm", "mlstm", "mlstm_large", "rwkv7")
MAMBA3 = ("mamba3_siso", "mamba3_siso_norm", "mamba3_mimo")
DIAGONAL = ("lru", "mamba1", "min_gru", "min_lstm", "rg_lru", "rg_lru_reset", "s4d", "s5", "s5_bilinear")
TRACKING = ("own_parallel_rum", "own_parallel_rum_double_angle", "pd_ssm", "slice_block_diagonal")
NONLINEAR = ("dtriv", "exprnn", "slstm")
FILES = (*DELTA, *MEMORIES, *DIAGONAL, *TRACKING, *NONLINEAR, *MAMBA3)


@pytest.mark.parametrize("name", [*FILES, *OPERATORS])
def test_every_form_agrees_with_the_authors_code(golden: Path, name: str) -> None:
    assert check(golden / "recurrences" / f"{name}.npz") < 1e-10


def test_every_family_has_a_file() -> None:
    assert {find(name) for name in FILES} == set(FAMILIES.values())


@pytest.mark.parametrize("name", [*OPTIONAL, "unknown", "lruu", "op_unknown"])
def test_files_without_a_cell_are_refused_by_name(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / name, inputs=np.zeros((2, 1, 3)), outputs=np.zeros((2, 1, 3)))
    with pytest.raises(UnsupportedGoldenError, match=name):
        check(tmp_path / f"{name}.npz")


def test_a_wrong_number_is_an_error(golden: Path, tmp_path: Path) -> None:
    with np.load(golden / "recurrences" / "min_gru.npz") as file:
        arrays = dict(file)
    arrays["grad.inputs"][3, 1, 2] += 1e-6
    np.savez(tmp_path / "min_gru", **arrays)
    assert check(tmp_path / "min_gru.npz") > 1e-8


@pytest.mark.parametrize("starts", [None, torch.zeros(20_000, 1, dtype=torch.bool)])
def test_the_angles_of_mamba3_keep_their_digits_over_long_sequences(starts: torch.Tensor | None) -> None:
    turns, first = 2 * torch.rand(20_000, 1, 1, 2), torch.zeros(1, 1, 2)
    distance = add_up(turns, first, starts) - add_up(turns.double(), first.double(), starts)
    assert torch.remainder(distance + 0.5, 2 * math.pi).sub(0.5).abs().max() < 1e-6
