"""The metrics of questions about scenes."""

import torch

from gyral.applications.scenes.data.collection import SceneBatch
from gyral.applications.scenes.data.curriculum import Lessons
from gyral.applications.scenes.task import SceneMetrics
from gyral.data.batching import IGNORED


def test_the_accuracy_of_a_lesson_includes_its_bounds() -> None:
    """Two scenes of 3 and 4 objects have programs of 2, 3 and 1 steps, in a lesson of 3 objects and 2 steps."""
    metrics = SceneMetrics(Lessons([[3, 2]], threshold=0.5))
    operators = torch.tensor([[[1, 1, 0], [1, 1, 1]], [[1, 0, 0], [0, 0, 0]]])
    batch = SceneBatch(
        *(torch.zeros(()),) * 2,
        objects=torch.tensor([3, 4]),
        questions=torch.zeros(()),
        operators=operators,
        arguments=operators,
        types=torch.zeros(2, 2, dtype=torch.long),
        targets=torch.tensor([[1, 0], [0, IGNORED]]),
        categories=torch.tensor([[True, False], [True, False]]),
    )
    always_one = torch.tensor([0.0, 1.0]).expand(2, 2, 2)
    metrics.update(always_one, batch, torch.tensor(0.0))
    assert metrics.lesson_accuracy.compute()[0].item() == 1, "the question with 2 steps about 3 objects alone"
    assert abs(metrics.compute()["accuracy"].item() - 1 / 3) < 1e-6
