"""Products of long and small matrices against torch's, for the sizes at which tiles and shares end."""

import itertools

import pytest
import torch

from gyral.ops.native import library, products
from gyral.ops.operator import KernelUnavailableError


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    try:
        products.PRODUCTS.prepare()
    except KernelUnavailableError as error:
        pytest.skip(str(error))


ROWS = (1, 7, 16, 17, 255, 256, 257, 600)
SIZES = (1, 2, 8, 9, 16, 33, 49, 100)


@pytest.mark.parametrize("dtype", library.DTYPES, ids=str)
def test_products_equal_those_of_torch(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, (depth, columns) in enumerate(itertools.product(SIZES, SIZES)):
        count, gap = ROWS[(index + depth) % len(ROWS)], 3 * (index % 2)
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=1 + index % 3: threads)  # torch itself has one
        rows, gradients = (torch.randn(count, size + gap, dtype=dtype)[:, :size] for size in (depth, columns))
        weight = torch.randn(depth, columns, dtype=dtype)
        tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
        torch.testing.assert_close(products.multiply(rows, weight), rows @ weight, **tolerance)
        torch.testing.assert_close(products.sum_outer(gradients, rows), gradients.T @ rows, **tolerance)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rows, weight, gradients = torch.randn(500, 36), torch.randn(36, 150), torch.randn(500, 150)
    before = torch.get_num_threads()
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append((products.multiply(rows, weight), products.sum_outer(gradients, rows)))
    torch.set_num_threads(before)
    for one in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(one, found[0], strict=True))


def test_a_nan_stays_in_its_row_and_column() -> None:
    rows, weight = torch.randn(40, 20), torch.randn(20, 30)
    rows[7, 3] = torch.nan
    assert products.multiply(rows, weight).isnan().any(1).nonzero().flatten().tolist() == [7]
    assert products.sum_outer(torch.randn(40, 30), rows).isnan().any(0).nonzero().flatten().tolist() == [3]


def test_large_matrices_and_empty_ones_equal_those_of_torch() -> None:
    rows, weight = torch.randn(3, 400), torch.randn(400, 400)
    assert weight.nbytes > products.LARGEST
    assert torch.equal(products.multiply(rows, weight), rows @ weight)
    assert products.multiply(torch.empty(0, 5), torch.randn(5, 2)).shape == (0, 2)
    assert torch.equal(products.sum_outer(torch.empty(0, 5), torch.empty(0, 2)), torch.zeros(5, 2))


@pytest.mark.parametrize("with_fresh", [False, True])
@pytest.mark.parametrize("with_drop", [False, True])
def test_recurrent_gradients_with_and_without_indices_of_starts_are_equal(with_drop: bool, with_fresh: bool) -> None:
    """A GPU has those of all rows that the products read, for which the host needs no index."""
    steps, batch, width, size = 5, 4, 6, 3
    gradients = torch.randn(steps, batch, width, dtype=torch.float64)
    h0, outputs = torch.randn(batch, size, dtype=torch.float64), torch.randn(steps, batch, size, dtype=torch.float64)
    starts = torch.rand(steps, batch) < 0.4
    drop = torch.rand(batch, size, dtype=torch.float64) if with_drop else None
    fresh = torch.randn(size, dtype=torch.float64) if with_fresh else None
    found = products.recurrent_gradient(gradients, h0, outputs, starts, drop, fresh)
    rows = products.products_read(h0, outputs, starts, drop, fresh)
    torch.testing.assert_close(found, gradients.flatten(0, 1).T @ rows.flatten(0, 1))
