"""Readouts of readers: the answer is one of the mentions in the document, or a class."""

import torch
from torch import Tensor, nn

UNMENTIONED = -100.0  # log-probability of a candidate without a mention: low, but with a finite loss


class AttentionSum(nn.Module):
    """The attention to each candidate's mentions in the document (Kadlec et al., ACL 2016, equations 3 and 4).

    With the attention α to the steps of the document, p(c) is the sum of α over the mentions of candidate c, divided by
    the sum over the mentions of all candidates.

    Args:
        width: H, size of the outputs of the reader, which this readout does not use.
        input_size: X, size of its inputs, which this readout does not use.
        output_size: C, largest number of candidates of a question.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, scores: Tensor, states: Tensor, mentions: Tensor) -> Tensor:
        """Return the log-probabilities (B, C); `UNMENTIONED` for candidates without a mention.

        Args:
            scores: (T, B) logarithms of the attention up to a constant; −∞ at steps that are not read.
            states: (T, B, H) outputs of the reader, which this readout does not use.
            mentions: (T, B) the candidate that each step mentions, from 1; 0: none.
        """
        mentions = torch.where(scores > -torch.inf, mentions, 0)
        scores = torch.where(mentions > 0, scores, 0).t()
        mentions = mentions.t()
        shape = len(mentions), self.output_size + 1  # the first column is for steps without a mention
        # log-sum-exp, stabilized with the highest score of each candidate
        highest = scores.new_zeros(shape).scatter_reduce(1, mentions, scores.detach(), "amax", include_self=False)
        exponentials = (scores - highest.gather(1, mentions)).exp()
        sums = torch.zeros_like(highest).scatter_add(1, mentions, exponentials)[:, 1:]
        is_mentioned = sums > 0
        logs = torch.where(is_mentioned, sums, 1).log() + highest[:, 1:]
        logs = logs.masked_fill(~is_mentioned, torch.finfo(logs.dtype).min)
        return torch.where(is_mentioned, logs.log_softmax(dim=1), UNMENTIONED)


class AttentionClassifier(nn.Module):
    """A linear classifier, without bias, of the states of the document weighted by the attention.

    With the attention α to the steps t of the document, whose states are h_t:

        logits = W Σ α_t h_t

    Args:
        width: H, size of the outputs of the reader.
        input_size: X, size of its inputs, which this readout does not use.
        output_size: number of classes.
    """

    def __init__(self, width: int, input_size: int, output_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, output_size, bias=False)

    def forward(self, scores: Tensor, states: Tensor, mentions: Tensor) -> Tensor:
        """Return logits (B, classes); see `AttentionSum.forward` for the arguments."""
        return self.dense(torch.einsum("tb,tbh->bh", scores.softmax(dim=0), states))
