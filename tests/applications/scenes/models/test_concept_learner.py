"""The concept learner: execution, parser, and learning from answers."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gyral.applications.scenes.data.collection import SceneCollection
from gyral.applications.scenes.data.language import (
    ATTRIBUTES,
    CONCEPTS,
    OPERATORS,
    QuestionVocabulary,
    decode_program,
    nested,
)
from gyral.applications.scenes.data.questions import Question, Questioner, all_words
from gyral.applications.scenes.data.rendering import render
from gyral.applications.scenes.data.world import Scene, draw_scene
from gyral.applications.scenes.models.concept_learner import Answers, ConceptLearner
from gyral.applications.scenes.models.program_execution import count_distribution, execute, the_one
from gyral.applications.scenes.models.program_parser import ProgramParser, Programs
from gyral.applications.scenes.models.scene_concepts import Grounding
from gyral.cells.gru import GRUCell
from gyral.core.errors import OptionError

VOCABULARY = QuestionVocabulary(all_words())


def cell(input_size: int) -> GRUCell:
    return GRUCell(input_size, hidden_size=8)


def draw(objects: tuple[int, ...], questions: int) -> tuple[list[Scene], SceneCollection]:
    generator = np.random.default_rng(0)
    scenes = [draw_scene(generator, number) for number in objects]
    asked: list[list[Question]] = []
    for scene in scenes:
        questioner = Questioner(scene, generator, 12)
        asked.append([questioner.draw() for _ in range(questions)])
    return scenes, SceneCollection(render(scenes, generator), [scene.positions for scene in scenes], asked, VOCABULARY)


def truth(scenes: list[Scene]) -> Grounding:
    """Return the concepts with certainty."""
    most = max(len(scene.values) for scene in scenes)
    is_there = torch.zeros(len(scenes), most)
    concepts = torch.zeros(len(scenes), len(CONCEPTS), most)
    relations = torch.zeros(len(scenes), 8, most, most)
    values = torch.full((len(scenes), 4, most, len(CONCEPTS)), 1 / len(CONCEPTS))
    for number, scene in enumerate(scenes):
        count = len(scene.values)
        is_there[number, :count] = 1
        for attribute, names in enumerate(ATTRIBUTES.values()):
            own = torch.tensor([CONCEPTS.index(names[value]) for value in scene.values[:, attribute].tolist()])
            values[number, attribute, :count] = F.one_hot(own, len(CONCEPTS)).float()
            concepts[number, :, :count] += F.one_hot(own, len(CONCEPTS)).float().t()
            same = own.unsqueeze(1) == own
            relations[number, 4 + attribute, :count, :count] = (same & ~torch.eye(count, dtype=torch.bool)).float()
        x, y = torch.from_numpy(scene.positions).unbind(1)
        for relation, difference in enumerate((x - x[:, None], x[:, None] - x, y - y[:, None], y[:, None] - y)):
            relations[number, relation, :count, :count] = (difference < 0).float()
    return Grounding(is_there, concepts, relations, values)


def test_programs_executed_on_true_concepts_give_correct_answers() -> None:
    scenes, collection = draw((3, 6, 10, 5), 80)
    batch = collection.batch(np.arange(4), [collection.questions_of(scene) for scene in range(4)])
    rows = torch.arange(4).repeat_interleave(80)
    result = execute(batch.operators.flatten(0, 1), batch.arguments.flatten(0, 1), rows, truth(scenes))
    probabilities = result.log_probabilities.exp()
    assert torch.equal(probabilities.argmax(dim=1), batch.targets.flatten())
    assert probabilities.amax(dim=1).min() > 0.99
    assert probabilities.sum(dim=1).sub(1).abs().max() < 1e-3


def test_counts_and_uniqueness_treat_members_as_independent() -> None:
    members = torch.tensor([[0.2, 0.9, 0.5]], dtype=torch.float64)
    outcomes = torch.cartesian_prod(*3 * [torch.tensor([0, 1])])
    weights = torch.where(outcomes == 1, members, 1 - members).prod(dim=1)
    expected = torch.stack([weights[outcomes.sum(dim=1) == count].sum() for count in range(4)])
    torch.testing.assert_close(count_distribution(members)[0], expected)
    alone = outcomes.sum(dim=1) == 1
    given = (weights[alone, None] * outcomes[alone]).sum(dim=0) / weights[alone].sum()
    torch.testing.assert_close(the_one(members)[0], given)


def test_the_probabilities_of_all_programs_of_a_question_sum_to_one() -> None:
    torch.manual_seed(0)
    parser = ProgramParser(cell, cell, VOCABULARY, embedding_size=6, max_length=4, backend="auto")
    # a shorter question beside it: padding changes nothing
    words = [VOCABULARY.encode(text.split()) for text in ("what color is the red thing left of it", "is there a cube")]
    questions = torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in words], batch_first=True)
    programs = parser.sample(questions, 4000)
    found = {}
    for row, pair in enumerate(zip(programs.operators.tolist(), programs.arguments.tolist(), strict=True)):
        found[row < 4000, nested(decode_program(*pair))] = row
    for (is_first, program), row in found.items():
        if (programs.operators[row] > 0).sum() < 4:  # at the last step, a program ends whatever is left
            assert all(program.count(word) == 1 for word in (("color", "red", "left") if is_first else ("cube",)))
    rows = torch.tensor(list(found.values()))
    own = type(programs)(*(part[rows] for part in programs))
    logs = [
        parser.log_probability(questions[[0 if is_first else 1]], type(own)(*(part[[n]] for part in own)))[0]
        for n, (is_first, _) in enumerate(found)
    ]
    probabilities = torch.cat(logs).exp()
    is_first = torch.tensor([first for first, _ in found])
    assert probabilities[is_first].sum().item() == pytest.approx(1, abs=0.02)
    assert probabilities[~is_first].sum().item() == pytest.approx(1, abs=0.005)
    assert probabilities[~is_first].sum().item() <= 1 + 1e-5
    greedy = parser.sample(questions[1:], greedy=True)
    assert torch.equal(greedy.operators, parser.sample(questions[1:], greedy=True).operators)


def test_the_parser_permits_the_programs_of_all_questions() -> None:
    _, collection = draw((3, 6, 10), 80)
    batch = collection.batch(np.arange(3), [collection.questions_of(scene) for scene in range(3)])
    parser = ProgramParser(cell, cell, VOCABULARY, embedding_size=6, max_length=12, backend="auto")
    programs = Programs(batch.operators.flatten(0, 1), batch.arguments.flatten(0, 1))
    found, _ = parser.log_probability(batch.questions.flatten(0, 1), programs)
    steps = (programs.operators > 0).sum(dim=1)
    assert (found > -4 * steps).all(), "an operator that is not permitted costs 30 nats"
    drawn = parser.sample(batch.questions.flatten(0, 1), 20)
    assert ((drawn.operators > 0).int().diff(dim=1) <= 0).all(), "at each step something is permitted"
    ends = [OPERATORS[number].type for number in drawn.operators.amax(dim=1).tolist()]
    assert all(ends), "every program ends"


@pytest.mark.parametrize("precision", ["mixed", "true"])
@pytest.mark.parametrize("supervision", ["reinforce", "oracle"])
def test_half_precision_computes_about_the_same(supervision: str, precision: str) -> None:
    torch.manual_seed(0)
    _, collection = draw((3, 5), 30)
    batch = collection.batch(np.arange(2), [collection.questions_of(0), collection.questions_of(1)])
    model = ConceptLearner(cell, cell, VOCABULARY, 12, supervision=supervision, features=8, concept_size=6)
    if supervision == "oracle":  # random programs differ
        expected = model(batch)
    if precision == "true":
        model.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "mixed"):
        outputs = model(batch)
    scores = outputs.scores if isinstance(outputs, Answers) else outputs
    assert scores.dtype == torch.float32, "programs run in float32"
    if supervision == "oracle":
        torch.testing.assert_close(scores.exp(), expected.exp(), rtol=0, atol=0.05)
    loss = F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
    (loss + (outputs.parser_loss if isinstance(outputs, Answers) else 0)).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    certain = Grounding(*(part.bfloat16() for part in truth(draw((3, 5), 30)[0])))
    of_scenes = torch.arange(2).repeat_interleave(30)
    result = execute(batch.operators.flatten(0, 1), batch.arguments.flatten(0, 1), of_scenes, certain)
    assert torch.equal(result.log_probabilities.argmax(dim=1), batch.targets.flatten())


@pytest.mark.parametrize("supervision", ["reinforce", "programs", "oracle"])
def test_all_parameters_are_trained_and_the_baseline_follows_the_rewards(supervision: str) -> None:
    torch.manual_seed(0)
    _, collection = draw((3, 5), 30)
    batch = collection.batch(np.arange(2), [collection.questions_of(0), collection.questions_of(1)[:20]])
    model = ConceptLearner(cell, cell, VOCABULARY, 12, supervision=supervision, features=8, concept_size=6)
    outputs = model(batch)
    scores = outputs.scores if isinstance(outputs, Answers) else outputs
    assert isinstance(outputs, Answers) == (supervision != "oracle")
    assert scores.shape == (2, 30, 28)
    loss = F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
    (loss + (outputs.parser_loss if isinstance(outputs, Answers) else 0)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert (model.reward_baseline > 0) == (supervision == "reinforce")
    assert "reward_baseline" in model.state_dict()
    evaluated = model.eval()(batch)
    assert torch.equal(evaluated, model(batch)), "evaluation draws nothing"
    with pytest.raises(OptionError, match="supervision=none"):
        ConceptLearner(cell, cell, VOCABULARY, 12, supervision="none")
