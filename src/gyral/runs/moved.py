"""Today's names of what commit 23c1191, the last one before version 0.2.0, called otherwise. Imports no torch."""

from pathlib import Path
from typing import Any

from gyral.core.commands import program, typed
from gyral.core.errors import UserError

# Modules that have moved, and classes that have moved out of their module.
MOVED = {
    "gyral.applications.summarization.models.beam": "gyral.generation.beam",  # called so after 23c1191
    "gyral.data.babi.batches": "gyral.applications.babi.batches",
    "gyral.data.babi.mix": "gyral.applications.reading.data.babi_mix",
    "gyral.data.babi.reading": "gyral.applications.reading.data.babi_questions",
    "gyral.data.concepts.hierarchy": "gyral.applications.boxes.data.hierarchy",
    "gyral.data.concepts.pairs": "gyral.applications.boxes.data.pairs",
    "gyral.data.concepts.ratings": "gyral.applications.boxes.data.ratings",
    "gyral.data.concepts.splits": "gyral.applications.boxes.data.splits",
    "gyral.data.concepts.wordnet": "gyral.applications.boxes.data.wordnet",
    "gyral.data.logic.corpus": "gyral.applications.logic.data.corpus",
    "gyral.data.logic.formulas": "gyral.applications.logic.data.formulas",
    "gyral.data.logic.generated": "gyral.applications.logic.data.generated",
    "gyral.data.minimal_pairs.encoding": "gyral.applications.probes.data.encoding",
    "gyral.data.minimal_pairs.pairs": "gyral.applications.probes.data.pairs",
    "gyral.data.reading.cloze": "gyral.applications.reading.data.cloze",
    "gyral.data.reading.cloze_forms": "gyral.applications.reading.data.cloze_forms",
    "gyral.data.reading.edges": "gyral.data.mentions",
    "gyral.data.reading.encoded": "gyral.applications.reading.data.encoded",
    "gyral.data.reading.highlights": "gyral.applications.reading.data.highlights",
    "gyral.data.reading.lambada": "gyral.applications.reading.data.lambada",
    "gyral.data.reading.ngrams": "gyral.applications.reading.data.ngrams",
    "gyral.data.reading.prepared": "gyral.applications.reading.data.prepared",
    "gyral.data.reading.questions": "gyral.applications.reading.data.questions",
    "gyral.data.reading.sources": "gyral.applications.reading.data.sources",
    "gyral.data.reading.standin": "gyral.applications.reading.data.standin",
    "gyral.data.reading.words": "gyral.applications.reading.data.words",
    "gyral.data.scenes.clevr": "gyral.applications.scenes.data.clevr",
    "gyral.data.scenes.collection": "gyral.applications.scenes.data.collection",
    "gyral.data.scenes.curriculum": "gyral.applications.scenes.data.curriculum",
    "gyral.data.scenes.language": "gyral.applications.scenes.data.language",
    "gyral.data.scenes.questions": "gyral.applications.scenes.data.questions",
    "gyral.data.scenes.rendering": "gyral.applications.scenes.data.rendering",
    "gyral.data.scenes.world": "gyral.applications.scenes.data.world",
    "gyral.data.summaries.batches": "gyral.applications.summarization.data.batches",
    "gyral.data.summaries.corpus": "gyral.applications.summarization.data.corpus",
    "gyral.data.summaries.files": "gyral.applications.summarization.data.files",
    "gyral.data.summaries.parsing": "gyral.applications.summarization.data.parsing",
    "gyral.data.summaries.parts": "gyral.applications.summarization.data.preparation",
    "gyral.data.summaries.preparation": "gyral.applications.summarization.data.preparation",
    "gyral.data.summaries.sources": "gyral.applications.summarization.data.sources",
    "gyral.models.beam": "gyral.generation.beam",
    "gyral.models.boxes": "gyral.applications.boxes.model",
    "gyral.models.concept_learner": "gyral.applications.scenes.models.concept_learner",
    "gyral.models.conv_summarizer": "gyral.applications.summarization.models.conv_summarizer",
    "gyral.models.lead": "gyral.applications.summarization.models.lead",
    "gyral.models.multi_head": "gyral.models.cross_attention",
    "gyral.models.pair_classifier": "gyral.applications.logic.model",
    "gyral.models.pointer_decoder": "gyral.applications.summarization.models.pointer_decoder",
    "gyral.models.pointer_generator": "gyral.applications.summarization.models.pointer_generator",
    "gyral.models.program_execution": "gyral.applications.scenes.models.program_execution",
    "gyral.models.program_parser": "gyral.applications.scenes.models.program_parser",
    "gyral.models.reader": "gyral.applications.reading.models.reader",
    "gyral.models.reader_readouts": "gyral.applications.reading.models.readouts",
    "gyral.models.scene_concepts": "gyral.applications.scenes.models.scene_concepts",
    "gyral.models.summarizer": "gyral.applications.summarization.models.summarizer",
    "gyral.tasks.babi": "gyral.applications.babi.task",
    "gyral.tasks.babi_mix": "gyral.applications.reading.tasks.babi_mix",
    "gyral.tasks.babi_reading": "gyral.applications.reading.tasks.babi_reading",
    "gyral.tasks.cloze": "gyral.applications.reading.tasks.cloze",
    "gyral.tasks.concept_pairs": "gyral.applications.boxes.tasks.concept_pairs",
    "gyral.tasks.corpus_reading": "gyral.applications.reading.tasks.corpus_reading",
    "gyral.tasks.hypernyms": "gyral.applications.boxes.tasks.hypernyms",
    "gyral.tasks.lambada": "gyral.applications.reading.tasks.lambada",
    "gyral.tasks.logical_inference": "gyral.applications.logic.task",
    "gyral.tasks.ratings": "gyral.applications.boxes.tasks.ratings",
    "gyral.tasks.reading": "gyral.applications.reading.tasks.base",
    "gyral.tasks.rouge": "gyral.applications.summarization.rouge",
    "gyral.tasks.scenes": "gyral.applications.scenes.task",
    "gyral.tasks.summarization": "gyral.applications.summarization.task",
    "gyral.training.callbacks.Averaging": "gyral.training.callbacks.averaging.Averaging",
    "gyral.training.callbacks.Boxes": "gyral.applications.boxes.callback.Boxes",
    "gyral.training.callbacks.Checkpoints": "gyral.training.callbacks.checkpoints.Checkpoints",
    "gyral.training.callbacks.Cosines": "gyral.training.callbacks.cosines.Cosines",
    "gyral.training.callbacks.EarlyStopping": "gyral.training.callbacks.early_stopping.EarlyStopping",
    "gyral.training.callbacks.Examples": "gyral.training.callbacks.examples.Examples",
    "gyral.training.callbacks.FiniteGuard": "gyral.training.callbacks.finite_guard.FiniteGuard",
    "gyral.training.callbacks.MemoryTraces": "gyral.training.callbacks.memory_trace.MemoryTraces",
    "gyral.training.callbacks.Norms": "gyral.training.callbacks.norms.Norms",
    "gyral.training.callbacks.Positions": "gyral.training.callbacks.positions.Positions",
    "gyral.training.callbacks.ProgressBar": "gyral.training.callbacks.progress_bar.ProgressBar",
    "gyral.training.callbacks.Pruning": "gyral.training.callbacks.pruning.Pruning",
    "gyral.training.callbacks.Statistics": "gyral.training.callbacks.statistics.Statistics",
    "gyral.training.callbacks.boxes": "gyral.applications.boxes.callback",
}


