"""A memory read without being built, against the matrix built step by step."""

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from gyral.ops.fast_weights import FastWeights

BATCH, SIZE = 3, 4
CONSTANTS = [(0.95, 0.5), (1.0, 1.0), (0.3, 2.5), (0.0, 0.7), (0.9, 0.0)]

every_constant = pytest.mark.parametrize(
    ("decay", "rate"), CONSTANTS, ids=[f"decay {d} rate {r}" for d, r in CONSTANTS]
)
with_and_without_initial = pytest.mark.parametrize("empty", [True, False], ids=["empty", "initial"])


def random_initial(empty: bool) -> Tensor:
    shape = BATCH, SIZE, SIZE
    return torch.zeros(shape, dtype=torch.float64) if empty else torch.randn(shape, dtype=torch.float64)


def random_vectors(count: int) -> Tensor:
    return torch.randn(count, BATCH, SIZE, dtype=torch.float64)


def built(initial: Tensor, vectors: Tensor, decay: float, rate: float) -> np.ndarray:
    """A_t = λ A_{t−1} + η h_t h_tᵀ, entry by entry."""
    memory = initial.detach().numpy().copy()
    for vector in vectors.detach().numpy():
        for row in range(len(memory)):
            memory[row] = decay * memory[row] + rate * np.outer(vector[row], vector[row])
    return memory


@with_and_without_initial
@every_constant
@pytest.mark.parametrize("steps", [1, 2, 9])  # fewer and more than N
def test_read_is_the_built_matrix_times_the_query(steps: int, decay: float, rate: float, empty: bool) -> None:
    initial, vectors, queries = random_initial(empty), random_vectors(steps), random_vectors(2)
    memory = FastWeights(steps, initial, decay, rate)
    for count in range(steps + 1):
        expected = built(initial, vectors[:count], decay, rate)
        for query in queries:  # the second is not disturbed by the first
            wanted = np.einsum("bij,bj->bi", expected, query.numpy())
            np.testing.assert_allclose(memory.read(query), wanted, rtol=0, atol=1e-12)
        if count:
            np.testing.assert_allclose(memory.matrix(), expected, rtol=0, atol=1e-12)
        if count < steps:
            assert torch.equal(memory.append(vectors[count]), vectors[count])


@with_and_without_initial
@every_constant
def test_matrix_after_each_rows_own_count(decay: float, rate: float, empty: bool) -> None:
    steps = 6
    initial, vectors = random_initial(empty), random_vectors(steps)
    memory = FastWeights(steps, initial, decay, rate)
    for vector in vectors:
        memory.append(vector)
    for counts in ([1, 6, 3], [6, 6, 6], [2, 1, 5]):
        matrices = memory.matrix(torch.tensor(counts))
        for row, count in enumerate(counts):
            expected = built(initial, vectors[:count], decay, rate)[row]
            np.testing.assert_allclose(matrices[row], expected, rtol=0, atol=1e-12)
    assert torch.equal(memory.matrix(), memory.matrix(torch.tensor([6, 6, 6])))


def test_rows_do_not_interact() -> None:
    vectors, initial, query = random_vectors(3), random_initial(empty=False), random_vectors(1)[0]
    whole = FastWeights(3, initial, 0.9, 0.5)
    alone = FastWeights(3, initial[1:2], 0.9, 0.5)
    for vector in vectors:
        whole.append(vector)
        alone.append(vector[1:2])
    torch.testing.assert_close(whole.read(query)[1:2], alone.read(query[1:2]), rtol=0, atol=1e-14)


def test_stored_vectors_equal_the_appended_vectors() -> None:
    vector, query = random_vectors(2)
    memory = FastWeights(1, random_initial(empty=True), 0.9, 0.5)
    memory.append(vector)
    before = memory.read(query)
    vector.zero_()
    assert torch.equal(memory.read(query), before)


# ---------------------------------------------------------------- gradients


def recurrence(initial: Tensor, hidden: Tensor, drives: Tensor) -> tuple[Tensor, Tensor]:
    """Append each hidden vector, and read twice for the next: outputs (T, B, N), and the final matrix."""
    memory = FastWeights(len(drives), initial, 0.8, 0.6)
    outputs = []
    for drive in drives:
        hidden = memory.append(hidden)
        first = torch.tanh(drive + memory.read(torch.sin(hidden + drive)))
        hidden = torch.tanh(drive + memory.read(first))
        outputs.append(hidden)
    return torch.stack(outputs), memory.matrix()


