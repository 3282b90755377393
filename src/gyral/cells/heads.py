"""Numbers of heads that suit the hidden size."""

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError


def share(size: int, parts: int) -> int:
    """Return the size of each of several parts that have a size together, rounded up."""
    return -(-size // parts)


def check_heads(heads: int | None, hidden_size: int) -> None:
    """Raise `OptionError` unless each head has one of the N numbers at least."""
    if heads is not None and heads > hidden_size:
        raise OptionError("heads", heads, f"must be at most hidden_size, {hidden_size}")


def heads_of_two(heads: int | None, hidden_size: int, published: int) -> int:
    """Return the option `heads`, whose heads are normalized: a head of one number would always be normalized to zero.

    Args:
        heads: The option. None: `published`, or ⌈N / 2⌉ where those would have a single number each.
        hidden_size: N ≥ 2.
        published: The number of heads of the published models.

    Raises:
        OptionError: An argument has another type, or a head has a single number.
    """
    check_integer("hidden_size", hidden_size, minimum=2)
    if heads is None:
        return published if hidden_size > published else share(hidden_size, 2)
    if check_integer("heads", heads) >= hidden_size:
        reason = f"must be below hidden_size, {hidden_size}: a single number is normalized to zero"
        raise OptionError("heads", heads, reason)
    return heads
