"""Text from a prompt and the surprisal of a text: exact, streamed, and told in one line where they cannot be."""

import functools
import io
import json
import math
import os
import re
import signal
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch import Tensor, nn

from gyral import generate, runs
from gyral.config import command_line as cli
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.text.windows import Windows
from gyral.data.vocabulary import split_words
from gyral.generation import surprisal
from gyral.models.prediction import distribution, read, sample
from gyral.tasks.babi import BabiTask
from gyral.tasks.base import SequenceTask
from gyral.tasks.summarization import SummaryTask
from gyral.tasks.text import TextTask
from gyral.training import build
from tests.helpers.running import SMALL_COPY, Outcome, build_task, choices, compose_config, invoke, spawn

LINES = ["the cat sat on the mat .\n", 'a dog <barks> & "runs" .\n', "über naïve cafés – so !\n"]
TEXT = "".join(LINES[i % 3] for i in range(60))
SIZES = ("task=text_file", "task.batch_size=4", "task.window=16", "task.warm_up=8", "task.eval_batch_size=4")
RUN = (
    *SIZES,
    "model=gru",
    "model.cell.hidden_size=16",
    "optimizer=adam",
    "optimizer.lr=0.02",
    "trainer=cpu",
    "trainer.max_steps=40",
    "trainer.val_check_interval=20",
    "logger=none",
    "threads=1",
    "~callbacks.progress_bar",
)


