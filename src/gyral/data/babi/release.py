"""bAbI question answering (Weston et al. 2015, arXiv:1502.05698): the release, its splits and vocabularies.

Twenty tasks, each with 1,000 or 10,000 questions for training, of which validation takes a tenth, and 1,000 for
testing, which are the same for both sizes.
"""

import gzip
import hashlib
import logging
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias

from gyral.core.checks import check_boolean, check_choice
from gyral.core.errors import OptionError
from gyral.data.babi.stories import GENERATED, Story, Words, cut, generate, parse, questions
from gyral.data.batching import mix_seed
from gyral.data.download import BLOCK, BROKEN_ARCHIVE, SOURCES
from gyral.data.vocabulary import UNKNOWN, Vocabulary

log = logging.getLogger(__name__)

TASKS = range(1, 21)
SIZES = {"1k": 1_000, "10k": 10_000}  # training questions a task
TEST_SIZE = 1_000
VALIDATION = ("cut", "official")
FOLDERS = {  # of the release
    ("cut", "1k"): "en",
    ("cut", "10k"): "en-10k",
    ("official", "1k"): "en-valid",
    ("official", "10k"): "en-valid-10k",
}
RELEASE = "tasks_1-20_v1-2"
ARCHIVE = SOURCES["babi"].files[0].name
FILE = re.compile(r"qa(\d+)_(?:.+_)?(train|valid|test)\.txt")
PADDING = "<pad>"  # number 0 of every vocabulary
GENERATED_NAME = "generated"  # in the place of a folder

# The first digits of the SHA-256 of files of version 1.2, whose names are also those of earlier versions. A line is a
# task: its test file, and its training files with 1k and, but for task 3, 10k questions.
DIGESTS = """
    55acf66cef2f c64ba9b1a49b 749ea9f7c990
    eff93fb9cd81 a4978af5bc0d d4074c0c5d54
    17795c977100 a6e78019f36a
    07f0ca18ddee c9370502d85f 5d11b821d352
    ec825c1c8a76 086cd59c3ca9 2506910935b7
    b108b16f1ecc 5a133115ee35 602f379184bf
    a74d1f2b9132 dca03bd91876 4a2508733bef
    362a653c821a 058604df6f94 9518da2d3aa5
    63590aff3f89 0c3b89921af0 5f8949f6ef7d
    fde8f20ed0b3 0b7691689447 c5c0788b0446
    46f3290d0158 9468de9a1f25 edfcd97fecd4
    6437718f8f98 45c2764bb2d3 39d58df35649
    76a25b684f23 533a391edbda c530fdf122d2
    e3f0b19858ff b7561cbc6242 c322e0814eef
    32b77e117fe9 e856ebfdcce4 0a86673f7faf
    4a11e55366f2 20121005137e 27fef347ce0b
    9e1e0250ed4e 20083bf56ff7 8a383651e009
    d34f70eb7228 18b7dcf52c9a 9e7c15107067
    023e391f0d7f dcb788352a56 6cfdc6f448e3
    bd3bde3788ac 29580ad55fb7 36f20f3baf6b
"""
PUBLISHED = {
    task: dict(zip(("test", *SIZES), line.split(), strict=False))
    for task, line in enumerate(DIGESTS.strip().splitlines(), start=1)
}


class NoReleaseError(OptionError):
    """There is no release where it was looked for."""


