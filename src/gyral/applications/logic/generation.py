"""The relation between two formulas of propositional logic that a user writes."""

import logging
import re
from collections.abc import Iterator

from gyral.applications.logic.data.corpus import CLASSES
from gyral.applications.logic.data.formulas import RELATIONS, relation, truth_table
from gyral.applications.logic.task import LogicalInferenceTask
from gyral.core.errors import OptionError
from gyral.core.measures import percent

log = logging.getLogger(__name__)


def relate_formulas(task: LogicalInferenceTask, *, formulas: str) -> Iterator[str]:
    """Yield two formulas with the most likely relation between them and its probability, one line.

    The log has the correct relation, which follows from the truth tables of the formulas.

    Args:
        task: a trained task.
        formulas: two formulas as `gyral.applications.logic.data.formulas` describes them, with a comma between them;
            spaces are optional beside brackets.

    Raises:
        OptionError: the text is not two formulas.
    """
    parts = [re.findall(r"[^\s()]+|[()]", part) for part in formulas.split(",")]
    if len(parts) != 2:
        raise OptionError("formulas", formulas, "must be two formulas with a comma between them")
    tables = []
    for tokens in parts:
        try:
            tables.append(truth_table(tokens))
        except ValueError as error:
            raise OptionError("formulas", formulas, f"'{' '.join(tokens)}' {error}") from None
    right = relation(*tables)
    log.info("right relation: %s (%s)", right, RELATIONS[right])
    probabilities = task.probabilities(*parts)
    best = int(probabilities.argmax())
    first, second = (" ".join(tokens) for tokens in parts)
    yield f"{first} {CLASSES[best]} {second} ({RELATIONS[CLASSES[best]]}, {percent(float(probabilities[best]))})\n"
