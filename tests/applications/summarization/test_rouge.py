"""ROUGE against closed forms and published scores, its interval, repetition and new n-grams."""

import itertools
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.applications.summarization import rouge
from gyral.applications.summarization.rouge import novel_ngrams, repetition, score
from gyral.core.errors import OptionError
from gyral.data.text.penn import split_sentences

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data")) / "cnn_dailymail"


def test_shares_of_ngrams_and_of_the_longest_common_subsequence() -> None:
    found = score([["police killed the gunman", "it ended"]], [["police kill the gunman", "ended it"]], samples=10)
    assert found["rouge1"][:3] == pytest.approx((100, 100, 100))  # words are stemmed
    assert found["rouge2"][:3] == pytest.approx((60, 60, 60))  # of police-killed-the-gunman-it-ended three of five
    assert found["rougeL"][:3] == pytest.approx((100 * 5 / 6,) * 3)  # sentence by sentence
    found = score([["one two three four"]], [["one two"]], samples=10)
    assert found["rouge1"][:3] == pytest.approx((100, 50, 200 / 3))
    assert found["rouge2"][:3] == pytest.approx((100, 100 / 3, 50))


def test_irregular_words_have_the_stems_of_wordnet() -> None:
    assert score([["children were found"]], [["child be find"]], samples=10)["rouge1"].f1 == pytest.approx(100)


def test_sentences_count_for_rouge_l_alone() -> None:
    whole, split = score([["a1 b1 c1 d1"]], [["c1 d1 a1 b1"]]), score([["a1 b1", "c1 d1"]], [["c1 d1", "a1 b1"]])
    assert whole["rouge1"] == split["rouge1"]
    assert (whole["rougeL"].f1, split["rougeL"].f1) == pytest.approx((50, 100))


def test_empty_summaries_score_zero() -> None:
    found = score([["a b"], ["a b"], []], [["a b"], [], ["a"]])
    assert found["rouge1"].f1 == pytest.approx(100 / 3)
    assert score([["..."]], [["?"]])["rougeL"].f1 == 0


@pytest.mark.parametrize(
    ("reference", "candidate", "f1"),
    [
        ("天地玄黄", "天地 黄玄", 100),  # single characters
        ("今日はよい", "今日も", 50),
        ("ไทย", "ไทย", 100),
        ("Привет мир", "ПРИВЕТ, Мир!", 100),
        ("नमस्ते दुनिया", "नमस्ते", 200 / 3),  # marks belong to their word
        ("cafe\u0301", "café", 100),
        ("U.S. 2024", "u s 2024", 100),
    ],
)
def test_words_of_all_scripts_are_counted_on_request(reference: str, candidate: str, f1: float) -> None:
    found = score([[reference]], [[candidate]], tokens="unicode", samples=1)
    assert found["rouge1"].f1 == pytest.approx(f1)
    assert (
        (score([[reference]], [[candidate]], samples=1)["rouge1"].f1 == 0) or "2024" in reference or "cafe" in reference
    )


def test_summaries_without_a_token_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    references = [["天地"], ["a b"], [""], ["..."]]
    rouge.warn_of_unscored(references)
    assert "2 of 4 reference summaries score 0" in caplog.text
    assert "task.rouge_tokens=unicode" in caplog.text
    caplog.clear()
    rouge.warn_of_unscored(references, "unicode")
    assert "1 of 4 reference summaries score 0: ROUGE counts letters and digits alone" in caplog.text
    caplog.clear()
    rouge.warn_of_unscored([["a b"]])
    assert not caplog.text
    with pytest.raises(OptionError, match=r"^tokens=words: must be one of english, unicode$"):
        score([["a"]], [["a"]], tokens="words")