@dataclass(frozen=True)
class Babi:
    """Questions of one task or of all, and the words and answers of their training split.

    Attributes:
        name: the folder of the release that they come from, or "generated".
        splits: "train", "val" and "test".
        stand_ins: tasks whose 10k training file is not there, so that the 1k one is used.
        vocabulary: of words in lower case: number 0 is padding, 1 any word that training lacks.
        classes: the answers that training has, in order; the place of an answer is its class.
    """

    name: str
    splits: dict[str, list[Story]]
    stand_ins: tuple[int, ...]
    vocabulary: Vocabulary
    classes: tuple[str, ...]

    @classmethod
    def of(cls, name: str, splits: dict[str, list[Story]], stand_ins: tuple[int, ...] = ()) -> "Babi":
        """Make the vocabularies from the training split, and warn of answers that it lacks."""
        words, answers = set[Words](), set[str]()
        for question in questions(splits["train"]):
            words.update(question.story)
            words.add(question.words)
            answers.add(question.answer)
        known = sorted({word.lower() for sentence in words for word in sentence})
        made = cls(name, splits, stand_ins, Vocabulary("word", [PADDING, UNKNOWN, *known]), tuple(sorted(answers)))
        for split in ("val", "test"):
            if unseen := made.unseen_answers(split):
                log.warning(
                    "%s: training lacks the answer of %d of %d %s questions (%s): they count as wrong",
                    *(name, unseen.total(), sum(map(len, splits[split])), split, "; ".join(sorted(unseen))),
                )
        return made

    def unseen_answers(self, split: str) -> Counter[str]:
        """Return the answers of a split that training lacks, with how many questions have them."""
        known = set(self.classes)
        return Counter(question.answer for question in questions(self.splits[split]) if question.answer not in known)

    def majority(self, split: str) -> dict[int, float]:
        """Return, for each task, the share of a split's questions whose answer is the most frequent one in training."""
        answers: dict[int, Counter[str]] = {}
        for question in questions(self.splits["train"]):
            answers.setdefault(question.task, Counter())[question.answer] += 1
        # of equally frequent answers the first in the order of letters
        most = {task: min(counts, key=lambda answer: (-counts[answer], answer)) for task, counts in answers.items()}
        asked, right = Counter[int](), Counter[int]()
        for question in questions(self.splits[split]):
            asked[question.task] += 1
            right[question.task] += question.answer == most[question.task]
        return {task: right[task] / asked[task] for task in asked}


def load(
    qa: int | str,
    size: str,
    data_dir: str | Path,
    *,
    path: str | Path | None = None,
    validation: str = "cut",
    stand_in: bool = False,
) -> Babi:
    """Return the published questions, version 1.2 in English.

    Args:
        qa: the task, 1 to 20, or "all".
        size: training questions a task, with those for validation: "1k" or "10k".
        data_dir: the data folder; the release lies in its folder `babi`, as an archive or as a folder.
        path: the release elsewhere: the .tar.gz, which is read without being unpacked, the folder made of it, or the
            one in it that has the files.
        validation: "cut": the last 10 % of the training file, up to whole stories; "official": the split of the
            release, about 10 % of the same stories, chosen at random.
        stand_in: where a 10k training file is not there, take the 1k one of that task; `Babi.stand_ins` names it.

    Raises:
        NoReleaseError: the release is not there.
        OptionError: an option out of its bounds; a file of the release that is not there, or is not the published one;
            a file that breaks the format.
    """
    tasks = _tasks(qa, TASKS)
    folder = FOLDERS[check_choice("validation", validation, VALIDATION), check_choice("size", size, tuple(SIZES))]
    small = FOLDERS[validation, "1k"]
    folders = {folder, small} if check_boolean("stand_in", stand_in) else {folder}
    place = Path(data_dir) / "babi" if path is None else Path(path)
    files = _read(place, folders, tasks)
    if files is None:
        origin = SOURCES["babi"].origin
        raise NoReleaseError(
            f"{place}: has neither {RELEASE} nor {ARCHIVE}; `make data CORPORA=babi` fetches it {origin}"
        )
    splits: dict[str, list[Story]] = {"train": [], "val": [], "test": []}
    stand_ins = []
    for task in tasks:
        source, actual = folder, size
        if (folder, task, "train") not in files and (small, task, "train") in files:
            source, actual = small, "1k"
            stand_ins.append(task)
        train = _stories(files, place, source, task, "train")
        val = _stories(files, place, source, task, "valid") if validation == "official" else []
        # of the official split no checksums are known, but how many questions both its files have
        digest = PUBLISHED[task].get(actual) if validation == "cut" else None
        _check(files[source, task, "train"], train + val, SIZES[actual], digest)
        test = _stories(files, place, folder, task, "test")
        _check(files[folder, task, "test"], test, TEST_SIZE, PUBLISHED[task].get("test"))
        pieces = {"train": train, "val": val} if validation == "official" else cut(train)
        for split, stories in {**pieces, "test": test}.items():
            splits[split] += stories
    if stand_ins:
        log.warning("%s: the 1k training file stands in for that of task %s", folder, ", ".join(map(str, stand_ins)))
    return Babi.of(folder, splits, tuple(stand_ins))


