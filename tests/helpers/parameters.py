"""How many parameters cells have, from the equations of their papers, and the rows of an experiment."""

from collections.abc import Callable

from gyral.config.groups import choices

# Parameters of each cell by input size X and hidden size N, from the papers' equations; outputs of complex cells are 2N
# wide, and a complex number counts as two.
CELLS: dict[str, Callable[[int, int], int]] = {
    "lstm": lambda x, n: 4 * n * (x + n + 2),
    "gru": lambda x, n: 3 * n * (x + n + 2),
    "rnn": lambda x, n: n * (x + n + 2),
    "urnn": lambda x, n: (
        2 * n * x + n + 3 * n + 2 * 2 * n + 2 * n
    ),  # …, three diagonals, two reflections, initial state
    "full_urnn": lambda x, n: 2 * n * x + n + n * n + 2 * n,  # input, bias, a unitary matrix, initial state
    "eurnn": lambda x, n: 2 * n * x + n + n + 2 * (n - 1),  # input, bias, a diagonal, two angles a rotation
    "goru": lambda x, n: 3 * n * (x + 1) + 2 * n * n + n - 1,  # three input kernels, two gates', angles
    "rum": lambda x, n: 3 * n * (x + 1) + 2 * n * n,
    "rum_150_no_gate": lambda x, n: 2 * n * (x + 1) + n * n,
    "fast_weights": lambda x, n: n * (x + n + 1) + 2 * n,  # two kernels and a bias, a normalization
    "weinet": lambda x, n: 7 * n * (x + 1) + 4 * n * n + 2 * n,
    "on_lstm": lambda x, n: (4 * n + 2 * n // 10) * (x + n + 1),  # an LSTM with one bias, two gates of chunks of ten
}
COMPLEX = ("urnn", "full_urnn", "eurnn")


def rows(group: str) -> list[str]:
    """Return the rows that have a file in a group of experiments."""
    names = [name.removeprefix(f"{group}/") for name in choices("experiment") if name.startswith(f"{group}/")]
    assert names
    return names


def cell_of(row: str) -> str:
    """Return which of `CELLS` a row has."""
    return max((cell for cell in CELLS if row.startswith(cell)), key=len)


def expected_parameters(row: str, inputs: int, hidden: int, outputs: int) -> int:
    cell = cell_of(row)
    width = 2 * hidden if cell in COMPLEX else hidden
    return CELLS[cell](inputs, hidden) + width * outputs + outputs
