"""Inputs of the probes for the suites of tests/faults."""

from pathlib import Path
from random import Random

import pytest

from gyral.applications.probes.data.pairs import load as load_pairs
from gyral.data.treebank.sentences import load as load_trees
from tests.applications.probes.data.test_pairs import write_blimp, write_templates
from tests.faults.inputs import Input

TREES = "( (S (NP (DT The) (NN cat)) (VP (VBZ sits) (PP (IN on) (NP (CD 3) (NNS mats)))) (. .)) )\n"


def trees(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file in brackets that `gyral evaluate parse=` reads."""
    path = folder / "my trees.mrg"
    path.write_text(TREES * 3)
    return Input([path], ("parse",), lambda: load_trees(path, folder))


def blimp(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    for name in ("first", "second"):
        write_blimp(folder, name)
    files = sorted((folder / "blimp" / "data").iterdir())
    return Input(files, ("pairs",), lambda: load_pairs("blimp", folder))


def templates(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    write_templates(folder, pickled=random.random() < 0.5)
    files = sorted((folder / "lm_syneval").rglob("*.pickle")) or sorted((folder / "lm_syneval").rglob("*.gz"))
    return Input(files, ("pairs",), lambda: load_pairs("syneval", folder), names_folder=True)


LOADERS = {
    "gyral evaluate parse": trees,
    "gyral evaluate pairs=blimp": blimp,
    "gyral evaluate pairs=syneval": templates,
}
