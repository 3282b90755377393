"""Sampling from a model: temperature, nucleus, frequencies, and every cell token by token."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gyral.config.groups import choices
from gyral.models.prediction import distribution, read, sample
from tests.helpers.found import at_least
from tests.helpers.running import build_task, model_for


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


@pytest.mark.named(
    "dynamic_conv",
    "fs_rum",
    "lstm",
)
@pytest.mark.parametrize("model", at_least(45, choices("cell")))
def test_every_cell_gives_the_same_outputs_symbol_by_symbol_and_for_the_whole_text(model: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat .\n" * 60)
    place = ("task=text_file", "task.batch_size=4", f"task.corpus.path={tmp_path}/text.txt")
    task = build_task(*model_for("text_file", model, 12), *place, f"paths.data_dir={tmp_path}").eval()
    prompt = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    drawn = list(islice(sample(task.model, prompt, window=3, temperature=0.0, top_p=1.0, seed=1), 6))
    with torch.no_grad():
        whole, _ = task.model(torch.cat([prompt, torch.tensor(drawn)])[None])
    pieces = torch.cat([logits for logits, _ in read(task.model, prompt, 3)])
    torch.testing.assert_close(pieces, whole[0, : len(prompt)], atol=1e-5, rtol=1e-5)
    assert whole[0, len(prompt) - 1 : -1].argmax(-1).tolist() == drawn
