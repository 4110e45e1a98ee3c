"""The length of the longest text of words that a model reads whole."""

from __future__ import annotations

from ensue.tasks.contract.length import check_read, most_read
from ensue.tasks.words.recipe import WordsRecipe


def most_words(recipe: WordsRecipe) -> int:
    """The most words of a text that a model of this recipe reads."""
    return most_read(recipe.encoder, recipe.most_words)


def check_length(words: int, recipe: WordsRecipe, path: str = "", line: int = 0) -> None:
    """Raises DataError, with file and line, if a text has more `words` than the model reads."""
    check_read(
        f"{recipe.unit} of words", words, most_words(recipe), recipe.encoder, table="encoder", advice=recipe.too_long,
        path=path, line=line,
    )  # fmt: skip
