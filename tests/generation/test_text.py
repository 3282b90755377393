"""Continuations of prompts: exact, reproducible and streamed."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from gyral.config.overrides import quote
from gyral.data.vocabulary import split_words
from gyral.generation.text import continue_text, start_token
from gyral.models.prediction import distribution, sample
from tests.generation.conftest import SIZES, Trained
from tests.helpers.running import build_task


def test_text_continues_the_prompt_and_logs_go_to_standard_error(trained: Trained) -> None:
    outcome = trained.generate("prompt=the ", "length=30", "temperature=0.8", "top_p=0.9")
    assert outcome.status == 0
    assert outcome.out.startswith("the ")
    assert len(outcome.out.removesuffix("\n")) in (34, 33)  # the last may itself be a line end
    assert outcome.out.endswith("\n")
    assert "best checkpoint (step " in outcome.err


def test_the_seed_determines_the_text(trained: Trained) -> None:
    first = "".join(continue_text(trained.task, prompt="the ", length=60, seed=1))
    assert trained.write("prompt=the ", "length=60").removesuffix("\n") == first.removesuffix("\n"), "the default"
    assert "".join(continue_text(trained.task, prompt="the ", length=60, seed=2)) != first
    greedy = [
        "".join(continue_text(trained.task, prompt="the ", length=60, temperature=0, seed=seed)) for seed in (1, 2)
    ]
    assert greedy[0] == greedy[1]


def test_a_prompt_is_used_unchanged(trained: Trained) -> None:
    prompt = ' the  "dog" & <mat> !\n '
    written = trained.write(f"prompt={prompt}", "length=1", "temperature=0")
    assert written.startswith(prompt)


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("a '\"\\${},=[]()\n\t~:é#?")))
def test_every_text_can_be_passed_as_an_override(text: str) -> None:
    if re.fullmatch(r"'.*'|\".*\"", text, re.DOTALL):
        return  # quoted for Hydra already
    value = OverridesParser.create().parse_override(quote(f"prompt={text}")).value()
    assert OmegaConf.to_container(OmegaConf.create({"prompt": value}), resolve=True) == {"prompt": text}


def test_without_a_prompt_a_line_begins(trained: Trained, tmp_path: Path) -> None:
    task = trained.task
    line_end = task.data.corpus.vocabulary.index["\n"]
    first = next(sample(task.model, torch.tensor([line_end]), window=4, temperature=0, top_p=1, seed=1))
    assert trained.write("length=1", "temperature=0").startswith(task.data.corpus.vocabulary.symbols[first])
    assert trained.write("prompt=", "length=9") == trained.write("length=9")
    for text, start in (("ab a" * 50, " "), ("abcb" * 50, "b")):
        (tmp_path / "text.txt").write_text(text)
        task = build_task("model=gru", *SIZES, f"task.corpus.path={tmp_path}/text.txt", f"paths.data_dir={tmp_path}")
        assert task.data.corpus.vocabulary.symbols[start_token(task.data.corpus)] == start


def test_words_are_written_with_spaces_between_them(of_words: Trained) -> None:
    written = of_words.write("prompt=the  cat", "length=40", "seed=3")
    assert written.startswith("the cat")
    assert "  " not in written
    assert " \n" not in written
    words = split_words(written)
    assert 42 <= len(words) <= 43  # with the end of the last line
    assert set(words) <= set(of_words.task.data.corpus.vocabulary.symbols)


def test_bytes_are_written_as_characters_when_complete(of_bytes: Trained) -> None:
    task = of_bytes.task
    pieces = list(continue_text(task, prompt="über –", length=300, temperature=2.0, seed=1))
    assert pieces[0] == "über –"
    assert len(pieces) == 302
    written = "".join(pieces)
    assert "�" in written  # at this temperature some characters are broken
    assert set(written) & set("üïé–")
    assert of_bytes.write("prompt=über –", "length=300", "temperature=2.0").rstrip("\n") == written.rstrip("\n")


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (1, 1.0, [1.0, 0.0, 0.0, 0.0]),
        (2, 1.0, [0.6, 0.4, 0.0, 0.0]),
        (3, 1.0, [6 / 13, 4 / 13, 3 / 13, 0.0]),
        (4, 1.0, [0.3, 0.2, 0.15, 0.35]),
        (9, 1.0, [0.3, 0.2, 0.15, 0.35]),
        (2, 0.5, [1.0, 0.0, 0.0, 0.0]),
        (3, 0.7, [0.6, 0.4, 0.0, 0.0]),
    ],
)
def test_only_the_likeliest_symbols_are_drawn(top_k: int, top_p: float, kept: list[float]) -> None:
    chances = torch.tensor([0.3, 0.2, 0.15, 0.35] if top_k > 3 else [0.6, 0.4, 0.3, 0.2], dtype=torch.float64)
    found = distribution(chances.log(), 1.0, top_p, top_k)
    torch.testing.assert_close(found, torch.tensor(kept, dtype=torch.float64))


def test_the_likeliest_symbol_alone_equals_that_of_temperature_0(trained: Trained) -> None:
    def written(**options: Any) -> str:
        return "".join(continue_text(trained.task, prompt="the ", length=40, **options))

    assert written(top_k=1, seed=5) == written(temperature=0) != written(top_k=2, seed=5)