class Trained:
    """A run of a few steps on TEXT, and the commands on it."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        self.text = folder / "text.txt"
        self.text.write_text(TEXT)
        self.directory = folder / "a run, x=1"  # which Hydra's grammar would take for a sweep
        place = (f"task.corpus.path={self.text}", f"paths.data_dir={folder}", f"hydra.run.dir='{self.directory}'")
        assert invoke(*RUN, *place, *overrides).status == 0
        self.run = runs.load(self.directory)

    @functools.cached_property
    def task(self) -> Any:
        return build.build_trained(self.run, "best")[0]

    def generate(self, *arguments: str) -> Outcome:
        return invoke(f"run={self.directory}", *arguments, entry="generate")

    def write(self, *arguments: str) -> str:
        outcome = self.generate(*arguments)
        assert outcome.status == 0, outcome.err
        return outcome.out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("char"))


@pytest.fixture(scope="module")
def of_words(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("word"), "task.corpus.level=word")


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("byte"), "task.corpus.level=byte")


# distribution and sampling


def test_temperature_divides_the_logits() -> None:
    logits = torch.randn(20)
    torch.testing.assert_close(distribution(logits, 1.0, 1.0), logits.double().softmax(0))
    torch.testing.assert_close(distribution(logits, 0.3, 1.0), (logits.double() / 0.3).softmax(0))
    assert distribution(torch.tensor([1.0, 3.0, 3.0]), 0.0, 0.5).tolist() == [0.0, 1.0, 0.0]
    assert distribution(torch.tensor([1.0, 3.0, 2.0]), 1e-320, 1.0).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1e-9, [1]), (0.5, [1]), (0.51, [1, 3]), (0.79, [1, 3]), (0.81, [0, 1, 3]), (0.99, [0, 1, 2, 3])],
)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(top_p: float, kept: list[int]) -> None:
    chances = torch.tensor([0.15, 0.5, 0.05, 0.3], dtype=torch.float64)
    expected = torch.zeros(4, dtype=torch.float64)
    expected[kept] = chances[kept] / chances[kept].sum()
    torch.testing.assert_close(distribution(chances.log(), 1.0, top_p), expected)


def test_draws_are_as_frequent_as_the_model_says_after_the_prompt() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])

    class Bigram(nn.Module):
        def forward(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
            return torch.where(tokens.unsqueeze(-1) == 3, logits, -logits), state

    prompt, options = torch.tensor([0, 3]), {"window": 1, "temperature": 1.0, "top_p": 1.0}
    first = [next(sample(Bigram(), prompt, seed=seed, **options)) for seed in range(2000)]
    found = torch.tensor(first).bincount(minlength=4) / len(first)
    torch.testing.assert_close(found, logits.softmax(0), atol=0.03, rtol=0)


@pytest.mark.parametrize("model", choices("cell"))
def test_every_cell_goes_on_symbol_by_symbol_as_it_reads_a_text_whole(model: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    place = ("task=text_file", "task.batch_size=4", f"task.corpus.path={tmp_path}/text.txt")
    task = build_task(f"model={model}", *place, f"paths.data_dir={tmp_path}").eval()
    prompt = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    drawn = list(islice(sample(task.model, prompt, window=3, temperature=0.0, top_p=1.0, seed=1), 6))
    with torch.no_grad():
        whole, _ = task.model(torch.cat([prompt, torch.tensor(drawn)])[None])
    pieces = torch.cat([logits for logits, _ in read(task.model, prompt, 3)])
    torch.testing.assert_close(pieces, whole[0, : len(prompt)], atol=1e-5, rtol=1e-5)
    assert whole[0, len(prompt) - 1 : -1].argmax(-1).tolist() == drawn


# text


def test_text_goes_on_from_the_prompt_and_the_log_is_apart(trained: Trained) -> None:
    outcome = trained.generate("prompt=the ", "length=30", "temperature=0.8", "top_p=0.9")
    assert outcome.status == 0
    assert outcome.out.startswith("the ")
    assert len(outcome.out.removesuffix("\n")) in (34, 33)  # the last may itself be a line end
    assert outcome.out.endswith("\n")
    assert "best checkpoint (step " in outcome.err


def test_the_seed_decides_what_is_written(trained: Trained) -> None:
    first = trained.write("prompt=the ", "length=60", "seed=1")
    assert trained.write("prompt=the ", "length=60") == first
    assert trained.write("prompt=the ", "length=60", "seed=2") != first
    greedy = [trained.write("prompt=the ", "length=60", "temperature=0", f"seed={seed}") for seed in (1, 2)]
    assert greedy[0] == greedy[1]


def test_a_prompt_is_taken_as_it_stands(trained: Trained) -> None:
    prompt = ' the  "dog" & <mat> !\n '
    written = trained.write(f"prompt={prompt}", "length=1", "temperature=0")
    assert written.startswith(prompt)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("a '\"\\${},=[]()\n\t~:é#?")))
def test_every_text_survives_the_grammar_of_overrides(text: str) -> None:
    if re.fullmatch(r"'.*'|\".*\"", text, re.DOTALL):
        return  # quoted for Hydra already
    value = OverridesParser.create().parse_override(cli.quote(f"prompt={text}")).value()
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
        assert task.data.corpus.vocabulary.symbols[task._start()] == start


def test_words_are_written_with_spaces_between_them(of_words: Trained) -> None:
    written = of_words.write("prompt=the  cat", "length=40", "seed=3")
    assert written.startswith("the cat")
    assert "  " not in written
    assert " \n" not in written
    words = split_words(written)
    assert 42 <= len(words) <= 43  # with the end of the last line
    assert set(words) <= set(of_words.task.data.corpus.vocabulary.symbols)


def test_bytes_are_written_as_characters_as_soon_as_they_are_whole(of_bytes: Trained) -> None:
    task = of_bytes.task
    pieces = list(task.continue_text(prompt="über –", length=300, temperature=2.0, seed=1))
    assert pieces[0] == "über –"
    assert len(pieces) == 302
    written = "".join(pieces)
    assert "�" in written  # at this temperature some characters are broken
    assert set(written) & set("üïé–")
    assert of_bytes.write("prompt=über –", "length=300", "temperature=2.0").rstrip("\n") == written.rstrip("\n")


# surprisal


def one_row(task: Any, symbols: Any) -> float:
    """Return the loss that evaluation takes of a text read in one row."""
    tokens = task.data.corpus.vocabulary.encode(symbols)
    (window,) = Windows(tokens, 1, len(tokens) - 1)
    assert not (window.targets == IGNORED).any()
    with torch.no_grad():
        return task.loss(task(window), window).item()


@pytest.mark.parametrize("level", ["trained", "of_words", "of_bytes"])
def test_the_mean_is_the_loss_of_evaluation(level: str, request: pytest.FixtureRequest) -> None:
    task = request.getfixturevalue(level).task
    symbols = task.data.corpus.vocabulary.segment(TEXT[:1000])
    readings = list(task.readings(symbols))
    assert len(readings) == len(symbols)
    assert readings[0].bits is None
    nats = [reading.bits * math.log(2) for reading in readings[1:]]
    assert sum(nats) / len(nats) == pytest.approx(one_row(task, symbols), abs=1e-6)
    mean = surprisal.Mean(task.data.corpus.level)
    assert list(mean.count(readings)) == readings
    assert f"mean {sum(nats) / len(nats) / math.log(2):.4f} bits a " in str(mean)


def test_a_text_is_read_in_windows_one_after_another(trained: Trained) -> None:
    task = trained.task
    lengths: list[int] = []
    hook = task.model.register_forward_pre_hook(lambda model, arguments: lengths.append(arguments[0].shape[1]))
    readings = task.readings(TEXT[:100])
    assert next(readings).symbol == "t"
    assert next(readings).symbol == "h"
    assert lengths == [16]
    assert len(list(readings)) == 98
    assert lengths == [16] * 6 + [3]
    hook.remove()


def test_the_likeliest_are_those_of_the_model(trained: Trained) -> None:
    task = trained.task
    text = TEXT[:40]
    vocabulary = task.data.corpus.vocabulary
    with torch.no_grad():
        logits, _ = task.model(torch.from_numpy(vocabulary.encode(text).astype("int64"))[None])
    chances = logits[0].softmax(-1)
    for place, reading in enumerate(task.readings(text)):
        if place:
            known = dict(zip(vocabulary.symbols, chances[place - 1].tolist(), strict=True))
            assert reading.bits == pytest.approx(-math.log2(known[reading.symbol]), abs=1e-4)
            assert [name for name, _ in reading.likeliest] == sorted(known, key=known.__getitem__, reverse=True)[:3]
            assert [chance for _, chance in reading.likeliest] == pytest.approx(
                sorted(known.values())[:-4:-1], abs=1e-5
            )


class Page(HTMLParser):
    """What a page shows in its text, and what else is in it."""

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
    assert page.titles[0] == "‘a’: the first, which nothing predicts"
    assert re.fullmatch(r"space: \d+\.\d\d bits(\n(< 0|\d+)\.\d %  (‘.’|space|line end)){3}", page.titles[1])
    readings = list(trained.task.readings(text))
    steps = [sum(limit <= (reading.bits or 0) for limit in surprisal.LIMITS) for reading in readings]
    assert page.classes == [f"s{step}" if step else None for step in steps]
    assert page.addresses == []
    assert "http" not in source
    assert "prefers-color-scheme: dark" in source
    assert "Surprisal of a, b.txt" in source
    assert "over 27 characters" in source
    assert out.startswith("mean ")
    assert out.endswith("out.html\n")
    assert not list((tmp_path / "made").glob("*.tmp"))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("colours", "order"), [(surprisal.LIGHT, -1), (surprisal.DARK, 1)])
def test_colours_can_be_read_and_grow_stronger(colours: tuple[tuple[str, str], ...], order: int) -> None:
    assert len(colours) == len(surprisal.LIMITS)
    backgrounds = [luminance(background) for background, _ in colours]
    assert [order * value for value in backgrounds] == sorted(order * value for value in backgrounds)
    for background, letters in colours:
        dark, light = sorted((luminance(background), luminance(letters)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # what WCAG asks of text


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


def test_control_characters_do_not_reach_a_terminal_or_a_page() -> None:
    text = "a\x1b[31m\x00\x7f\x9b\r\tb"
    readings = [surprisal.Reading(symbol, symbol, 1.5, ()) for symbol in text]
    assert "".join(cell.shown for cell in surprisal.cells(readings, "char")) == "a␛[31m␀��␍\tb"


def test_a_terminal_shows_colours_and_a_pipe_lines(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the cat sat on\nthe !<é> mat"
    piped = io.TextIOWrapper(io.BytesIO(text.encode()))
    monkeypatch.setattr(sys, "stdin", piped)
    lines = trained.write("surprisal=-").splitlines()
    assert "".join(json.loads(line.split("\t")[1]) for line in lines[:-1]) == text
    bits = [float(line.split("\t")[0]) for line in lines[1:-1]]
    assert lines[0].split("\t")[0] == ""
    assert lines[-1].startswith(f"# mean {sum(bits) / len(bits):.2f}")

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
    assert len(list(task.eval().show_surprisal(surprisal=str(tmp_path / "read.txt")))) == 4  # three lines, and the mean


# the command


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": -0.1}, "temperature=-0.1: must be a finite number ≥ 0"),
        ({"temperature": "hot"}, "temperature=hot: must be a finite number ≥ 0"),
        ({"top_p": 0}, "top_p=0: must be a finite number > 0 and ≤ 1"),
        ({"top_p": 1.1}, "top_p=1.1: must be a finite number > 0 and ≤ 1"),
        ({"length": 0}, "length=0: must be an integer ≥ 1"),
        ({"length": 1.5}, "length=1.5: must be an integer ≥ 1"),
        ({"seed": -1}, "seed=-1: must be an integer from 0 to 4294967295"),
        ({"prompt": "the zoo"}, "prompt: 'z' (U+007A) at position 4 does not occur in the training text: *"),
        ({"surprisal": "{}/none.txt"}, "surprisal={}/none.txt: cannot be read (No such file or directory)"),
        ({"surprisal": "{}"}, "surprisal={}: cannot be read (Is a directory)"),
        ({"surprisal": "{}/empty.txt"}, "surprisal={}/empty.txt: is empty"),
        ({"surprisal": "{}/short.txt"}, "surprisal={}/short.txt: has 1 chars, and must have at least 2"),
        ({"surprisal": "{}/latin.txt"}, "surprisal={}/latin.txt: is not UTF-8: byte 0xfc at offset 1"),
        ({"surprisal": "{}/zoo.txt"}, "surprisal={}/zoo.txt: 'z' (U+007A) at position 0 does not occur *"),
    ],
)
def test_bad_values_are_told_in_one_line(
    options: dict[str, Any], expected: str, trained: Trained, tmp_path: Path
) -> None:
    for name, content in (("empty", b""), ("short", b"t"), ("latin", b"t\xfc"), ("zoo", b"zoo")):
        (tmp_path / f"{name}.txt").write_bytes(content)
    given_options = {k: v.format(tmp_path) if isinstance(v, str) else v for k, v in options.items()}
    with pytest.raises(OptionError) as caught:
        list(generate.choose(trained.task.generators(), given_options, "task")(**given_options))
    assert matches(expected.format(tmp_path), str(caught.value)), caught.value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["top_p=2"], "top_p=2: must be a finite number > 0 and ≤ 1"),
        (["checkpoint=first"], "checkpoint=first: must be one of best, last"),
        (["tale=x"], "tale: no such option; allowed: run, checkpoint, prompt, *"),
        (["story=x"], "story=x: run=*gyral.tasks.text.TextTask, takes prompt, length, *, or else surprisal, html"),
        (["html=x.html"], "html: run=*gyral.tasks.text.TextTask, takes prompt, length, *, or else surprisal, html"),
        (["surprisal=-", "length=5"], "length, surprisal: run=*"),
        (["surprisal={}/text.txt", "html={}"], "{}: Is a directory"),
        (["surprisal={}/text.txt", "html={}/text.txt/x"], "{}/text.txt: File exists"),
    ],
)
def test_the_command_ends_with_one_line(options: list[str], expected: str, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat")
    error = trained.generate(*(option.format(tmp_path) for option in options)).error
    assert matches(expected.format(tmp_path), error), error


def matches(pattern: str, text: str) -> bool:
    """Whether a text is as the pattern says, in which * stands for anything in a line."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def test_runs_that_cannot_write_are_told_in_one_line(tmp_path: Path) -> None:
    assert invoke(entry="generate").error == "run=<nothing>: must be a run directory"
    missing = invoke(f"run={tmp_path}/none", entry="generate").error
    assert missing == f"run={tmp_path}/none: must be a run directory, one that holds config.yaml"
    config = runs.resolve(compose_config(*SMALL_COPY))
    OmegaConf.save(config, tmp_path / "config.yaml")
    assert "has no checkpoint" in invoke(f"run={tmp_path}", "prompt=a", entry="generate").error
    task = build.build_task(config)
    (tmp_path / "checkpoints").mkdir()
    checkpoint = {"state_dict": task.state_dict(), "global_step": 0, "loops": {}}
    torch.save(checkpoint, tmp_path / "checkpoints" / "last.ckpt")
    error = invoke(f"run={tmp_path}", "prompt=a", entry="generate").error
    assert error == f"run={tmp_path}: its task, gyral.tasks.copy.CopyTask, generates nothing"