def built_recurrence(initial: Tensor, hidden: Tensor, drives: Tensor) -> tuple[Tensor, Tensor]:
    """The same with the matrix built at each step, which autograd differentiates."""
    memory = initial
    outputs = []
    for drive in drives:
        memory = 0.8 * memory + 0.6 * hidden.unsqueeze(2) * hidden.unsqueeze(1)
        first = torch.tanh(drive + (memory * torch.sin(hidden + drive).unsqueeze(1)).sum(2))
        hidden = torch.tanh(drive + (memory * first.unsqueeze(1)).sum(2))
        outputs.append(hidden)
    return torch.stack(outputs), memory


def leaves(steps: int = 5, empty: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return initial matrix, initial hidden vector and drives; all require gradients."""
    tensors = random_initial(empty), random_vectors(1)[0], random_vectors(steps)
    return tuple(tensor.requires_grad_() for tensor in tensors)


@with_and_without_initial
def test_gradients_through_a_sequence(empty: bool) -> None:
    assert gradcheck(recurrence, leaves(3, empty), eps=1e-6, atol=1e-8, rtol=1e-6)


def test_gradients_without_the_gradient_of_the_initial_matrix() -> None:
    initial, hidden, drives = leaves(3)
    for given in (torch.zeros_like(initial), initial.detach()):
        assert gradcheck(lambda *others, a=given: recurrence(a, *others), (hidden, drives), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 5, 11])
def test_gradients_equal_the_built_matrix(steps: int) -> None:
    given = leaves(steps)
    actual, expected = recurrence(*given), built_recurrence(*given)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    cotangents = [torch.randn_like(value) for value in expected]
    torch.testing.assert_close(
        torch.autograd.grad(actual, given, cotangents),
        torch.autograd.grad(expected, given, cotangents),
        rtol=0,
        atol=1e-11,
    )


def test_queries_that_have_nothing_to_do_with_the_vectors() -> None:
    def read(initial: Tensor, vectors: Tensor, queries: Tensor) -> Tensor:
        memory = FastWeights(len(vectors), initial, 0.8, 0.6)
        reads = []
        for vector, query in zip(vectors, queries, strict=True):
            memory.append(vector)
            reads.append(memory.read(query))
        return torch.stack(reads)

    tensors = random_initial(empty=False), random_vectors(3), random_vectors(3)
    inputs = tuple(tensor.requires_grad_() for tensor in tensors)
    assert gradcheck(read, inputs, eps=1e-6, atol=1e-8, rtol=1e-6)


def test_vectors_have_their_gradient_where_the_query_has_none() -> None:
    vector, query = random_vectors(2)
    vector.requires_grad_()
    memory = FastWeights(1, random_initial(empty=True), 0.8, 0.6)
    memory.append(vector)
    read = memory.read(query)
    cotangent = torch.randn_like(read)
    expected = torch.autograd.grad(0.6 * vector * (vector * query).sum(1, keepdim=True), vector, cotangent)
    torch.testing.assert_close(torch.autograd.grad(read, vector, cotangent), expected, rtol=0, atol=1e-12)


Graph = tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...], tuple[Tensor, ...]]


@pytest.fixture
def graph() -> Graph:
    """Give a function that asks one graph for gradients, its leaves, and all their gradients by the built matrix."""
    given = leaves()
    expected = built_recurrence(*given)
    cotangents = [torch.randn_like(value) for value in expected]
    truth = torch.autograd.grad(expected, given, cotangents)
    values = recurrence(*given)

    def ask(*wanted: Tensor, weight: float = 1.0) -> tuple[Tensor, ...]:
        weighted = [weight * cotangent for cotangent in cotangents]
        return torch.autograd.grad(values, wanted, weighted, retain_graph=True)

    return ask, given, truth


def test_backward_twice_gives_the_same(graph: Graph) -> None:
    ask, given, truth = graph
    first, second = ask(*given), ask(*given)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    torch.testing.assert_close(first, truth, rtol=0, atol=1e-11)
    # and other cotangents other gradients
    torch.testing.assert_close(ask(*given, weight=-2.0), tuple(-2 * t for t in truth), rtol=0, atol=1e-11)


def test_some_gradients_and_then_all(graph: Graph) -> None:
    ask, given, truth = graph
    for picked in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2), (1,), (0, 1, 2)):
        gradients = ask(*(given[index] for index in picked))
        torch.testing.assert_close(gradients, tuple(truth[index] for index in picked), rtol=0, atol=1e-11)


def test_gradients_of_parts_of_the_outputs_and_then_of_all() -> None:
    given = leaves()
    (outputs, matrix), (expected, expected_matrix) = recurrence(*given), built_recurrence(*given)
    pairs = [
        (outputs[1], expected[1]),
        (matrix, expected_matrix),
        (outputs[-1], expected[-1]),
        (outputs, expected),
        (outputs[0], expected[0]),
    ]
    for value, wanted in pairs:
        cotangent = torch.randn_like(value)
        actual = torch.autograd.grad(value, given, cotangent, retain_graph=True, materialize_grads=True)
        truth = torch.autograd.grad(wanted, given, cotangent, retain_graph=True, materialize_grads=True)
        torch.testing.assert_close(actual, truth, rtol=0, atol=1e-11)


def test_gradients_add_up_over_backward_passes() -> None:
    given = leaves()
    outputs, matrix = recurrence(*given)
    (outputs.sum() + matrix.sum()).backward(retain_graph=True)
    once = [leaf.grad.clone() for leaf in given]
    (outputs.sum() + matrix.sum()).backward()
    for leaf, gradient in zip(given, once, strict=True):
        torch.testing.assert_close(leaf.grad, 2 * gradient, rtol=1e-12, atol=0)


def test_two_memories_in_one_graph_do_not_mix() -> None:
    first, second = leaves(), leaves()
    (alone,) = torch.autograd.grad(recurrence(*first)[0].sum(), first[2])
    both = recurrence(*first)[0].sum() + recurrence(*second)[0].prod()
    torch.testing.assert_close(torch.autograd.grad(both, first[2])[0], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("wanted", [(0, 1, 2), (2,), (1,), (0,)], ids=str)
def test_second_derivatives(wanted: tuple[int, ...]) -> None:
    given = [leaf if index in wanted else leaf.detach() for index, leaf in enumerate(leaves(4))]
    found = []
    for function in (recurrence, built_recurrence):
        total = sum(value.square().sum() for value in function(*given))
        inputs = [given[index] for index in wanted]
        first = torch.autograd.grad(total, inputs, create_graph=True)
        found.append([*first, *torch.autograd.grad(sum(gradient.square().sum() for gradient in first), inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


# ---------------------------------------------------------------- memory is given back


@pytest.mark.parametrize("use", ["no gradients", "never backward", "backward", "backward twice", "create graph"])
def test_all_is_freed_without_the_garbage_collector(use: str) -> None:
    initial, hidden, drives = leaves()
    gc.collect()
    gc.disable()
    try:
        with torch.set_grad_enabled(use != "no gradients"):
            memory = FastWeights(len(drives), initial, 0.8, 0.6)
            for drive in drives:
                hidden = memory.append(hidden)
                hidden = torch.tanh(drive + memory.read(torch.tanh(hidden + drive)))
            matrix = memory.matrix()
        store = weakref.ref(memory._store)
        watched = [weakref.ref(memory), store, weakref.ref(memory.vectors[0])]
        if use.startswith("backward"):
            (hidden.sum() + matrix.sum()).backward(retain_graph=use == "backward twice")
        if use == "create graph":
            (gradient,) = torch.autograd.grad(hidden.sum(), drives, create_graph=True)
            gradient.square().sum().backward()
            del gradient
        if use == "backward twice":
            hidden.sum().backward()
        if store()._gradients is not None:
            watched.append(weakref.ref(store()._gradients))
        del memory, hidden, matrix
        assert [reference() for reference in watched] == [None] * len(watched)
    finally:
        gc.enable()


def test_the_graph_outlives_the_memory_and_no_longer() -> None:
    initial, hidden, _ = leaves()
    memory = FastWeights(1, initial, 0.8, 0.6)
    read = memory.read(memory.append(hidden))
    store, whole = weakref.ref(memory._store), weakref.ref(memory)
    gc.disable()
    try:
        del memory
        assert whole() is None
        assert store() is not None
        read.sum().backward()
        assert hidden.grad.abs().max() > 0
        del read
        assert store() is None
    finally:
        gc.enable()
