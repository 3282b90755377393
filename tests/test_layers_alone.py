"""`pip install --no-deps gyral` beside torch, NumPy and filelock: the layers work, and a command says what it lacks.

The environment is empty but for these packages and those that torch needs: a folder with links to them.
"""

from pathlib import Path

import pytest

from docs.uses import LAYERS
from tests.helpers.found import at_least
from tests.helpers.packages import link, with_needs
from tests.helpers.running import ROOT, Outcome, spawn

USE = """
import io, sys
sys.path[:0] = sys.argv[1:4]
import torch
import gyral
from gyral.nn.recurrent import detach

def use(label):
    from docs.uses import LAYERS
    layer = LAYERS[label].make(3, 4) if label in LAYERS else getattr(gyral, label)(3, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    inputs = torch.randn(5, 2, 3)
    for _ in range(2):
        optimizer.zero_grad()
        outputs, state = layer(inputs)
        outputs.square().mean().backward()
        optimizer.step()
    torch.save((layer.state_dict(), detach(state)), file := io.BytesIO())
    file.seek(0)
    weights, loaded = torch.load(file)
    layer.load_state_dict(weights)
    return layer, inputs, loaded
"""
COMMANDS = """
from gyral.__main__ import main
use("RUM")
try:
    gyral.fit
except ImportError as error:
    print(error)
sys.argv = ["gyral", "train", "model=rum"]
main()
"""
EXPORT = """
from torch.export import Dim
for label in sys.argv[4:]:
    layer, inputs, _ = use(label)
    program = torch.export.export(layer, (inputs,), dynamic_shapes=({0: Dim("T", min=1), 1: Dim("B", min=1)},))
    torch.export.save(program, file := io.BytesIO())
    file.seek(0)
    more = torch.randn(7, 3, 3)
    found, expected = torch.export.load(file).module()(more)[0], layer(more)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    print(label)
others = {name.partition(".")[0] for name in sys.modules}
print(sorted(others & {"hydra", "omegaconf", "pytorch_lightning", "pydantic", "rich"}))
"""


def run_alone(script: str, folder: Path, *words: str) -> Outcome:
    """Run a script that can import Python, torch with what it needs, NumPy, filelock and a source tree of Gyral."""
    site = folder / "site"
    site.mkdir()
    for name in with_needs("torch") | {"numpy", "filelock"}:
        link(name, site)
    (folder / "docs").symlink_to(ROOT / "docs")
    places = map(str, (site, folder, ROOT / "src"))
    return spawn("-I", "-S", "-W", "ignore", "-c", USE + script, *places, *words, cwd=folder)


def test_a_layer_trains_and_is_saved_and_a_command_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    outcome = run_alone(COMMANDS, tmp_path)
    assert outcome.error == "gyral train: needs the package hydra: pip install gyral"
    assert outcome.out == "gyral.fit: needs the package hydra: pip install gyral\n"


@pytest.mark.slow
def test_every_layer_trains_is_saved_and_is_exported(tmp_path: Path) -> None:
    labels = at_least(45, [*LAYERS])
    outcome = run_alone(EXPORT, tmp_path, *labels)
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == [*labels, "[]"]
