"""The parts of a language model: its tokenizer."""

from __future__ import annotations

from ensue.models.build import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.tasks.tokenizer import TokenizerParts


class LanguageModelParts(TokenizerParts):
    """The tokenizer of a language model."""

    def build(self, recipe: LanguageModelingRecipe) -> LanguageModel:
        return build_language_model(recipe.tokens, recipe.encoder, vocabulary_size=self.vocabulary_size)
