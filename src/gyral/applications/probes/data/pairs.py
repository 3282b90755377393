"""Minimal pairs of sentences, by phenomenon: the templates of Marvin and Linzen (2018), and BLiMP."""

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.inputs import read_bytes, read_text


@dataclass(frozen=True, slots=True)
class BlimpItem:
    """A line of a file of BLiMP, which has more fields."""

    sentence_good: str
    sentence_bad: str
    linguistics_term: str


BLIMP_ITEM = TypeAdapter(BlimpItem)


class PairSet(NamedTuple):
    """Pairs that test one contrast.

    Attributes:
        phenomenon: the grammatical phenomenon.
        name: the contrast.
        pairs: the grammatical and the ungrammatical sentence, as published.
    """

    phenomenon: str
    name: str
    pairs: list[tuple[str, str]]


SHORT, LONG = "short dependencies", "long dependencies"

# The rows of the paper: phenomenon, name, and templates; a row pools the pairs of its templates.
AGREEMENT = (
    (SHORT, "simple", ("simple_agrmt",)),
    (SHORT, "in a sentential complement", ("sent_comp",)),
    (SHORT, "short VP coordination", ("vp_coord",)),
    (SHORT, "in an object relative clause", ("obj_rel_within_anim", "obj_rel_within_inanim")),
    (SHORT, "in an object relative clause, no that", ("obj_rel_no_comp_within_anim", "obj_rel_no_comp_within_inanim")),
    (SHORT, "reflexive, simple", ("simple_reflexives",)),
    (SHORT, "reflexive, in a sentential complement", ("reflexive_sent_comp",)),
    (LONG, "long VP coordination", ("long_vp_coord",)),
    (LONG, "across a prepositional phrase", ("prep_anim", "prep_inanim")),
    (LONG, "across a subject relative clause", ("subj_rel",)),
    (LONG, "across an object relative clause", ("obj_rel_across_anim", "obj_rel_across_inanim")),
    (
        LONG,
        "across an object relative clause, no that",
        ("obj_rel_no_comp_across_anim", "obj_rel_no_comp_across_inanim"),
    ),
    (LONG, "reflexive, across a relative clause", ("reflexives_across",)),
)
POLARITY = (
    (SHORT, "NPI, simple", ("simple_npi_anim", "simple_npi_inanim")),
    (LONG, "NPI, across a relative clause", ("npi_across_anim", "npi_across_inanim")),
)
# The items of polarity have three sentences. In each of these pairs, the first sentence should be preferred.
CONTRASTS = (
    ("grammatical, intrusive", 0, 1),
    ("intrusive, ungrammatical", 1, 2),
    ("grammatical, ungrammatical", 0, 2),
)


def load_syneval(data_dir: Path) -> list[PairSet]:
    """Return the pairs of Marvin and Linzen (EMNLP 2018) in the rows of their paper.

    The data folder contains a copy of github.com/BeckyMarvin/LM_syneval in `lm_syneval`; its templates may also be
    text, `tsv/<template>.tsv.gz`, with a key and the sentences of an item in each line.

    Raises:
        OptionError: a template is missing or damaged.
    """
    folder = data_dir / "lm_syneval"
    sets = []
    for phenomenon, name, templates in AGREEMENT:
        items = [item for template in templates for item in _template(folder, template, 2)]
        sets.append(PairSet(phenomenon, name, [(good, bad) for good, bad in items]))
    for phenomenon, name, templates in POLARITY:
        items = [item for template in templates for item in _template(folder, template, 3)]
        for contrast, good, bad in CONTRASTS:
            sets.append(PairSet(phenomenon, f"{name}: {contrast}", [(item[good], item[bad]) for item in items]))
    return sorted(sets, key=lambda one: one.phenomenon == LONG)


def _template(folder: Path, name: str, sentences: int) -> list[tuple[str, ...]]:
    """Return the items of a template, each with a number of sentences, without final periods."""
    text, pickled = folder / "tsv" / f"{name}.tsv.gz", folder / "EMNLP2018" / "templates" / f"{name}.pickle"
    path = text if text.exists() else pickled
    if not path.exists():
        origin = "clone github.com/BeckyMarvin/LM_syneval (MIT license) to this folder"
        raise OptionError("pairs", "syneval", f"{folder} has no template {name}; {origin}")
    content = read_bytes("pairs", "syneval", path)
    try:
        if path == text:
            lines = content.decode().splitlines()
            items = [tuple(line.split("\t")[1:]) for line in lines]
        else:
            items = [tuple(item) for of_key in _Plain(io.BytesIO(content)).load().values() for item in of_key]
        if not all(len(item) == sentences and all(isinstance(each, str) for each in item) for item in items):
            raise ValueError(f"an item does not have {sentences} sentences")
    except Exception as error:  # pickle raises many kinds
        raise OptionError("pairs", "syneval", f"{path} is damaged ({error})") from None
    return items


class _Plain(pickle._Unpickler):
    """Reads pickles of plain containers, and refuses all classes, which could run code.

    It is the class in Python: that in C allocates a list of the size that a few bytes name.
    """

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"names the class {module}.{name}")


def load_blimp(data_dir: Path) -> list[PairSet]:
    """Return the 67 sets of BLiMP (Warstadt et al., TACL 2020), by the 12 phenomena of the paper.

    The data folder contains a copy of github.com/alexwarstadt/blimp in `blimp`.

    Raises:
        OptionError: the sets are missing, or one is damaged.
    """
    folder = data_dir / "blimp" / "data"
    sets = []
    for path in sorted(folder.glob("*.jsonl")):
        items = []
        for number, line in enumerate(read_text("pairs", "blimp", path).removesuffix("\n").split("\n"), start=1):
            try:
                items.append(BLIMP_ITEM.validate_json(line))
            except ValidationError:
                reason = "must be an object with sentence_good, sentence_bad and linguistics_term"
                raise OptionError("pairs", "blimp", f"{path}, line {number}: {reason}") from None
        pairs = [(item.sentence_good, item.sentence_bad) for item in items]
        term = items[0].linguistics_term
        # the paper counts the two sets of this term as argument structure
        phenomenon = "argument structure" if term == "s-selection" else term.replace("_", " ").replace("npi", "NPI")
        sets.append(PairSet(phenomenon, path.stem, pairs))
    if not sets:
        origin = "clone github.com/alexwarstadt/blimp (CC BY) to the folder above it"
        raise OptionError("pairs", "blimp", f"{folder} has no file whose name ends in .jsonl; {origin}")
    return sorted(sets, key=lambda one: (one.phenomenon.lower(), one.name))


LOADERS: dict[str, Callable[[Path], list[PairSet]]] = {"syneval": load_syneval, "blimp": load_blimp}


def load(name: str, data_dir: str | Path) -> list[PairSet]:
    """Return the pairs of a benchmark, "syneval" or "blimp"; see `load_syneval` and `load_blimp`.

    Raises:
        OptionError: the name is unknown, or the data is missing or damaged.
    """
    return LOADERS[check_choice("pairs", name, tuple(LOADERS))](Path(data_dir))
