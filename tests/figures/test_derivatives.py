"""The derivatives of the activations."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from gyral.figures.derivatives import derivatives
from gyral.report import draw_figure as draw


def test_derivatives_equal_those_of_the_activations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {line.get_label(): line.get_xydata().T for line in derivatives().axes[0].lines}
    sigmoid = 1 / (1 + np.exp(-lines["sigmoid"][0]))
    wanted = {
        "relu": lines["relu"][0] > 0,
        "tanh": 1 / np.cosh(lines["tanh"][0]) ** 2,
        "sigmoid": sigmoid * (1 - sigmoid),
        "softsign": 1 / (1 + np.abs(lines["softsign"][0])) ** 2,
    }
    assert lines.keys() == wanted.keys()
    for name, (_, drawn) in lines.items():
        np.testing.assert_allclose(drawn, wanted[name], atol=1e-6)
    monkeypatch.chdir(tmp_path)
    path = draw("derivatives", None)[0]
    assert path == Path("outputs/figures/derivatives.png")
    assert image.imread(path).shape[1] > 700
