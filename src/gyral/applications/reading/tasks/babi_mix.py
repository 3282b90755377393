"""bAbI-Mix (Dhingra et al. 2017, arXiv:1703.02620): two stories of different worlds in one document.

A mix of two stories of task 1. All entities of the second story are renamed, the sentences of both stories are mixed,
and the question is about one of them:

    first       daniel went to the office . sandra moved to the garden . where is daniel ? office
    second      john moved to the kitchen . daniel ran to the hallway . where is daniel ? hallway
    renamed     jonas moved to the pantry . david ran to the lobby . where is david ? lobby

    input       jonas moved to the pantry . daniel went to the office . sandra moved to the garden . david ran to the
                lobby . | where is david ?
    target      lobby
"""

import logging

from gyral.applications.reading.data.babi_mix import mix
from gyral.applications.reading.tasks.babi_reading import BabiReadingData, BabiReadingTask
from gyral.core.options import NonNegativeInt
from gyral.data.babi.corpus import Babi
from gyral.data.babi.stories import questions

log = logging.getLogger(__name__)


class BabiMixData(BabiReadingData):
    """Questions of bAbI-Mix.

    Args:
        mix_seed: seed of the pairs of stories and of the order of their sentences. The data of runs with different
            seeds is the same.

    The other options are those of `gyral.applications.reading.tasks.babi_reading.BabiReadingData`.
    """

    mix_seed: NonNegativeInt = 0

    def stories(self, babi: Babi) -> Babi:
        mixed = mix(babi, self.mix_seed)
        sentences = [len(question.story) for split in mixed.splits.values() for question in questions(split)]
        log.info(
            "%s: %.0f sentences a mix on average, at most %d; %.0f %% of the mixes have more than 50",
            mixed.name,
            sum(sentences) / len(sentences),
            max(sentences),
            100 * sum(number > 50 for number in sentences) / len(sentences),
        )
        return mixed


class BabiMixTask(BabiReadingTask):
    """bAbI-Mix, with the same number of questions in each split as bAbI; see
    `gyral.applications.reading.data.babi_mix.mix`.

    Args:
        model: makes the model from the sizes of the task and the readout.
        **options: see `BabiMixData` and `gyral.applications.reading.tasks.babi_reading.BabiReadingTask`.

    Raises:
        UserError: as in `gyral.applications.reading.tasks.babi_reading.BabiReadingTask`.
    """

    data_class = BabiMixData
