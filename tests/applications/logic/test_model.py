"""The classifier of pairs of sequences."""

import torch
from torch.nn import functional as F

from gyral.applications.logic.model import PairClassifier


def test_it_compares_the_last_outputs_of_both_sequences() -> None:
    classifier = PairClassifier(3, 5, 7, dropout=0.5).double().eval()
    outputs = torch.randn(4, 6, 3, dtype=torch.double)
    lengths = torch.tensor([4, 1, 2, 3, 4, 2])
    logits = classifier(outputs, torch.empty(4, 6, 5), lengths)
    for row in range(3):
        first, second = outputs[lengths[row] - 1, row], outputs[lengths[row + 3] - 1, row + 3]
        features = torch.cat((first, second, first * second, (first - second).abs()))
        hidden = F.elu(classifier.hidden.weight @ features + classifier.hidden.bias)
        torch.testing.assert_close(logits[row], classifier.output.weight @ hidden + classifier.output.bias)


def test_dropout_is_only_active_in_training() -> None:
    classifier = PairClassifier(8, 5, 7, dropout=0.5)
    outputs, inputs = torch.randn(2, 6, 8), torch.empty(2, 6, 5)
    assert not torch.equal(classifier(outputs, inputs), classifier(outputs, inputs))
    classifier.eval()
    torch.testing.assert_close(classifier(outputs, inputs), classifier(outputs, inputs), rtol=0, atol=0)
