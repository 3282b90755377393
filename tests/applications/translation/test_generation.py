"""Translations of any sentences by the command `gyral generate`."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gyral.applications.translation.generation import translate
from gyral.applications.translation.task import TranslationTask
from gyral.core.errors import OptionError
from tests.helpers.running import Outcome, invoke


def generate(run: Path, *options: str) -> Outcome:
    return invoke(f"run={run}", *options, entry="generate")


def sentences(run: Path) -> tuple[list[str], list[str]]:
    lines = [json.loads(line) for line in (run / "translations_test.jsonl").read_text().splitlines()]
    return [line["source"] for line in lines], [line["translation"] for line in lines]


def test_a_text_is_translated(translation_run: Path) -> None:
    sources, translations = sentences(translation_run)
    outcome = generate(translation_run, f"text='{sources[0]}'")
    assert outcome.status == 0, outcome.err
    assert outcome.out == f"{translations[0]}\n"


def test_every_line_of_a_file_or_of_standard_input_is_translated(
    translation_run: Path, trained: TranslationTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, translations = sentences(translation_run)
    content = f"{sources[0]}\n\n  {sources[1]} \n{sources[2]}".encode()
    (tmp_path / "given.txt").write_bytes(content)
    expected = [f"{line}\n" for line in (translations[0], "", *translations[1:])]
    assert list(translate(trained, input=f"{tmp_path}/given.txt", batch_size=2)) == expected
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert list(translate(trained, input="-")) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 2}, "text=None: give either a text or an input, a file with a sentence on each line"),
        ({"text": "a", "input": "b"}, "text=a: give either a text or an input, a file with a sentence on each line"),
        ({"input": "nowhere.txt"}, "input=nowhere.txt: cannot be read (No such file or directory)"),
        ({"text": "a", "beam": 0}, "beam=0: must be an integer ≥ 1"),
        ({"text": "a", "batch_size": 0}, "batch_size=0: must be an integer ≥ 1"),
    ],
)
def test_options_that_do_not_fit_are_one_line(trained: TranslationTask, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        list(translate(trained, **options))
    assert str(raised.value) == message


def test_a_file_that_is_not_utf8_is_refused(translation_run: Path, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_bytes(b"a\n\xffb\n")
    error = generate(translation_run, f"input={tmp_path}/given.txt").error
    assert error == f"input={tmp_path}/given.txt: is not UTF-8: byte 0xff in b'\\xffb\\n'"


def test_sentences_of_a_file_have_predictions(translation_run: Path, trained: TranslationTask, tmp_path: Path) -> None:
    sources, translations = sentences(translation_run)
    (tmp_path / "given.txt").write_text(f"{sources[0]}\n\n{sources[1]}\n")
    outcome = invoke(f"run={translation_run}", f"data={tmp_path}/given.txt", entry="predict")
    assert outcome.status == 0, outcome.err
    assert [line.split(",")[0] for line in outcome.out.splitlines()] == ["row", "0", "1", "2"]
    frame = trained.predict([sources[0], "", sources[1]])
    assert frame.prediction.tolist() == [translations[0], "", translations[1]]
    with pytest.raises(OptionError, match=r"data=lines: is empty; must have a sentence on each line"):
        trained.predict([])
