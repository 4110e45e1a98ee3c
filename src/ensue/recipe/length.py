"""How long a text may be for a model that reads it whole, so that it ends, and needs about a gigabyte at most."""

from __future__ import annotations

from ensue.errors import DataError
from ensue.models.specification import TransformerEncoder
from ensue.recipe.classification import ClassificationRecipe
from ensue.recipe.labeling import LabelingRecipe

MOST_OF_SENTENCE, MOST_OF_TEXT = 100_000, 250_000
"""Words of a tagger's sentence and of a classifier's text; a tagger keeps more of each word."""
MOST_ATTENDED = 20_000
"""Words where time goes with their square."""


def most_words(recipe: LabelingRecipe | ClassificationRecipe) -> int:
    """The words of the longest text that such a model reads."""
    model = recipe.model
    if not isinstance(model, TransformerEncoder):
        return MOST_OF_SENTENCE if isinstance(recipe, LabelingRecipe) else MOST_OF_TEXT
    return min(MOST_ATTENDED, model.context) if model.positions == "learned" else MOST_ATTENDED


def check_length(words: int, recipe: LabelingRecipe | ClassificationRecipe, path: str = "", line: int = 0) -> None:
    """DataError, with its place, for a text of more `words` than the model reads."""
    most = most_words(recipe)
    if words <= most:
        return
    is_context = isinstance(recipe.model, TransformerEncoder) and most == recipe.model.context
    bound = f"{most:,} (model.context)" if is_context else f"{most:,}"
    if isinstance(recipe, LabelingRecipe):
        what, advice = "a sentence", "end sentences with a line end, or with a blank line between columns"
    else:
        what, advice = "a text", "cut it, or train with data.max_tokens, which reads a part of long texts"
    message = f"{what} of {words:,} words; this model ({recipe.model.encoder}) reads up to {bound}: {advice}"
    raise DataError(message, path or None, line or None)
