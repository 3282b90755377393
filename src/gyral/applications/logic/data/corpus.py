"""Pairs of formulas with the relation between them (Bowman et al. 2015, arXiv:1506.04834), as published or generated.

The published files are `train0` … `train12` and `test0` … `test12`. The number in the name is the number of
operators of the larger formula; 12 means 12 to 19. A line has the relation and the two formulas, with tabs between
them:

    >	( ( d ( or e ) ) ( and f ) )	( f ( and e ) )
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import torch

from gyral.applications.logic.data.formulas import RELATIONS, TOKENS, relation, truth_table
from gyral.applications.logic.data.generated import generate
from gyral.core.checks import check_boolean, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import check_file, read_text
from gyral.data.batching import Batch
from gyral.data.vocabulary import PADDING

FOLDERS = ("logical_inference/propositionallogic", "logical_inference")  # within the data folder
ORIGIN = "https://github.com/sleepinyourhat/vector-entailment (folder propositionallogic; no license stated)"
OPERATORS = range(13)  # numbers in the names of the files
VALIDATION = 10  # pairs whose number is a multiple of this are for validation
GENERATED_SIZES = {"train": 1000, "test": 40}  # pairs for each number of operators

SYMBOLS = (PADDING, *TOKENS)  # the position is the index, as in a vocabulary
CLASSES = tuple(RELATIONS)
SIGNS = {"not": "~", "and": "&", "or": "+"}  # so that a token is a character
_INDICES = np.full(256, 255, dtype=np.uint8)
_INDICES[[ord(SIGNS.get(token, token)) for token in TOKENS]] = range(1, len(SYMBOLS))


@dataclass(frozen=True)
class Pairs:
    """Pairs of formulas, as `gyral.data.batching.Examples`.

    Attributes:
        relations: (n,) indices in `CLASSES`.
        tokens: the tokens of all formulas one after another, as indices in `SYMBOLS`.
        starts, sizes: (n, 2) first token and number of tokens of each formula.
        operators: (n,) the number in the name of the file of each pair.
    """

    relations: np.ndarray
    tokens: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    operators: np.ndarray

    def __len__(self) -> int:
        return len(self.relations)

    @property
    def lengths(self) -> np.ndarray:
        """(n,) tokens of the longer formula of each pair."""
        return self.sizes.max(axis=1)

    def select(self, rows: np.ndarray) -> "Pairs":
        """Return the pairs with the given indices or mask."""
        own = (values[rows] for values in (self.starts, self.sizes, self.operators))
        return Pairs(self.relations[rows], self.tokens, *own)

    def batch(self, rows: np.ndarray) -> Batch:
        """Return the pairs with the given indices, (B,), as one batch without categories.

        Its inputs are (B, T, 2): the two formulas of a pair, each padded with 0 at its end.
        """
        sizes = self.sizes[rows]
        step = np.arange(sizes.max())[:, None]
        inside = step < sizes[:, None]
        inputs = np.where(inside, self.tokens[np.where(inside, self.starts[rows][:, None] + step, 0)], 0)
        targets = torch.from_numpy(self.relations[rows].astype(np.int64))
        lengths = torch.from_numpy(sizes.max(axis=1))
        return Batch(torch.from_numpy(inputs.astype(np.int64)), targets, lengths=lengths)

    def lines(self, index: int) -> tuple[str, str, str]:
        """Return a pair in the form of a file: the relation and both formulas."""
        bounds = zip(self.starts[index], self.sizes[index], strict=True)
        formulas = (self.tokens[start : start + size] for start, size in bounds)
        first, second = (" ".join(SYMBOLS[token] for token in formula) for formula in formulas)
        return CLASSES[self.relations[index]], first, second


@dataclass(frozen=True)
class LogicCorpus:
    """The pairs of each split.

    Attributes:
        splits: the pairs of "train", "val" and "test".
        substitute: description of the missing files and their substitute; empty for the published pairs.
    """

    splits: dict[str, Pairs]
    substitute: str = ""


def encode(text: str, operators: int, place: str) -> Pairs:
    """Return the pairs of a file.

    Args:
        text: the lines of the file.
        operators: the number in the name of the file.
        place: name of the file, for errors.

    Raises:
        UserError: a line is not a relation and two formulas of known tokens with brackets that match. See `check`, too.
    """
    for word, sign in SIGNS.items():
        text = text.replace(word, sign)
    rows = [line.split("\t") for line in text.replace(" ", "").splitlines()]
    for number, fields in enumerate(rows, start=1):
        if len(fields) != 3 or fields[0] not in RELATIONS or not fields[1] or not fields[2]:
            known = " ".join(RELATIONS)
            raise UserError(f"{place}, line {number}: must be one of {known}, a tab, a formula, a tab and a formula")
    formulas = [formula for _, *both in rows for formula in both]
    tokens = _INDICES[np.frombuffer("".join(formulas).encode("latin-1", "replace"), dtype=np.uint8)]
    sizes = np.fromiter(map(len, formulas), dtype=np.int64).reshape(-1, 2)
    ends = np.cumsum(sizes).reshape(-1, 2)
    if (unknown := tokens == 255).any():
        number = int((ends[:, 1] <= unknown.argmax()).sum()) + 1
        raise UserError(f"{place}, line {number}: the tokens of a formula must be among {' '.join(TOKENS)}")
    opened, closed = (tokens == SYMBOLS.index(bracket) for bracket in ("(", ")"))
    depths = np.cumsum(opened.astype(np.int64) - closed)
    wrong = depths < 0
    wrong[ends.ravel() - 1] |= depths[ends.ravel() - 1] > 0
    if wrong.any():
        number = int((ends[:, 1] <= wrong.argmax()).sum()) + 1
        raise UserError(f"{place}, line {number}: the brackets of a formula do not match")
    relations = np.array([CLASSES.index(sign) for sign, _, _ in rows], dtype=np.uint8)
    return Pairs(relations, tokens, ends - sizes, sizes, np.full(len(rows), operators))


def load(
    data_dir: str | Path,
    *,
    path: str | Path | None = None,
    train_operators: int = 6,
    generated: bool = False,
    seed: int = 0,
) -> LogicCorpus:
    """Return pairs in the split of Shen et al. (ICLR 2019), whose code is yikangshen/Ordered-Neurons on GitHub.

    The training pairs with at most `train_operators` operators are numbered from 1 in the order of the files; every
    tenth is for validation. All test pairs are for the test.

    Args:
        data_dir: data folder, which has the files in the folder logical_inference.
        path: folder with the files; None: the one in `data_dir`.
        train_operators: largest number of operators of a formula in the training and validation splits, 1 to 12.
        generated: whether to generate pairs even if there are files; False: only if `data_dir` has none.
        seed: seed of generated pairs.

    Raises:
        OptionError: an option is out of bounds; a file is missing, cannot be read, or is not in the format.
    """
    check_integer("train_operators", train_operators, maximum=max(OPERATORS))
    folder = None if check_boolean("generated", generated) else _find(Path(data_dir), path)
    option = ("data_dir", str(data_dir)) if path is None else ("path", str(path))
    parts: dict[str, list[Pairs]] = {"train": [], "test": []}
    for split, numbers in (("train", range(train_operators + 1)), ("test", OPERATORS)):
        for number in numbers:
            if folder is None:
                parts[split].append(_generate(split, number, seed))
            else:
                parts[split].append(_read(option, folder / f"{split}{number}", number))
    train = _join(parts["train"])
    is_validation = np.arange(1, len(train) + 1) % VALIDATION == 0
    splits = {"train": train.select(~is_validation), "val": train.select(is_validation), "test": _join(parts["test"])}
    if folder is not None:
        for split, pairs in splits.items():
            if not len(pairs):
                raise OptionError(*option, f"{folder} has no pair for the {split} split")
        return LogicCorpus(splits)
    reason = "generated=true" if generated else f"{Path(data_dir) / FOLDERS[-1]} is missing, published at {ORIGIN}"
    return LogicCorpus(
        splits, f"{reason}; using GENERATED pairs of formulas, whose results are not results on the data"
    )


@cache
def _generate(split: str, operators: int, seed: int) -> Pairs:
    pairs = generate(operators, GENERATED_SIZES[split], f"{seed} {split}")
    return encode("\n".join("\t".join(pair) for pair in pairs), operators, "generated pairs")


def _find(data_dir: Path, path: str | Path | None) -> Path | None:
    """Return the folder of the files, None if the data folder has none."""
    if path is not None:
        return Path(path)
    return next((data_dir / name for name in FOLDERS if (data_dir / name / "train0").exists()), None)


def _read(option: tuple[str, str], file: Path, operators: int) -> Pairs:
    if not file.exists() and not file.is_symlink():
        raise OptionError(*option, f"{file}: no such file; published at {ORIGIN}")
    check_file(*option, file)
    return _encode_file(option, file, file.stat().st_mtime_ns, operators)


@lru_cache(64)  # one process may build several tasks
def _encode_file(option: tuple[str, str], file: Path, modified: int, operators: int) -> Pairs:
    text = read_text(*option, file, encoding="ascii")
    try:
        return encode(text, operators, str(file))
    except UserError as error:
        raise OptionError(*option, str(error)) from None


def _join(parts: Iterable[Pairs]) -> Pairs:
    """Return the pairs of several files as one."""
    listed = list(parts)
    before = np.cumsum([0, *(len(part.tokens) for part in listed)])
    return Pairs(
        np.concatenate([part.relations for part in listed]),
        np.concatenate([part.tokens for part in listed]),
        np.concatenate([part.starts + offset for part, offset in zip(listed, before, strict=False)]),
        np.concatenate([part.sizes for part in listed]),
        np.concatenate([part.operators for part in listed]),
    )


def check(pairs: Pairs, place: str = "pair") -> None:
    """Check each pair by the truth tables of its formulas: their form and the relation.

    Args:
        pairs: the pairs.
        place: description of the pairs, for the error.

    Raises:
        UserError: a formula is invalid, or the relation is wrong.
    """
    for index in range(len(pairs)):
        label, *formulas = pairs.lines(index)
        tables = []
        for formula in formulas:
            try:
                tables.append(truth_table(formula.split()))
            except ValueError as error:
                raise UserError(f"{place} {index + 1}: {formula} {error}") from None
        found = relation(*tables)
        if found != label:
            raise UserError(f"{place} {index + 1}: {' and '.join(formulas)} have the relation {found}, not {label}")
