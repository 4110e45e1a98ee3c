"""The longest text or series that a model reads whole, and the most numbers that it generates."""

from __future__ import annotations

from ensue.errors import DataError, EnsueError
from ensue.models.specification import TransformerEncoder, WordsEncoderSpecification

MOST_ATTENDED = 20_000
"""The most positions for attention, whose time grows with their square."""


MOST_GENERATED = 1 << 28
"""The most numbers that are generated at once, a gigabyte."""


def check_generated(numbers: int) -> None:
    """Raises EnsueError if these are more numbers than a model generates at once."""
    if numbers > MOST_GENERATED:
        raise EnsueError(f"{numbers:,} numbers in all; up to {MOST_GENERATED:,} are generated at once")


def most_read(encoder: WordsEncoderSpecification, otherwise: int) -> int:
    """The most positions that it reads; `otherwise` is the bound of layers without attention."""
    if not isinstance(encoder, TransformerEncoder):
        return otherwise
    return min(MOST_ATTENDED, encoder.context) if encoder.positions == "learned" else MOST_ATTENDED


def check_read(
    what: str,
    count: int,
    most: int,
    encoder: WordsEncoderSpecification,
    *,
    table: str,
    advice: str,
    path: str,
    line: int,
) -> None:
    """Raises DataError, with file and line, if `count` is more than `most`. `what` names the text and its units."""
    if count <= most:
        return
    is_context = isinstance(encoder, TransformerEncoder) and most == encoder.context
    bound = f"{most:,} ({table}.context)" if is_context else f"{most:,}"
    unit, _, things = what.partition(" of ")
    message = f"{unit} of {count:,} {things}; this model ({encoder.kind}) reads up to {bound}: {advice}"
    raise DataError(message, path or None, line or None)
