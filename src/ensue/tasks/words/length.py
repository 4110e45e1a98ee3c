"""The length of the longest text that a model reads whole."""

from __future__ import annotations

from ensue.errors import DataError
from ensue.models.specification import TransformerEncoder
from ensue.tasks.words.recipe import WordsRecipe

MOST_ATTENDED = 20_000
"""The most words of a text for attention, whose time grows with their square."""


def most_words(recipe: WordsRecipe) -> int:
    """The most words of a text that a model of this recipe reads."""
    encoder = recipe.encoder
    if not isinstance(encoder, TransformerEncoder):
        return recipe.most_words
    return min(MOST_ATTENDED, encoder.context) if encoder.positions == "learned" else MOST_ATTENDED


def check_length(words: int, recipe: WordsRecipe, path: str = "", line: int = 0) -> None:
    """Raises DataError, with file and line, if a text has more `words` than the model reads."""
    most, encoder = most_words(recipe), recipe.encoder
    if words <= most:
        return
    is_context = isinstance(encoder, TransformerEncoder) and most == encoder.context
    bound = f"{most:,} (encoder.context)" if is_context else f"{most:,}"
    message = f"{recipe.unit} of {words:,} words; this model ({encoder.kind}) reads up to {bound}: {recipe.too_long}"
    raise DataError(message, path or None, line or None)
