"""bAbI question answering (Weston et al. 2015, arXiv:1502.05698): splits, vocabulary and answer classes."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyral.core.checks import check_boolean, check_choice
from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import read_text
from gyral.core.measures import SPLITS, Remark
from gyral.data.babi import release, synthetic
from gyral.data.babi.release import FOLDERS, TASKS, NoReleaseError, Release
from gyral.data.babi.stories import Sentence, Story, parse, questions, split_validation
from gyral.data.batching import mix_seed
from gyral.data.vocabulary import PADDING, UNKNOWN, Vocabulary

log = logging.getLogger(__name__)

VALIDATION = ("cut", "official")
GENERATED = "generated"  # name of a corpus of generated stories
STAND_INS = Remark("stand_ins", "°", "trained on the 1k file, because the 10k file does not exist")


@dataclass(frozen=True)
class Babi:
    """Questions of one or all tasks, and the words and answers of their training split.

    Attributes:
        name: folder of the release that contains the questions, "generated", or the name of the user's training file.
        splits: "train", "val" and "test".
        stand_ins: tasks for which the 1k training file replaces a missing 10k training file.
        vocabulary: words in lower case; index 0 is padding, and index 1 is any word outside the training split.
        classes: answers of the training split, sorted; the index of an answer is its class.
    """

    name: str
    splits: dict[str, list[Story]]
    stand_ins: tuple[int, ...]
    vocabulary: Vocabulary
    classes: tuple[str, ...]

    @classmethod
    def of(cls, name: str, splits: dict[str, list[Story]], stand_ins: tuple[int, ...] = ()) -> "Babi":
        """Build the vocabulary and classes from the training split, and warn about answers outside it."""
        sentences, answers = set[Sentence](), set[str]()
        for question in questions(splits["train"]):
            sentences.update(question.story)
            sentences.add(question.words)
            answers.add(question.answer)
        known = sorted({word.lower() for sentence in sentences for word in sentence})
        vocabulary = Vocabulary("word", [PADDING, UNKNOWN, *known])
        babi = cls(name, splits, stand_ins, vocabulary, tuple(sorted(answers)))
        for split in ("val", "test"):
            if unseen := babi.unseen_answers(split):
                log.warning(
                    "%s: the answer of %d of %d %s questions is not in the training split (%s): they count as wrong",
                    *(name, unseen.total(), sum(map(len, splits[split])), split, "; ".join(sorted(unseen))),
                )
        return babi

    def unseen_answers(self, split: str) -> Counter[str]:
        """Return the answers of a split that are not in the training split, with their number of questions."""
        known = set(self.classes)
        return Counter(question.answer for question in questions(self.splits[split]) if question.answer not in known)


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
        qa: task, 1 to 20, or "all".
        size: training questions per task, including those for validation: "1k" or "10k".
        data_dir: data folder, which contains the release in its folder `babi`, packed or unpacked.
        path: path of the release if it is elsewhere, see `gyral.data.babi.release.Release`.
        validation: "cut": the last 10 % of the training file, rounded to whole stories; "official": the split of the
            release, about 10 % of the same stories, chosen at random.
        stand_in: whether the 1k training file of a task replaces a missing 10k training file; `Babi.stand_ins` lists
            these tasks.

    Raises:
        NoReleaseError: `path` is None, and the data folder does not contain the release.
        OptionError: an option is out of its bounds; a file of the release does not exist, cannot be read, is not the
            published file, or is not in the format.
    """
    tasks = _tasks(qa, TASKS)
    folder = FOLDERS[
        check_choice("validation", validation, VALIDATION), check_choice("size", size, tuple(release.SIZES))
    ]
    small = FOLDERS[validation, "1k"]
    folders = {folder, small} if check_boolean("stand_in", stand_in) else {folder}
    option, place = ("data_dir", data_dir) if path is None else ("path", path)
    try:
        found = Release(Path(data_dir) / "babi" if path is None else Path(path), folders, tasks, (option, place))
        return _read(found, folder, size, small)
    except OptionError:
        raise
    except UserError as error:
        if path is None and isinstance(error, NoReleaseError):
            raise
        raise OptionError(option, place, str(error).removeprefix(f"{place}: ")) from None
    except OSError as error:
        raise OptionError(option, place, f"{error.filename or place} cannot be read ({error.strerror})") from None