def test_the_interval_equals_the_normal_approximation(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    candidates = [["same"] if right else ["other"] for right in generator.random(400) < 0.3]
    found = score([["same"]] * 400, candidates, processes=1)["rouge1"]
    share = found.f1 / 100
    half = 100 * 1.96 * (share * (1 - share) / 400) ** 0.5
    assert found.low == pytest.approx(found.f1 - half, abs=0.15 * half)
    assert found.high == pytest.approx(found.f1 + half, abs=0.15 * half)
    other = score([["same"]] * 400, candidates, processes=1, seed=1)["rouge1"]
    assert (other.f1, other.low != found.low) == (found.f1, True)
    # in several processes, whose start takes seconds: tests/core/test_parallel.py
    calls: list[int | None] = []

    def map_here(function: Any, arguments: Any, processes: int | None) -> Any:
        calls.append(processes)
        blocks = pickle.loads(pickle.dumps((function, list(arguments))))
        assert [len(references) for references, *_ in blocks[1]] == [150, 150, 100]
        return itertools.starmap(*blocks)

    monkeypatch.setattr(rouge, "parallel_map", map_here)
    monkeypatch.setattr(rouge, "BLOCK", 150)
    assert score([["same"]] * 400, candidates, processes=2)["rouge1"] == found
    assert score([["same"]] * 400, candidates)["rouge1"] == found
    assert calls == [2, None]


def test_wrong_numbers_of_summaries_are_refused() -> None:
    with pytest.raises(OptionError, match=r"^candidates=1: must be as many as references, 2, and at least one$"):
        score([["a"], ["b"]], [["a"]])
    with pytest.raises(OptionError, match=r"^candidates=0: "):
        score([], [])
    with pytest.raises(OptionError, match=r"^samples=0: must be an integer ≥ 1$"):
        score([["a"]], [["a"]], samples=0)


def lines(path: Path, every: int) -> list[list[str]]:
    if not path.is_file():
        pytest.skip(f"no {path} (set DATA_DIR)")
    return [
        [" ".join(words) for words in split_sentences(line.split())]
        for line in path.read_text(encoding="utf-8").splitlines()[::every]
    ]


# Liu and Liu (2021), table 1: 46.67, 22.15 and 43.54, by ROUGE-1.5.5
@pytest.mark.parametrize(
    ("every", "tolerance"), [(90, 1.0), pytest.param(1, 0.15, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_published_scores_of_simcls(every: int, tolerance: float) -> None:
    folder = DATA / "test_refs_and_outputs" / "simcls"
    references, candidates = (lines(folder / f"test.cnndm.{name}", every) for name in ("reference", "ours"))
    found = score(references, candidates, processes=None if every == 1 else 1)
    means = [found[measure].f1 for measure in ("rouge1", "rouge2", "rougeL")]
    assert means == pytest.approx([46.67, 22.15, 43.54], abs=tolerance)
    if every == 1:
        assert all(measure.high - measure.low < 0.5 for measure in found.values())


def test_scores_of_documents_by_the_original_script() -> None:
    path = DATA / "realsumm_100" / "scores_dicts" / "abs.json"
    if not path.is_file():
        pytest.skip(f"no {path} (set DATA_DIR)")

    def sentences(text: str) -> list[str]:
        return re.findall("<t>(.*?)</t>", text)

    documents = list(json.loads(path.read_text()).values())[::10]
    cases = [
        (sentences(document["ref_summ"]), sentences(system["system_summary"]), system["scores"])
        for document in documents
        for system in document["system_summaries"].values()
    ]
    found = rouge._score_block([case[0] for case in cases], [case[1] for case in cases], rouge.ENGLISH)[:, :2, 2]
    expected = np.array([[case[2]["rouge_1_f_score"], case[2]["rouge_2_f_score"]] for case in cases])
    assert len(cases) > 130
    # to all five digits; some systems' sentences were not those that were scored
    assert (abs(found - expected) < 2e-5).mean() > 0.8


def test_repetition() -> None:
    assert repetition([["a", "b"], ["a", "b"]]) == {
        "1-grams": 50,
        "2-grams": pytest.approx(100 / 3),
        "3-grams": 0,
        "4-grams": 0,
        "sentences": 50,
    }
    assert set(repetition([]).values()) == {0}
    assert repetition([["a"]])["2-grams"] == 0


def test_novel_ngrams() -> None:
    article, written = list("abcd"), list("abdd")
    assert [novel_ngrams(article, written, order) for order in (1, 2, 3, 4, 5)] == pytest.approx(
        [0, 200 / 3, 100, 100, 0]
    )
    assert novel_ngrams([], written, 1) == 100
    with pytest.raises(OptionError, match=r"^order=0: must be an integer ≥ 1$"):
        novel_ngrams(article, written, 0)
