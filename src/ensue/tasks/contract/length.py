"""The length of the longest text that a model reads whole."""

from __future__ import annotations

from ensue.errors import DataError
from ensue.models.specification import TransformerEncoder, WordsEncoderSpecification

MOST_ATTENDED = 20_000
"""The most positions for attention, whose time grows with their square."""


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
