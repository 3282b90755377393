"""A run knows the data that it was trained on: absolute paths, and digests that are compared wherever data are read."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from gyral import load
from gyral.config.plain import as_config
from gyral.core import digests as data_digests
from gyral.core.digests import digest_of
from gyral.core.errors import OptionError
from gyral.runs import data_files
from gyral.runs.data_files import files_of
from gyral.runs.directory import Run, load_run
from tests.helpers.running import SMALL_TEXT, compose_choices, invoke, train
from tests.training.test_longer_runs import RUN

# An option of each kind of data with a value whose files are made, and the choice in conf/task that has it.
OPTIONS = {
    "text": ("text_file", "corpus.path", "t.txt"),
    "sequences": ("sequences", "data", "t.csv"),
    "folder of sequences": ("sequences", "data", "folder"),
    "articles": ("summarization_jsonl", "corpus.train", "t.jsonl[:900]"),
    "pattern of articles": ("summarization_jsonl", "corpus.test", "t*.jsonl"),
    "babi": ("babi", "path", "folder"),
    "babi files": ("babi", "files", ["train.txt", "test.txt"]),
    "babi_reading": ("babi_reading", "path", "folder"),
    "pairs": ("translation", "corpus.val", ["t.en", "t.de"]),
    "pairs of both languages": ("translation", "corpus.train", "t.tsv"),
    "questions": ("cloze", "path", "folder"),
    "hypernyms": ("cloze", "hypernyms", "folder"),
    "chains": ("lambada", "chains", "t.conll"),
    "automaton": ("group", "automaton", "t.json"),
    "formulas": ("logical_inference", "path", "folder"),
    "hierarchy": ("hypernyms", "hierarchy", "t.tsv"),
    "lattice": ("lattice", "hierarchy", "t.tsv"),
    "phrases": ("phrases", "train", ["t.txt"]),
    "ratings": ("ratings", "ratings", "u.data"),
    "titles": ("ratings", "titles", "u.item"),
    "pictures": ("scenes", "clevr", "folder"),
}
COMMAND = (*SMALL_TEXT, "model=gru", "trainer.max_steps=2", "trainer.val_check_interval=2")


def make(value: Any, content: str) -> None:
    for name in value if isinstance(value, list) else [value]:
        path = Path(name.partition("[")[0].replace("*", "0"))
        if not path.suffix:
            path.mkdir(exist_ok=True)
            path /= "part"
        path.write_text(content)


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_that_names_data_has_a_path_and_a_digest(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, option, value = OPTIONS[kind]
    monkeypatch.chdir(tmp_path)
    make(value, "one")
    config = OmegaConf.create({"task": compose_choices("task")[task], "weights": None})
    OmegaConf.update(config, f"task.{option}", value)
    values: Any = OmegaConf.to_container(config, resolve=False)
    data_files.make_paths_absolute(values)
    owner, name = data_files.owner_of(values, f"task.{option}")
    assert owner is not None
    expected = [str(tmp_path / each) for each in (value if isinstance(value, list) else [value])]
    assert owner[name] == (expected if isinstance(value, list) else expected[0])

    saved = data_files.digests(values)
    assert list(saved) == [f"task.{option}"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "provenance.json").write_text(json.dumps({"data": saved}))

    def check() -> None:
        Run(tmp_path / "run", as_config(values)).check_data()

    check()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    make(value, "two")
    check()  # of the former folder
    owner[name] = value
    with pytest.raises(
        OptionError, match=rf"^task\.{option}=.* run in .*, whose SHA-256 is {saved[f'task.{option}'][:16]}"
    ):
        check()
    make(value, "one")
    check()  # a copy of the data


def test_the_digest_of_a_file_is_its_sha_256_and_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "t.txt"
    file.write_text("abc")
    read: list[Any] = []
    original = data_digests._read
    monkeypatch.setattr(data_digests, "_read", lambda states: read.append(states) or original(states))
    monkeypatch.setattr(data_digests, "LARGE", 2)
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        assert digest_of(files_of(file)) == hashlib.sha256(b"abc").hexdigest()
        data_digests._digest.cache_clear()  # another process
    assert len(read) == 1
    file.write_text("abcd")
    assert digest_of(files_of(file)) == hashlib.sha256(b"abcd").hexdigest()


def test_other_values_name_no_data() -> None:
    for value in ("huggingface:wmt14:de-en:train", "", "a\0b", 3, None, [], ["no such file"], "x" * 9999):
        assert files_of(value) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 2 steps on the file data/t.txt beside it, which was typed as t.txt; other/t.txt has another text."""
    folder = tmp_path_factory.mktemp("texts")
    for name, text in (("data", "The cat sat on the mat.\n"), ("other", "The cot sit in the met.\n")):
        (folder / name).mkdir()
        (folder / name / "t.txt").write_text(200 * text)
    with pytest.MonkeyPatch.context() as context:
        context.chdir(folder / "data")
        return train(folder / "run", *COMMAND, f"paths.data_dir={folder}", "task.corpus.path=t.txt")


