"""Surprisal of a text: equal to the evaluation loss, in the terminal and on a page."""

import io
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.data.batching import IGNORED
from gyral.data.text.windows import Windows
from gyral.generation.surprisal import show_surprisal, surprisals
from gyral.generation.surprisal_view import LIMITS, MeanSurprisal
from tests.generation.conftest import SIZES, TEXT, Trained
from tests.helpers.running import build_task


def one_row(task: Any, symbols: Any) -> float:
    """Return the loss that evaluation takes of a text read in one row."""
    tokens = task.data.corpus.vocabulary.encode(symbols)
    (window,) = Windows(tokens, 1, len(tokens) - 1)
    assert not (window.targets == IGNORED).any()
    with torch.no_grad():
        return task.loss(task(window), window).item()


@pytest.mark.parametrize("level", ["of_words", "of_bytes"])
def test_the_mean_is_the_loss_of_evaluation(level: str, request: pytest.FixtureRequest) -> None:
    task = request.getfixturevalue(level).task
    symbols = task.data.corpus.vocabulary.segment(TEXT[:1000])
    found = list(surprisals(task, symbols))
    assert len(found) == len(symbols)
    assert found[0].bits is None
    nats = [surprisal.bits * math.log(2) for surprisal in found[1:]]
    assert sum(nats) / len(nats) == pytest.approx(one_row(task, symbols), abs=1e-6)
    mean = MeanSurprisal(task.data.corpus.level)
    assert list(mean.count(found)) == found
    assert f"mean {sum(nats) / len(nats) / math.log(2):.3f} bits a " in str(mean)


def test_a_text_is_read_in_windows_one_after_another(trained: Trained) -> None:
    task = trained.task
    lengths: list[int] = []
    hook = task.model.register_forward_pre_hook(lambda model, arguments: lengths.append(arguments[0].shape[1]))
    found = surprisals(task, TEXT[:100])
    assert next(found).symbol == "t"
    assert next(found).symbol == "h"
    assert lengths == [16]
    assert len(list(found)) == 98
    assert lengths == [16] * 6 + [3]
    hook.remove()


def test_the_likeliest_symbols_have_the_probabilities_of_the_model(trained: Trained) -> None:
    task = trained.task
    text = TEXT[:40]
    vocabulary = task.data.corpus.vocabulary
    with torch.no_grad():
        logits, _ = task.model(torch.from_numpy(vocabulary.encode(text).astype("int64"))[None])
    chances = logits[0].softmax(-1)
    for place, surprisal in enumerate(surprisals(task, text)):
        if place:
            known = dict(zip(vocabulary.symbols, chances[place - 1].tolist(), strict=True))
            assert surprisal.bits == pytest.approx(-math.log2(known[surprisal.symbol]), abs=1e-4)
            assert [name for name, _ in surprisal.likeliest] == sorted(known, key=known.__getitem__, reverse=True)[:3]
            assert [chance for _, chance in surprisal.likeliest] == pytest.approx(
                sorted(known.values())[:-4:-1], abs=1e-5
            )


class Page(HTMLParser):
    """The text of a page and its other content."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.shown, self.titles, self.classes, self.within = "", [], [], False
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.addresses += [str(named[name]) for name in ("src", "href") if name in named]
        self.within = tag == "pre" or (self.within and tag == "span")
        if self.within and tag == "span":
            self.titles.append(named["title"])
            self.classes.append(named.get("class"))

    def handle_endtag(self, tag: str) -> None:
        self.within = self.within and tag != "pre"

    def handle_data(self, data: str) -> None:
        self.shown += data if self.within else ""


def test_a_page_shows_the_text_and_needs_no_other_file(trained: Trained, tmp_path: Path) -> None:
    text = 'a dog <barks> & "runs" .\nthe'
    (tmp_path / "a, b.txt").write_text(text)
    out = trained.write(f"surprisal={tmp_path}/a, b.txt", f"html={tmp_path}/made/out.html")
    source = (tmp_path / "made" / "out.html").read_text()
    page = Page(source)
    assert page.shown.removeprefix("\n") == text.replace("\n", "⏎\n")
    assert len(page.titles) == len(text)
    assert page.titles[0] == "‘a’: the first symbol, which is not predicted"
    assert re.fullmatch(r"space: \d+\.\d\d bits(\n(< 0|\d+)\.\d %  (‘.’|space|line end)){3}", page.titles[1])
    found = list(surprisals(trained.task, text))
    steps = [sum(limit <= (surprisal.bits or 0) for limit in LIMITS) for surprisal in found]
    assert page.classes == [f"s{step}" if step else None for step in steps]
    assert page.addresses == []
    assert "http" not in source
    assert "prefers-color-scheme: dark" in source
    assert "Surprisal of a, b.txt" in source
    assert "over 27 characters" in source
    assert out.startswith("mean ")
    assert out.endswith("out.html\n")
    assert not list((tmp_path / "made").glob("*.tmp"))


def test_words_are_coloured_without_the_spaces_between_them(of_words: Trained, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat\n\nthe zebra .\n")
    of_words.write(f"surprisal={tmp_path}/text.txt", f"html={tmp_path}/out.html")
    source = (tmp_path / "out.html").read_text()
    page = Page(source)
    assert len(page.titles) == 9
    assert re.findall(r">([^<>]+)</span> <span", source.partition("<pre>")[2])[:2] == ["the", "cat"]
    assert page.titles[6].startswith("‘zebra’ (read as <unk>): ")
    assert sum(title.startswith("line end: ") for title in page.titles) == 3


def test_the_bits_of_a_characters_bytes_add_up(of_bytes: Trained, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes("ü – é".encode() + b"\xc3")  # the last lacks a byte
    of_bytes.write(f"surprisal={tmp_path}/text.txt", f"html={tmp_path}/out.html")
    page = Page((tmp_path / "out.html").read_text())
    assert page.shown.removeprefix("\n") == "ü – é�"
    bits = [float(value) for value in re.findall(r": (\d+\.\d\d) bits", page.titles[2])]
    assert page.titles[2].startswith("‘–’: ")
    assert "of 3 bytes" in page.titles[2]
    assert bits[0] == pytest.approx(sum(bits[1:]), abs=0.02)
    assert page.titles[5].startswith("byte 0xc3: ")


def test_a_terminal_shows_colours_and_a_pipe_lines(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the cat sat on\nthe !<é> mat"
    piped = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", piped)
    lines = trained.write("surprisal=-").splitlines()
    assert "".join(json.loads(line.split("\t")[1]) for line in lines[:-1]) == text
    bits = [float(line.split("\t")[0]) for line in lines[1:-1]]
    assert lines[0].split("\t")[0] == ""
    mean = re.match(r"# mean (\d+\.\d+) bits a character", lines[-1])
    assert mean is not None
    assert float(mean[1]) == pytest.approx(sum(bits) / len(bits), abs=0.006), "bits are rounded to two digits"

    piped.seek(0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    shown = trained.write("surprisal=-")
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert plain.startswith(text.replace("\n", "⏎\n") + "\n\nbits < 1  1–2 ")
    assert plain.splitlines()[-1] == lines[-1].removeprefix("# ")


def test_a_line_end_that_the_vocabulary_lacks_is_left_out_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ab a" * 50)
    task = build_task("model=gru", *SIZES, f"task.corpus.path={tmp_path}/text.txt", f"paths.data_dir={tmp_path}")
    (tmp_path / "read.txt").write_text("aba\n")
    assert len(list(show_surprisal(task.eval(), surprisal=str(tmp_path / "read.txt")))) == 4  # and the mean
