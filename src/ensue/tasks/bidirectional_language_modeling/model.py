"""The parts of a bidirectional language model: the vocabulary of words that it predicts."""

from __future__ import annotations

import shlex
from typing import ClassVar

from ensue.models.bidirectional import BidirectionalLanguageModel, BidirectionalModel, ContextModel
from ensue.models.encoders import build_encoder
from ensue.models.word_specification import CharacterWords, ContextOutput, NoOutput, SoftmaxOutput
from ensue.nn import HighwayCharacterCNN, SoftmaxHead, Stack, TokenEmbedding
from ensue.tasks.bidirectional_language_modeling.recipe import BidirectionalRecipe
from ensue.tasks.bidirectional_language_modeling.words import LINE_END
from ensue.tasks.texts.tokenizer import TokenizerParts
from ensue.text.character_ngrams import NUM_CHARACTERS, PADDING
from ensue.text.tokenizer import Tokenizer
from ensue.text.words import WordTokenizer


class BidirectionalParts(TokenizerParts):
    """The vocabulary of words."""

    reads: ClassVar[type[Tokenizer]] = WordTokenizer
    tokenizer: WordTokenizer

    def commands(self, recipe: BidirectionalRecipe, path: str) -> list[str]:
        words = self.tokenizer.vocabulary.symbols[LINE_END + 1 :]
        near = "the [] of" if isinstance(recipe.head, ContextOutput) else words[0] if words else ""
        return [
            f"ensue embed {path} TEXTS --json",
            *([f"ensue neighbors {path} {shlex.quote(near)}"] if near else []),
            *([] if isinstance(recipe.head, NoOutput) else [f"ensue evaluate {path} TEXT --json"]),
        ]

    def python(self, recipe: BidirectionalRecipe) -> list[str]:
        return ['print([layers.shape for layers in model.layers_of_words([["The", "house"]])])']

    def build(self, recipe: BidirectionalRecipe) -> BidirectionalModel:
        size, head = self.vocabulary_size, recipe.head
        words = _words(recipe, size)

        def layers() -> Stack:
            stack = build_encoder(recipe.encoder, d_in=words.d_out)
            assert isinstance(stack, Stack)
            return stack

        rightward, leftward = layers(), layers()
        if not isinstance(head, ContextOutput):
            softmax = SoftmaxHead(rightward.d_out, size) if isinstance(head, SoftmaxOutput) else None
            return BidirectionalLanguageModel(words, rightward, leftward, softmax)
        d_hidden = head.d_hidden or 2 * rightward.d_out
        return ContextModel(
            words, rightward, leftward, vocabulary_size=size, d_context=head.d_context, d_hidden=d_hidden
        )


def _words(recipe: BidirectionalRecipe, vocabulary_size: int) -> HighwayCharacterCNN | TokenEmbedding:
    table = recipe.words
    if not isinstance(table, CharacterWords):
        return TokenEmbedding(vocabulary_size, recipe.d_words)
    return HighwayCharacterCNN(
        NUM_CHARACTERS,
        d_character=table.d_character,
        d_out=recipe.d_words,
        filters=[(width, number) for width, number in table.filters],
        num_highways=table.num_highways,
        activation=table.activation,
        longest=table.longest,
        padding=PADDING,
    )
