"""Dropout of sequences."""

import pytest
import torch

from gyral.nn.dropout import SequenceDropout


@pytest.mark.parametrize("locked", [False, True])
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
