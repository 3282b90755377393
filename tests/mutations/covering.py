"""Which tests execute a line, and what they cost, as `tests.mutations.recording` has recorded it."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from coverage.numbits import numbits_to_nums

FIRST_SECONDS = 8.0


class Covering:
    """The recorded tests.

    Args:
        folder: the folder of the records of all processes of a run of the tests.
    """

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        for file in sorted(folder.glob("*.jsonl")):
            self.seconds.update(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
        # file, line → tests
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for file in sorted(folder.glob("*.db")):
            for path, test, numbits in self._read(file):
                for line in numbits_to_nums(numbits):
                    self.lines[path][line].add(test)

    @staticmethod
    def _read(file: Path) -> Iterator[tuple[str, str, bytes]]:
        connection = sqlite3.connect(file)
        query = "SELECT path, context, numbits FROM line_bits JOIN file ON file.id = file_id "
        query += "JOIN context ON context.id = context_id"
        for path, test, numbits in connection.execute(query):
            yield f"src/{path.rpartition('/src/')[2]}", test, numbits
        connection.close()

    def tests(self, file: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that execute one of some lines; "" is the import."""
        return set().union(*(self.lines[file][line] for line in lines if line in self.lines[file]))

    @cached_property
    def of_file(self) -> dict[str, set[str]]:
        """The tests that execute a line of a file, by file."""
        return {file: self.tests(file, lines) - {""} for file, lines in self.lines.items()}

    def choose(self, file: str, tests: set[str], seconds: float) -> list[str]:
        """Return tests that take some CPU seconds together: those whose path is like the file's first, then cheap ones.

        Of those, one case of each test function comes before the second case of any.
        """
        ranks: list[tuple[int, int, float, str]] = []
        cases: dict[str, int] = defaultdict(int)
        parts = [part.removesuffix(".py") for part in file.removeprefix("src/gyral/").split("/")]
        for test in sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test)):
            name = test.partition("[")[0]
            cases[name] += 1
            near = sum(part in name for part in parts)
            ranks.append((-near, cases[name], self.seconds[test], test))
        chosen: list[str] = []
        for _, _, cost, test in sorted(ranks):
            seconds -= cost + 0.02
            if seconds < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def split(self, tests: list[str]) -> list[list[str]]:
        """Return chosen tests in two parts: the first takes few seconds, and finds most faults."""
        taken, number = 0.0, 0
        while number < min(40, len(tests)) and taken < FIRST_SECONDS:
            taken += self.seconds[tests[number]]
            number += 1
        return [part for part in (tests[:number], tests[number:]) if part]