def _tasks(qa: Any, known: Sequence[int]) -> list[int]:
    if qa == "all":
        return list(known)
    if not isinstance(qa, int) or isinstance(qa, bool) or qa not in known:
        raise OptionError(f"qa={qa}: must be an integer from {known[0]} to {known[-1]}, or all")
    return [qa]


class _File(NamedTuple):
    """A file of the release: what it is called in messages, and its content with plain line ends."""

    label: str
    content: bytes


_Files: TypeAlias = dict[tuple[str, int, str], _File]  # by folder, task and part


def _read(place: Path, folders: set[str], tasks: list[int]) -> _Files | None:
    """Return the files of some folders and tasks, None where no release is.

    Raises:
        OptionError: two files of one task and part, or an archive that is not whole.
    """
    found: _Files = {}

    def add(folder: str, name: str, label: str, read: Callable[[], bytes]) -> None:
        matched = FILE.fullmatch(name)
        if folder in folders and matched and int(matched[1]) in tasks:
            key = folder, int(matched[1]), matched[2]
            if key in found:
                raise OptionError(f"{label}: stands beside {found[key].label}: one of them is of another version")
            found[key] = _File(label, read().replace(b"\r\n", b"\n"))

    for root in (place, place / RELEASE):
        plain = root.is_dir() and any(FILE.fullmatch(path.name) for path in root.iterdir())
        if plain or any((root / folder).is_dir() for folder in FOLDERS.values()):
            for folder in folders:
                # a folder that has the files itself is of one size: of which, the number of questions will show
                for path in sorted((root if plain else root / folder).glob("qa*.txt")):
                    add(folder, path.name, str(path), path.read_bytes)
            return found
    packed = place / ARCHIVE if place.is_dir() else place
    if not packed.is_file():
        return None
    try:
        with gzip.open(packed) as unzipped:
            with tarfile.open(fileobj=unzipped, mode="r:") as archive:
                for info in archive:
                    member, inside = archive.extractfile(info), PurePosixPath(info.name)
                    if member is not None:  # as it is where the entry is a folder
                        add(inside.parent.name, inside.name, f"{packed}, {inside}", member.read)
            while unzipped.read(BLOCK):  # to the checksum: tarfile takes what is damaged for the end
                pass
    except (*BROKEN_ARCHIVE, gzip.BadGzipFile):
        raise OptionError(f"{packed}: is not a whole .tar.gz: fetch it again") from None
    return found


def _stories(files: _Files, place: Path, folder: str, task: int, part: str) -> list[Story]:
    file = files.get((folder, task, part))
    if file is None:
        hint = "; stand_in=true takes the 1k one of this task" if folder.endswith("10k") and part == "train" else ""
        origin = SOURCES["babi"].origin
        raise OptionError(f"{place}: has no {folder}/qa{task}_*{part}.txt, which the release has, {origin}{hint}")
    try:
        text = file.content.decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{file.label}: is not UTF-8 at offset {error.start}") from None
    return parse(text, task, file.label)


def _check(file: _File, stories: list[Story], count: int, digest: str | None) -> None:
    """Raise `OptionError` where a file has another number of questions than was published, or another content."""
    found = sum(map(len, stories))
    if found != count:
        raise OptionError(
            f"{file.label}: has {found:,} questions, and {count:,} were published: it is cut off, or of another size"
        )
    actual = hashlib.sha256(file.content).hexdigest()
    if digest is not None and not actual.startswith(digest):
        raise OptionError(
            f"{file.label}: is not the file of version 1.2 (sha256 {actual[: len(digest)]}…, published {digest}…): "
            "take all files from one release"
        )


def load_generated(qa: int | str, size: str, seed: int) -> Babi:
    """Return generated questions, in splits of the published sizes: for a machine that has no release.

    Args:
        qa: the task, 1 or 2, or "all", which is both.
        size: as of `load`.
        seed: of the stories.

    Raises:
        OptionError: another task or size.
    """
    tasks = _tasks(qa, GENERATED)
    count = SIZES[check_choice("size", size, tuple(SIZES))]
    splits: dict[str, list[Story]] = {"train": [], "val": [], "test": []}
    for task in tasks:
        pieces = cut(generate(task, count, mix_seed(seed, f"babi {task} train")))
        pieces["test"] = generate(task, TEST_SIZE, mix_seed(seed, f"babi {task} test"))
        for split, stories in pieces.items():
            splits[split] += stories
    return Babi.of(GENERATED_NAME, splits)