def test_the_first_generator_that_takes_what_is_given_is_chosen() -> None:
    def tell(*, story: str) -> Iterator[str]:
        yield story

    def summarize(*, input: str, out: str = "") -> Iterator[str]:
        yield input

    assert generate.choose([tell, summarize], {"input": "a"}, "task") is summarize
    for given_options in ({"out": "a"}, {"story": "a", "input": "b"}, {}, {"prompt": "a"}):
        with pytest.raises(OptionError, match=r"task takes story, or else input, out$"):
            generate.choose([tell, summarize], given_options, "task")


def test_every_option_is_some_tasks_and_its_default_is_told() -> None:
    config = compose_config(name="generate", hydra_too=True)
    help_text = config.hydra.help.template
    options = {name for name in config if name not in ("hydra", "run", "checkpoint")}
    taken = {}
    for task in (TextTask, BabiTask, SummaryTask):
        for generator in task.generators(object.__new__(task)):
            taken |= {name: option.default for name, option in generate.signature(generator).parameters.items()}
    assert set(taken) == options
    assert all(config[name] is None for name in options)
    for name, default in taken.items():
        assert f"{name}={default:g} " in help_text if isinstance(default, int | float) else f"{name}= " in help_text
    assert SequenceTask.generators(SimpleNamespace()) == []  # type: ignore[arg-type]


def test_help_needs_no_torch() -> None:
    script = "import sys; from gyral import generate; from gyral.config import command_line as cli; cli.main(generate.generate, 'generate', generate.LITERAL)"
    outcome = spawn("-c", f"{script}; sys.exit('torch' in sys.modules)", "--help", "prompt=the dog's, ")
    assert outcome.status == 0, outcome.err
    assert 'python -m src.generate run=<run directory> prompt="the "' in outcome.out
    assert not outcome.err


def test_ctrl_c_leaves_whole_what_was_written(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> Iterator[int]:
        yield from islice(sample(*arguments, **options), 20)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr("gyral.tasks.text.sample", interrupted)
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    outcome = trained.generate("prompt=the cat", "temperature=0")
    signal.signal(signal.SIGINT, former)
    assert outcome.status == cli.INTERRUPTED
    assert len(outcome.out.rstrip("\n")) >= len("the cat") + 19
    assert outcome.out.endswith("\n")
    assert "Traceback" not in outcome.err
    assert "error" not in outcome.err


def test_a_reader_that_has_seen_enough_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        generate.write(iter(["some text"]))
