"""bAbI as reading comprehension (Dhingra et al. 2017, arXiv:1703.02620): word by word, with edges between mentions.

A question of task 2. Each word is a step; the question follows the story. The candidates are the answers of the
training split, and edges join consecutive mentions of the same person, object or place:

    input       mary got the milk . mary went to the garden . john moved to the office . | where is the milk ?
    edges       mary → mary, milk → milk
    candidates  bathroom, bedroom, garden, hallway, kitchen, office
    target      garden
"""

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gyral.applications.reading.data import wordnet
from gyral.applications.reading.data.babi_questions import answers_in_stories, read_questions
from gyral.applications.reading.data.encoded import EncodedQuestions
from gyral.applications.reading.tasks.base import ReadingData, ReadingTask
from gyral.core.options import OneOf
from gyral.data.babi import corpus
from gyral.data.babi.answers import frequency_loss
from gyral.data.babi.corpus import Babi, load_stories
from gyral.data.babi.entities import EDGES, ENTITIES
from gyral.tasks.data_task import DataOptionsTask

SUBSTITUTE = "GENERATED stories, whose results are not results on bAbI"


class BabiReadingData(ReadingData):
    """Questions of bAbI as reading comprehension.

    Args:
        qa: number of the task, 1 to 20, or "all": one model for all tasks.
        size: training questions per task, including those for validation: "1k" or "10k".
        edges: "entities": edges between consecutive mentions of an entity, in the story and the question; "none".
        entities: the words that are entities, also for the chains that a reader may have as inputs: "all" or "names";
            see `gyral.data.babi.entities.ENTITIES`.
        plurals: whether the plural of a candidate also mentions it. The stories of task 15 then mention its answers:
            "wolves" mentions "wolf".
        hypernyms: folder of WordNet's `data.noun` and `index.noun`, for edges of two further types: from a noun to the
            next word that is its hypernym, and to the next one that is its hyponym, up to three levels apart; see
            `gyral.applications.reading.data.wordnet`. The cell then has `edge_types=3`. None: without.
        data_dir, validation, stand_in, path, files, generated: see `gyral.data.babi.corpus.load_stories`.
        batch_size, eval_batch_size, data_seed: see `gyral.applications.reading.tasks.base.ReadingData`; `data_seed` is
            also the seed of generated stories.

    Attributes:
        babi: the questions with their stories.
        is_generated: whether they are generated.
        edge_types: number of types of edges.

    Raises:
        UserError: an option is out of bounds; the data is missing, or is not the published data.
    """

    small: ClassVar = {"generated": True, "size": "1k"}

    qa: int | str = field()
    data_dir: str | Path = field()
    size: str = "1k"
    edges: Annotated[str, OneOf(EDGES)] = "entities"
    entities: Annotated[str, OneOf(ENTITIES)] = "all"
    plurals: bool = False
    hypernyms: str | Path | None = None
    validation: str = "cut"
    stand_in: bool = False
    generated: bool = False
    path: str | Path | None = None
    files: Sequence[str | Path] | None = None
    eval_batch_size = 256

    def __post_init__(self) -> None:
        loaded = load_stories(
            self.qa,
            self.size,
            self.data_dir,
            path=self.path,
            files=self.files,
            validation=self.validation,
            stand_in=self.stand_in,
            generated=self.generated,
            seed=self.data_seed,
        )
        self.is_generated = loaded.name == corpus.GENERATED
        self.babi = self.stories(loaded)
        version = wordnet.find(self.hypernyms)
        self.edge_types = wordnet.edge_types(version)
        form: dict[str, Any] = {"edges": self.edges, "entities": self.entities, "plurals": self.plurals}
        asked = {split: read_questions(self.babi, split, **form, hypernyms=version) for split in self.babi.splits}
        self.vocabulary = self.babi.vocabulary
        self.splits = {split: EncodedQuestions(own, self.vocabulary, self.edge_types) for split, own in asked.items()}

    def stories(self, babi: Babi) -> Babi:
        """Return the questions of the task from the stories of bAbI."""
        return babi


class BabiReadingTask(DataOptionsTask[ReadingData], ReadingTask):
    """bAbI with a reader, which predicts one of the candidates.

    If the answers of all training questions are words of their stories, as in tasks 1–5, 11–14 and 16, the reader
    attends to the mentions of the candidates; otherwise, the answers of the training split are classes. The baseline is
    `gyral.data.babi.answers.frequency_loss`. Without a release, the task generates stories and logs the metric
    `substitute` = 1.

    Args:
        model: makes the model from the sizes of the task and the readout.
        **options: see `BabiReadingData`, and `gyral.tasks.base.SequenceTask` for optimizer, scheduler, monitor, mode,
            overfit, prefetch.

    Raises:
        UserError: an option is out of bounds; the data is missing, or is not the published data.
    """

    data_class = BabiReadingData
    remarks = (corpus.STAND_INS, *ReadingTask.remarks)
    data: BabiReadingData

    @classmethod
    def arguments(cls, data: ReadingData) -> dict[str, Any]:
        assert isinstance(data, BabiReadingData)
        found = data.babi
        return {
            "name": found.name,
            "baseline": partial(frequency_loss, found),
            "output_size": len(found.classes),
            "in_document": answers_in_stories(found, data.plurals),
            "classes": found.classes,
            "edge_types": data.edge_types,
            "tasks": sorted({story[0].task for story in found.splits["train"]}),
            "substitute": SUBSTITUTE if data.is_generated else "",
        }

    def data_metrics(self, split: str = "test") -> dict[str, float]:
        return {**super().data_metrics(split), "stand_ins": float(len(self.data.babi.stand_ins))}
