"""bAbI as reading comprehension (Dhingra et al. 2017, arXiv:1703.02620): word by word, with edges between mentions.

A question of task 2. Each word is a step; the question follows the story. The candidates are the answers of the
training split, and edges join consecutive mentions of the same person, object or place:

    input       mary got the milk . mary went to the garden . john moved to the office . | where is the milk ?
    edges       mary → mary, milk → milk
    candidates  bathroom, bedroom, garden, hallway, kitchen, office
    target      garden
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from gyral.applications.reading.data import wordnet
from gyral.applications.reading.data.babi_questions import answers_in_stories, read_questions
from gyral.applications.reading.data.encoded import EncodedQuestions
from gyral.applications.reading.tasks.base import ReadingData, ReadingTask
from gyral.core.checks import check_boolean
from gyral.data.babi import corpus
from gyral.data.babi.answers import frequency_loss
from gyral.data.babi.corpus import Babi, load_stories
from gyral.tasks.base import ModelFactory


class BabiReadingTask(ReadingTask):
    """bAbI with a reader, which predicts one of the candidates.

    If the answers of all training questions are words of their stories, as in tasks 1–5, 11–14 and 16, the reader
    attends to the mentions of the candidates; otherwise, the answers of the training split are classes. The baseline is
    `gyral.data.babi.answers.frequency_loss`. Without a release, the task generates stories and logs the metric
    `substitute` = 1.

    Args:
        model: makes the model from the sizes of the task and the readout.
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
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        UserError: an option is out of bounds; the data is missing, or is not the published data.
    """

    remarks = (corpus.STAND_INS, *ReadingTask.remarks)
    small: ClassVar = {"generated": True, "size": "1k"}

    def __init__(
        self,
        model: ModelFactory,
        *,
        qa: int | str,
        data_dir: str | Path,
        size: str = "1k",
        edges: str = "entities",
        entities: str = "all",
        plurals: bool = False,
        hypernyms: str | Path | None = None,
        validation: str = "cut",
        stand_in: bool = False,
        generated: bool = False,
        path: str | Path | None = None,
        files: Sequence[str | Path] | None = None,
        batch_size: int = 32,
        eval_batch_size: int = 256,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        release: dict[str, Any] = {"path": path, "files": files, "validation": validation, "stand_in": stand_in}
        loaded = load_stories(qa, size, data_dir, generated=generated, seed=data_seed, **release)
        found = self.babi = self.stories(loaded)
        form: dict[str, Any] = {"edges": edges, "entities": entities, "plurals": check_boolean("plurals", plurals)}
        edge_types = wordnet.edge_types(hypernyms)
        form["hypernyms"] = None if hypernyms is None else str(hypernyms)
        asked = {split: read_questions(found, split, **form) for split in found.splits}
        data = ReadingData(
            {split: EncodedQuestions(own, found.vocabulary, edge_types) for split, own in asked.items()},
            found.vocabulary,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            data_seed=data_seed,
        )
        is_generated = loaded.name == corpus.GENERATED
        super().__init__(
            model,
            data,
            name=found.name,
            baseline=frequency_loss(found),
            output_size=len(found.classes),
            in_document=answers_in_stories(found, plurals),
            classes=found.classes,
            edge_types=edge_types,
            tasks=sorted({story[0].task for story in found.splits["train"]}),
            substitute="GENERATED stories, whose results are not results on bAbI" if is_generated else "",
            **options,
        )

    def stories(self, babi: Babi) -> Babi:
        """Return the questions of the task from the stories of bAbI."""
        return babi

    def data_metrics(self) -> dict[str, float]:
        return {**super().data_metrics(), "stand_ins": float(len(self.babi.stand_ins))}
