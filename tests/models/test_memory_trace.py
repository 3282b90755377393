"""The trace of an external memory equals the states of the cell, step by step."""

from typing import Any

import numpy as np
import pytest
import torch

from gyral.cells.inputs import MaskedInputs
from gyral.models.memory_trace import memory_cells, trace_memory
from tests.helpers.running import SMALL_ALGORITHM, build_task


@pytest.mark.parametrize("option", ["weighting=inv_norm", "weighting=softmax", "read_first=true"])
def test_a_trace_holds_the_states_of_the_longest_example(option: str) -> None:
    task: Any = build_task(*SMALL_ALGORITHM, "model=lantm", f"model.cell.{option}").eval()
    batch = next(iter(task.data.loader("val")))
    row = int(batch.lengths.argmax())
    steps = int(batch.lengths[row])
    trace = trace_memory(task, batch)
    [cell] = memory_cells(task)
    vectors = task.model._vectors(batch.inputs[row : row + 1, :steps].T)
    state = cell.init_state(1)
    assert trace.keys is not None
    with torch.no_grad():
        for step in range(steps):
            projected = cell.project(MaskedInputs(vectors, batch.write[row : row + 1, :steps].T))
            at_step = projected._replace(values=projected.values[step], write=projected.write[step])
            output, state = cell.step(at_step, state, cell.sequence_constants(1))
            locations = cell.locations(state)
            for shown, found in zip(trace.keys, locations, strict=True):
                assert np.allclose(shown[step], found[0], atol=1e-6)
            [read] = trace.weightings.values()
            weights = cell.weightings(output, state, at_step.write)["read"]
            assert np.allclose(read[step], weights[0, : read.shape[1]], atol=1e-6)
            # the reading is the mean of the vectors with these weights
            assert np.allclose(read[step] @ state.vectors[0, : read.shape[1]].numpy(), state.read_vector[0], atol=1e-5)
            for name, value in cell.gates(output).items():
                assert trace.gates[name][step] == pytest.approx(value.item(), abs=1e-6)
    assert np.array_equal(trace.writable, batch.write[row, :steps])
    assert trace.keys.stored.max() == read.shape[1] == trace.writable.sum()


def test_a_model_without_external_memory_has_no_such_cell() -> None:
    assert memory_cells(build_task(*SMALL_ALGORITHM, "model=lstm")) == []