def _read(found: Release, folder: str, size: str, small: str) -> Babi:
    """Return the questions of a release.

    Args:
        found: the release.
        folder: folder of the files.
        size: training questions per task in it.
        small: folder with the 1k files, which replace missing 10k files if the release was opened with it.
    """
    sizes = release.SIZES
    splits: dict[str, list[Story]] = {split: [] for split in SPLITS}
    stand_ins = []
    is_official = "valid" in folder
    for task in found.tasks:
        source, actual = folder, size
        if (folder, task, "train") not in found.files and (small, task, "train") in found.files:
            source, actual = small, "1k"
            stand_ins.append(task)
        digests = release.PUBLISHED_DIGESTS[task]
        train = found.stories(source, task, "train")
        val = found.stories(source, task, "valid") if is_official else []
        # for the official split no checksums are known, only the number of questions in both files together
        digest = None if is_official else digests.get(actual)
        found.check(source, task, "train", sum(map(len, train + val)), sizes[actual], digest)
        test = found.stories(folder, task, "test")
        found.check(folder, task, "test", sum(map(len, test)), release.TEST_SIZE, digests.get("test"))
        pieces = {"train": train, "val": val} if is_official else split_validation(train)
        for split, stories in {**pieces, "test": test}.items():
            splits[split] += stories
    if stand_ins:
        log.warning("%s: the 1k training file replaces the 10k file of task %s", folder, ", ".join(map(str, stand_ins)))
    return Babi.of(folder, splits, tuple(stand_ins))


def load_files(files: Any, qa: Any = 1) -> Babi:
    """Return the questions of files of the user's in the format of bAbI, in any language, with any sentences.

    A last line need not end, and a question need not name its facts. Answers that are not in the training file count as
    wrong.

    Args:
        files: paths of the files for training and test, of which the last 10 % of the training stories are for
            validation; or for training, validation and test.
        qa: number of the task that these questions are reported as, 1 to 20.

    Raises:
        OptionError: there are not two or three files; a file cannot be read, is not in the format, or has no question.
            The message names the first wrong line.
    """
    if not isinstance(files, Sequence) or isinstance(files, str) or len(files) not in (2, 3):
        raise OptionError(
            "files", files, "must be two files, [train.txt,test.txt], or three, [train.txt,val.txt,test.txt]"
        )
    if qa == "all":
        raise OptionError("qa", qa, f"must be an integer from {TASKS[0]} to {TASKS[-1]} for your own files")
    paths = [Path(str(file)) for file in files]
    found = []
    for path in paths:
        text = read_text("files", files, path)
        try:
            ended = text if text.endswith("\n") or not text else f"{text}\n"
            found.append(parse(ended, _tasks(qa, TASKS)[0], str(path), needs_facts=False))
            if not found[-1]:
                raise UserError(f"{path}: has no question")
            pieces = split_validation(found[0]) if len(paths) == 2 else {"train": found[0]}
        except OptionError:
            raise
        except UserError as error:
            raise OptionError("files", files, str(error)) from None
    return Babi.of(paths[0].name, {"val": found[-2], **pieces, "test": found[-1]})


def load_generated(qa: int | str, size: str, seed: int) -> Babi:
    """Return generated questions in splits of the published sizes, for machines without the release.

    Args:
        qa: task, 1 or 2, or "all" for both.
        size: as in `load`.
        seed: seed of the stories.

    Raises:
        OptionError: another task or size.
    """
    tasks = _tasks(qa, synthetic.TASKS)
    count = release.SIZES[check_choice("size", size, tuple(release.SIZES))]
    splits: dict[str, list[Story]] = {split: [] for split in SPLITS}
    for task in tasks:
        pieces = split_validation(synthetic.generate(task, count, mix_seed(seed, f"babi {task} train")))
        pieces["test"] = synthetic.generate(task, release.TEST_SIZE, mix_seed(seed, f"babi {task} test"))
        for split, stories in pieces.items():
            splits[split] += stories
    return Babi.of(GENERATED, splits)


def _tasks(qa: Any, known: Sequence[int]) -> list[int]:
    if qa == "all":
        return list(known)
    if not isinstance(qa, int) or isinstance(qa, bool) or qa not in known:
        raise OptionError("qa", qa, f"must be an integer from {known[0]} to {known[-1]}, or all")
    return [qa]


def load_stories(
    qa: int | str,
    size: str,
    data_dir: str | Path,
    *,
    generated: bool,
    seed: int,
    files: Sequence[str | Path] | None = None,
    **options: Any,
) -> Babi:
    """Return the questions of files of the user's, the published questions or, without a release, generated questions.

    Args:
        qa, size, data_dir, **options: see `load`.
        files: see `load_files`; the other options but `qa` then have no effect. None: no files of the user's.
        generated: whether to return generated stories even if there is a release.
        seed: seed of generated stories.

    Raises:
        UserError: an option is out of bounds; the data is not the published data; stories of this task cannot be
            generated, and the message also says which files are missing.
    """
    if files is not None:
        return load_files(files, qa)
    if check_boolean("generated", generated):
        return load_generated(qa, size, seed)
    try:
        return load(qa, size, data_dir, **options)
    except NoReleaseError as error:
        try:
            found = load_generated(qa, size, seed)
        except OptionError as refused:
            raise OptionError(refused.option, refused.value, f"{refused.reason}; {error}") from None
        log.warning("%s; using GENERATED stories, whose results are not results on bAbI", error)
        return found
