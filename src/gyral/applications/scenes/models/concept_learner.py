"""The neuro-symbolic concept learner (Mao et al., ICLR 2019, arXiv:1904.12584), and models with fewer inputs."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from gyral.applications.scenes.data.collection import SceneBatch
from gyral.applications.scenes.data.language import ANSWERS, TYPES, QuestionVocabulary
from gyral.applications.scenes.models.program_execution import Execution, execute
from gyral.applications.scenes.models.program_parser import ProgramParser, Programs
from gyral.applications.scenes.models.scene_concepts import SceneConcepts
from gyral.cells.base import RecurrentCell
from gyral.core.checks import check_choice, check_integer, check_real
from gyral.data.batching import IGNORED
from gyral.nn.recurrent import Recurrent

SUPERVISION = ("reinforce", "programs", "oracle")


class Answers(NamedTuple):
    """Outputs of a model in training.

    Attributes:
        scores: (S, K, answers) log-probabilities up to a constant, 0 for absent questions.
        parser_loss: loss of the parser, an addition to the loss of the answers.
    """

    scores: Tensor
    parser_loss: Tensor


class SceneModel(nn.Module, ABC):
    """A model that answers questions about scenes."""

    @abstractmethod
    def forward(self, batch: SceneBatch) -> Tensor | Answers:
        """Return the scores of the answers; in training with a parser, `Answers` with its loss."""

    def programs(self, batch: SceneBatch) -> Programs | None:
        """Return the most likely programs of all questions of a batch that have an answer, or None without a parser."""
        return None


class ConceptLearner(SceneModel):
    """Learns concepts and the meaning of questions from answers.

    A parser maps a question to a program, which is executed on the objects of the scene. The loss of the answers trains
    the concepts through the execution. If a question has several random programs, the probability of an answer is the
    mean over them, so that programs that explain the answer count most. The parser learns

    * by `supervision="reinforce"`, from the reward r, 1 for a correct and 0 for a wrong answer (section 3.3):
      −(r − b) log P(program), with b the moving average of rewards, minus `entropy` times the entropy of the choice of
      operators;
    * by "programs", from the programs of the questions: −log P(program). Training executes these programs.
    * With "oracle" there is no parser: training and evaluation execute the programs of the questions.

    Args:
        encoder, decoder: make the cells of the parser from their input sizes.
        vocabulary: the words of questions.
        max_length: largest number of steps of a program.
        supervision: one of `SUPERVISION`.
        samples: random programs for each question in training.
        entropy: weight of the entropy.
        baseline_decay: decay of the moving average, in [0, 1).
        embedding_size: size of the embeddings of words, operators and arguments in the parser.
        features: size of the features of objects.
        concept_size: size of the vectors of concepts.
        temperature, margin: see `gyral.applications.scenes.models.scene_concepts.SceneConcepts`.
        backend: see `gyral.nn.recurrent.Recurrent`.

    Attributes:
        reward_baseline: b; part of the checkpoint.

    Raises:
        OptionError: an argument is out of bounds.
    """

    reward_baseline: Tensor
    small: ClassVar = {
        "embedding_size": 16,
        "features": 8,
        "concept_size": 8,
        "encoder": {"hidden_size": 16},
        "decoder": {"hidden_size": 16},
    }

    def __init__(
        self,
        encoder: Callable[[int], RecurrentCell],
        decoder: Callable[[int], RecurrentCell],
        vocabulary: QuestionVocabulary,
        max_length: int,
        *,
        supervision: str = "reinforce",
        samples: int = 4,
        entropy: float = 0.2,
        baseline_decay: float = 0.99,
        embedding_size: int = 64,
        features: int = 64,
        concept_size: int = 32,
        temperature: float = 0.1,
        margin: float = 0.2,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.supervision = check_choice("supervision", supervision, SUPERVISION)
        self.samples = check_integer("samples", samples)
        self.entropy = check_real("entropy", entropy, minimum=0)
        self.baseline_decay = check_real("baseline_decay", baseline_decay, minimum=0, below=1)
        check_integer("embedding_size", embedding_size)
        check_integer("concept_size", concept_size)
        self.concepts = SceneConcepts(
            features=features, embedding_size=concept_size, temperature=temperature, margin=margin
        )
        self.parser: ProgramParser | None = None
        if supervision != "oracle":
            self.parser = ProgramParser(
                encoder,
                decoder,
                vocabulary,
                embedding_size=embedding_size,
                max_length=max_length,
                backend=backend,
            )
        self.register_buffer("reward_baseline", torch.zeros(()))

    def forward(self, batch: SceneBatch) -> Tensor | Answers:
        is_asked = batch.targets != IGNORED
        questions = batch.questions[is_asked]
        copies = self.samples if self.training and self.supervision == "reinforce" else 1
        given = Programs(batch.operators[is_asked], batch.arguments[is_asked])
        if self.parser is None or (self.training and self.supervision == "programs"):
            programs = given
        else:
            programs = self.parser.sample(questions, copies, greedy=not self.training)
        scores = self.run(batch, programs, copies).log_probabilities
        mixed = scores.view(-1, copies, len(ANSWERS)).logsumexp(dim=1) - math.log(copies)
        padded = mixed.new_zeros(*is_asked.shape, len(ANSWERS)).masked_scatter(is_asked.unsqueeze(2), mixed)
        if not self.training or self.parser is None:
            return padded
        log_probability, entropy = self.parser.log_probability(questions, programs, copies)
        if self.supervision == "programs":
            return Answers(padded, -log_probability.mean())
        targets = batch.targets[is_asked].repeat_interleave(copies)
        rewards = (scores.detach().argmax(dim=1) == targets).to(scores.dtype)
        policy = -((rewards - self.reward_baseline) * log_probability).mean()
        self.reward_baseline.lerp_(rewards.mean().to(self.reward_baseline.dtype), 1 - self.baseline_decay)
        return Answers(padded, policy - self.entropy * entropy)

    def run(self, batch: SceneBatch, programs: Programs, copies: int = 1) -> Execution:
        """Execute programs, `copies` for each question that has an answer, on the scenes of a batch."""
        grounding = self.concepts(batch.crops, batch.positions, batch.objects)
        scenes = (batch.targets != IGNORED).nonzero()[:, 0].repeat_interleave(copies)
        return execute(programs.operators, programs.arguments, scenes, grounding)

    def programs(self, batch: SceneBatch) -> Programs | None:
        is_asked = batch.targets != IGNORED
        if self.parser is None:
            return Programs(batch.operators[is_asked], batch.arguments[is_asked])
        return self.parser.sample(batch.questions[is_asked], greedy=True)


class QuestionOnly(SceneModel):
    """Answers questions without seeing the scene: a linear classifier of the mean output of a bidirectional network.

    Args:
        cell: makes the cells from their input sizes.
        vocabulary: the words of questions.
        max_length: largest number of steps of a program; unused.
        embedding_size: size of the embedding of words.
        backend: see `gyral.nn.recurrent.Recurrent`.
    """

    small: ClassVar = {"embedding_size": 16, "cell": {"hidden_size": 16}}

    def __init__(
        self,
        cell: Callable[[int], RecurrentCell],
        vocabulary: QuestionVocabulary,
        max_length: int | None = None,
        *,
        embedding_size: int = 64,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(len(vocabulary), check_integer("embedding_size", embedding_size))
        self.encoder = Recurrent(cell, embedding_size, bidirectional=True, backend=backend)
        self.head = nn.Linear(self.encoder.output_size, len(ANSWERS))

    def forward(self, batch: SceneBatch) -> Tensor:
        questions = batch.questions.flatten(0, 1)
        lengths = (questions > 0).sum(dim=1).clamp(min=1)
        outputs = self.encoder(self.words(questions.t()), lengths=lengths)[0].sum(dim=0) / lengths.unsqueeze(1)
        scores: Tensor = self.head(outputs)
        return scores.view(*batch.targets.shape, len(ANSWERS))


class MajorityAnswer(SceneModel):
    """Gives the most frequent answer for the type of a question, which is its only input.

    Its parameters are the logits of the answers of each type, which training fits to their frequencies.

    Args:
        vocabulary: the words of questions; unused.
        max_length: largest number of steps of a program; unused.
    """

    def __init__(self, vocabulary: QuestionVocabulary | None = None, max_length: int | None = None) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(len(TYPES), len(ANSWERS)))

    def forward(self, batch: SceneBatch) -> Tensor:
        return self.logits[batch.types]
