"""Published results of the probes, which come from other models on other corpora."""

from typing import NamedTuple


class PublishedTrees(NamedTuple):
    """Published scores of trees in Shen et al. (ICLR 2019), in percent, with means over five seeds.

    Attributes:
        f1: on section 23 of the Wall Street Journal.
        short_f1: on WSJ10, the sentences with at most 10 words of all sections.
        depth: mean depth on section 23.
        recall: of the labels ADJP, NP, PP and INTJ on section 23, with the best seed.
    """

    f1: float | None
    short_f1: float | None
    depth: float | None
    recall: dict[str, float]


def _trees(f1: float | None, short: float | None, depth: float | None, *recall: float) -> PublishedTrees:
    return PublishedTrees(f1, short, depth, dict(zip(("ADJP", "NP", "PP", "INTJ"), recall, strict=False)))


TREES = {
    "ON-LSTM, layer 1": _trees(20.0, 35.2, 5.6, 38.1, 23.8, 18.3, 100),
    "ON-LSTM, layer 2": _trees(47.7, 65.1, 5.6, 46.2, 61.4, 55.4, 0),
    "ON-LSTM, layer 3": _trees(36.6, 54.0, 5.3, 44.8, 57.5, 47.2, 0),
    "PRPN-LM": _trees(37.4, 70.5, 5.9, 26.2, 63.9, 24.4, 0),
    # the F1 of these four is from memory and was not checked in the paper
    "random trees": _trees(18.4, 31.7, 5.3, 17.4, 22.3, 16.0, 40.4),
    "balanced trees": _trees(24.5, 43.4, 4.6, 22.1, 20.2, 9.3, 55.9),
    "left branching": _trees(9.0, 19.6, 12.4),
    "right branching": _trees(39.8, 56.6, 12.4),
}

# Accuracies of LSTM and ON-LSTM in Shen et al. (ICLR 2019), from training on 90 million words of Wikipedia.
SYNEVAL = {
    "simple": (1.00, 0.99),
    "in a sentential complement": (0.98, 0.95),
    "short VP coordination": (0.92, 0.89),
    "in an object relative clause": (0.88, 0.84),
    "in an object relative clause, no that": (0.81, 0.78),
    "reflexive, simple": (0.82, 0.89),
    "reflexive, in a sentential complement": (0.80, 0.86),
    "NPI, simple: grammatical, intrusive": (1.00, 0.18),
    "NPI, simple: intrusive, ungrammatical": (0.01, 0.50),
    "NPI, simple: grammatical, ungrammatical": (0.63, 0.07),
    "long VP coordination": (0.74, 0.74),
    "across a prepositional phrase": (0.68, 0.67),
    "across a subject relative clause": (0.60, 0.66),
    "across an object relative clause": (0.52, 0.57),
    "across an object relative clause, no that": (0.51, 0.54),
    "reflexive, across a relative clause": (0.58, 0.57),
    "NPI, across a relative clause: grammatical, intrusive": (0.95, 0.59),
    "NPI, across a relative clause: intrusive, ungrammatical": (0.00, 0.20),
    "NPI, across a relative clause: grammatical, ungrammatical": (0.04, 0.11),
}

# Accuracies of the LSTM of Gulordava et al. (2018), from training on 83 million words of Wikipedia, in Warstadt et al.
# (TACL 2020), in percent: unweighted means over the sets of a phenomenon.
BLIMP = {
    "overall": 69.8,
    "anaphor agreement": 91.7,
    "argument structure": 73.2,
    "binding": 73.5,
    "control raising": 67.0,
    "determiner noun agreement": 85.4,
    "ellipsis": 67.6,
    "filler gap dependency": 73.9,
    "irregular forms": 89.1,
    "island effects": 46.6,
    "NPI licensing": 51.7,
    "quantifiers": 64.5,
    "subject verb agreement": 80.1,
}