def current_target(target: str) -> str:
    """Return today's name of a class or function that a configuration names."""
    if target in MOVED:
        return MOVED[target]
    module, dot, name = target.rpartition(".")
    return f"{MOVED[module]}{dot}{name}" if module in MOVED else target


class EarlierVersionError(UserError):
    """A file is of an earlier version; the message ends with the command that migrates it."""


def earlier_version(place: Path, directory: Path, reason: str) -> EarlierVersionError:
    """Return the error about a file of an earlier version.

    Args:
        place: the file.
        directory: the directory that has to be migrated.
        reason: the evidence that an earlier version wrote the file.
    """
    return EarlierVersionError(f"{place}: {reason}; to migrate: {migration_command(directory)}")


def migration_command(directory: Path) -> str:
    """Return the command that migrates a directory."""
    here = Path.cwd()
    shown = directory.relative_to(here) if directory.is_relative_to(here) else directory
    return typed([*program("migrate"), str(shown)])


def check_current(config: Any, place: Path, directory: Path) -> None:
    """Raise `EarlierVersionError` if a configuration has names of an earlier version.

    Args:
        config: the configuration as plain containers, or a dictionary of its values by dotted key.
        place: the file, for the error.
        directory: the directory that has to be migrated.
    """
    left = [config]
    while left:
        node = left.pop()
        left += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        for key, target in node.items() if isinstance(node, dict) else ():
            named = isinstance(target, str) and str(key).rpartition(".")[2] == "_target_"
            if named and current_target(target) != target:
                raise earlier_version(place, directory, f"has the name {target} of an earlier version")
