"""Make wordnet/wordnet_train.txt of the data folder, on which task=hypernyms_wordnet trains, from WordNet's own files.

python -m gyral.applications.boxes.make_wordnet /usr/share/wordnet
"""

import argparse
import os
from pathlib import Path

import numpy as np

from gyral.applications.boxes.data.hierarchy import Hierarchy, load_hierarchy
from gyral.applications.boxes.data.pairs import LabelledPairs
from gyral.applications.boxes.data.splits import FILES, WORDNET, read_labelled
from gyral.config.command_line import one_line_errors, parse_words
from gyral.core.errors import OptionError
from gyral.core.files import write_atomically
from gyral.core.measures import percent


def make_training_list(hierarchy: Path, data_dir: Path) -> str:
    """Write the pairs of the transitive closure that are not among the true pairs of validation and test.

    Returns:
        The numbers of concepts and pairs, and the accuracy on test of the transitive closure of the list, as text.

    Raises:
        OptionError: a file is missing or not in its format, or the closure lacks a true pair of validation or test.
    """
    nouns = load_hierarchy(hierarchy)
    keys = nouns.keys(nouns.closure)
    val, test = (read_labelled(data_dir / WORDNET, FILES[split], nouns.names) for split in ("val", "test"))
    held_out = np.union1d(*(nouns.keys(labelled.pairs[labelled.targets]) for labelled in (val, test)))
    if missing := np.setdiff1d(held_out, keys).size:
        reason = f"{missing:,} of the {len(held_out):,} true pairs of validation and test do not follow from it"
        raise OptionError("hierarchy", hierarchy, f"must be WordNet 3.0: {reason}")
    pairs = nouns.closure[~np.isin(keys, held_out)].tolist()
    lines = sorted(f"IsA\t{nouns.names[specific]}\t{nouns.names[general]}\t1\n" for general, specific in pairs)
    path = data_dir / WORDNET / FILES["train"]
    write_atomically(path, "".join(lines))
    return "\n".join(
        (
            f"{len(nouns):,} nouns; {len(keys):,} pairs in the transitive closure,"
            f" {nouns.path_count:,} if each pair counts once for each of its paths",
            f"{path}: {len(lines):,} pairs, without the {len(held_out):,} true pairs of validation and test",
            f"accuracy on test of what follows from these pairs: {percent(_transitive(nouns, pairs, test), 2)}",
        )
    )


def _transitive(nouns: Hierarchy, train: list[list[int]], test: LabelledPairs) -> float:
    """Return the accuracy of calling the pairs true that follow from those of training, and no others."""
    known = Hierarchy((nouns.names[general], nouns.names[specific]) for general, specific in train)
    implied = {(known.names[general], known.names[specific]) for general, specific in known.closure.tolist()}
    predicted = [(nouns.names[general], nouns.names[specific]) in implied for general, specific in test.pairs.tolist()]
    return float(np.mean(np.array(predicted) == test.targets))


def main() -> None:
    """Make the list for the folders that the command line names."""
    with one_line_errors():
        name = "python -m gyral.applications.boxes.make_wordnet"
        parser = argparse.ArgumentParser(prog=name, description="Make the training pairs of task=hypernyms_wordnet.")
        parser.add_argument("hierarchy", type=Path, help="WordNet's folder with data.noun and index.noun")
        parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("DATA_DIR", "data")), metavar="FOLDER")
        arguments = parse_words(parser)
        print(make_training_list(arguments.hierarchy, arguments.data_dir))


if __name__ == "__main__":
    main()
