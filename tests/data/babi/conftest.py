"""Releases of the tests."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from gyral.core.errors import UserError
from gyral.data.babi import release as release_module
from gyral.data.babi.corpus import Babi, load
from gyral.data.babi.release import RELEASE, TASKS
from gyral.data.babi.stories import write
from gyral.data.babi.synthetic import generate

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data"))
SMALL = {"1k": 20, "10k": 60}  # questions of a training file in the small release
SMALL_TEST = 10


@pytest.fixture
def real() -> Path:
    """The data folder with the real release."""
    if not (DATA / "babi" / RELEASE / "en").is_dir():
        pytest.skip(f"no babi/{RELEASE}/en in {DATA} (set DATA_DIR)")
    return DATA


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release of small files, all of them generated, in the data folder that is its parent's parent."""
    monkeypatch.setattr(release_module, "SIZES", SMALL)
    monkeypatch.setattr(release_module, "TEST_SIZE", SMALL_TEST)
    monkeypatch.setattr(release_module, "PUBLISHED_DIGESTS", {task: {} for task in TASKS})
    folder = tmp_path / "babi" / RELEASE
    for task in TASKS:
        for name, size in (("en", "1k"), ("en-10k", "10k")):
            put(folder / name / f"qa{task}_any-slug_train.txt", written(task, SMALL[size]))
            put(folder / name / f"qa{task}_any-slug_test.txt", written(task, SMALL_TEST, seed=2))
        put(folder / "en-valid" / f"qa{task}_train.txt", written(task, 15))
        put(folder / "en-valid" / f"qa{task}_valid.txt", written(task, 5, seed=3))
        put(folder / "en-valid" / f"qa{task}_test.txt", written(task, SMALL_TEST, seed=2))
    return folder


def written(task: int, count: int, seed: int = 1) -> str:
    """Return generated stories in the form of any task."""
    stories = generate(1 + task % 2, count, seed)
    return write([[question._replace(task=task) for question in story] for story in stories])


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def packed(release: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as made:
        made.add(release, f"./{RELEASE}")
        junk = tarfile.TarInfo(f"{RELEASE}/en/._qa1_any-slug_train.txt")
        junk.size = 3
        made.addfile(junk, io.BytesIO(b"\xff\x00\xff"))
    return archive


def small_release(folder: Path, patch: pytest.MonkeyPatch) -> tuple[dict[str, str], list[Path]]:
    """Write task 1 into a data folder, unpacked; return the options that select it, and its files."""
    patch.setattr(release_module, "SIZES", SMALL)
    patch.setattr(release_module, "TEST_SIZE", SMALL_TEST)
    patch.setattr(release_module, "PUBLISHED_DIGESTS", {1: {}})
    unpacked = folder / "babi" / RELEASE / "en"
    files = {"train": written(1, SMALL["1k"]), "test": written(1, SMALL_TEST, seed=2)}
    paths = [put(unpacked / f"qa1_any_{part}.txt", text) for part, text in files.items()]
    return {"data_dir": str(folder), "size": "1k"}, paths


def counts(data: Babi) -> list[int]:
    return [sum(map(len, data.splits[split])) for split in ("train", "val", "test")]


def message(*arguments: object, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        load(*arguments, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"data_dir={arguments[2]}: ")