def test_a_run_is_evaluated_and_resumed_on_its_data_alone(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = run.parent / "data" / "t.txt"
    own = hashlib.sha256(text.read_bytes()).hexdigest()
    monkeypatch.chdir(run.parent / "other")
    assert OmegaConf.load(run / "config.yaml").task.corpus.path == str(text)
    assert json.loads((run / "provenance.json").read_text())["data"] == {"task.corpus.path": own}
    wanted = invoke(f"run={run}", entry="evaluate")
    assert wanted.status == 0, wanted.err

    other, moved = "task.corpus.path=t.txt", tmp_path / "moved.txt"
    shutil.copyfile(text, moved)
    for entry, words in (("evaluate", [f"run={run}"]), ("generate", [f"run={run}", "prompt=The"])):
        assert own[:16] in invoke(*words, other, entry=entry).error
    assert own[:16] in invoke(f"resume={run}", "trainer.max_steps=4", other).error
    assert invoke(f"run={run}", f"task.corpus.path={moved}", entry="evaluate").out == wanted.out
    assert "is not a data file of the run" in invoke(f"run={run}", "task.window=3", entry="evaluate").error
    with pytest.raises(OptionError, match=own[:16]):
        load(run, data={"task.corpus.path": "t.txt"})

    longer = Path(shutil.copytree(run, tmp_path / "run"))
    outcome = invoke(f"resume={longer}", "trainer.max_steps=4", f"task.corpus.path={moved}")
    assert outcome.status == 0, outcome.err
    moved.write_text("another text\n" * 300)
    assert own[:16] in invoke(f"run={longer}", entry="evaluate").error

    again = Path(shutil.copytree(run, tmp_path / "again"))
    (again / "config.yaml").write_text((run / "config.yaml").read_text().replace(str(text), str(moved)))
    command = (*COMMAND, f"paths.data_dir={run.parent}", f"task.corpus.path={moved}", f"hydra.run.dir={again}")
    assert own[:16] in invoke(*command).error
    moved.unlink()
    assert invoke(*command).status == 0, "results without the data"
    assert "does not exist; the run in" in invoke(f"run={longer}", entry="evaluate").error
    with pytest.raises(OptionError, match=own[:16]):
        load(longer / "checkpoints" / "last.ckpt")


@pytest.mark.slow
def test_the_same_command_resumes_a_run_whose_path_was_typed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent / "data")
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    (copied / "DONE").unlink()
    words = (*COMMAND, f"paths.data_dir={run.parent}", f"hydra.run.dir={copied}")
    assert invoke(*words, "task.corpus.path=t.txt").status == 0
    monkeypatch.chdir(run.parent / "other")
    assert "holds a run of another configuration" in invoke(*words, "task.corpus.path=t.txt").error


def test_a_run_without_digests_is_not_checked(run: Path, tmp_path: Path) -> None:
    released = Path(shutil.copytree(run, tmp_path / "run"))
    provenance = json.loads((released / "provenance.json").read_text())
    (released / "provenance.json").write_text(json.dumps({**provenance, "data": None}))
    config = OmegaConf.load(released / "config.yaml")
    config.task.corpus.path = str(run.parent / "other" / "t.txt")
    OmegaConf.save(config, released / "config.yaml")
    load_run(released).check_data()


@pytest.mark.slow
def test_the_weights_of_another_run_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(Path("first"), *RUN, "trainer.max_steps=2")
    train(Path("second"), *RUN, "trainer.max_steps=2", "weights=first")
    assert OmegaConf.load("second/config.yaml").weights == str(tmp_path / "first")
    shutil.rmtree("second/checkpoints")
    Path("second/DONE").unlink()
    assert invoke("resume=second").status == 0
    shutil.rmtree("second/checkpoints")
    Path("second/DONE").unlink()
    train(Path("third"), *RUN, "trainer.max_steps=2", "seed=2")
    shutil.rmtree("first")
    Path("third").rename("first")
    assert f"weights={tmp_path / 'first'}: has another content" in invoke("resume=second").error


@pytest.mark.slow
@pytest.mark.parametrize("task", ["babi", "logical_inference"])
def test_a_run_on_published_data_is_not_evaluated_on_generated_data(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word for word in RUN if not word.startswith("task")]
    small = {"babi": ["task.size=1k"], "logical_inference": ["task.generated=true"]}[task]
    words = [*words, f"task={task}", *small, "task.batch_size=8", "trainer.max_steps=2", f"paths.data_dir={tmp_path}"]
    run = train(tmp_path / "run", *words, "trainer.val_check_interval=2")
    for checkpoint in run.glob("checkpoints/*.ckpt"):
        content = torch.load(checkpoint, weights_only=True)
        assert 1 in content["substitutes"].values()
        content["substitutes"] = dict.fromkeys(content["substitutes"], 0.0)  # as if it were from the published data
        torch.save(content, checkpoint)
    error = invoke(f"run={run}", entry="evaluate").error
    assert "was trained on other data (" in error
    assert "=1) than" not in error
