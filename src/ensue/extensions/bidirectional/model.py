"""The parts of a bidirectional language model, the words that it predicts; and the model for export."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ensue.extensions.bidirectional.layers import (
    FIRST_WORD,
    TEXT_BEGIN,
    TEXT_END,
    BidirectionalLanguageModel,
    BidirectionalModel,
    BothDirections,
    ContextModel,
)
from ensue.extensions.bidirectional.recipe import (
    BidirectionalRecipe,
    CharacterWords,
    ContextOutput,
    NoOutput,
    SoftmaxOutput,
)
from ensue.extensions.bidirectional.words import LINE_END, UNKNOWN, WordReader
from ensue.models.encoders import build_encoder
from ensue.nn import HighwayCharacterCNN, SoftmaxHead, Stack, TokenEmbedding
from ensue.nn.combinators import reverse_rows
from ensue.tasks.contract.description import (
    ModelDescription,
    TensorForm,
    TensorFunction,
    TokenInput,
    VectorOutput,
    mask_of,
    sample_lengths,
)
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.portable_reading import PortableReading
from ensue.tasks.texts.tokenizer import TokenizerParts
from ensue.text.character_ngrams import NUM_CHARACTERS, PADDING
from ensue.text.tokenizer import Tokenizer
from ensue.text.words import WordTokenizer

PROGRAMS = "ensue.extensions.bidirectional.programs"
"""The package of the programs that read exported graphs."""


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


SAMPLED = ("a", "be", "sea", "é", "words")
"""The distinct words of a sample."""


@dataclass(frozen=True, kw_only=True)
class WaysReading(PortableReading):
    """A window is a whole text, and its pieces are the words themselves.

    A graph is given the distinct words behind both boundaries, `distinct` (U, longest) or (U,), their numbers in the
    order of each direction, `rightward` and `leftward` (W, S), and for a model of contexts also the `ids` (W, S)
    of words in its vocabulary.
    """

    words: WordReader
    is_context: bool

    @property
    def programs(self) -> tuple[str, ...]:
        return ("subwords", f"{PROGRAMS}.both_ways")

    def window_inputs(self) -> dict[str, TensorForm]:
        letters = () if self.words.longest is None else (self.words.longest,)
        windows = f"{self.prefix}windows"
        ways = (windows, f"{self.prefix}words_of_windows")
        sizes: dict[str, tuple[str | int, ...]] = {"distinct": (f"{self.prefix}distinct", *letters)}
        sizes |= {"rightward": ways, "leftward": ways, "lengths_of_windows": (windows,)}
        if self.is_context:
            sizes["ids"] = ways
        return {name: TensorForm(some, torch.int64) for name, some in sizes.items()}

    def sample_windows(self, lengths: Tensor, width: int) -> dict[str, Tensor]:
        numbers = torch.randint(FIRST_WORD, FIRST_WORD + len(SAMPLED), (len(lengths), width))
        mask = mask_of(numbers, lengths)
        numbers = numbers.masked_fill(~mask, 0)
        leftward = reverse_rows(numbers.unsqueeze(-1), mask).squeeze(-1)
        found = {"distinct": self._distinct(), "rightward": numbers, "leftward": leftward}
        if self.is_context:
            found["ids"] = torch.randint(self.framing.tokenizer.vocabulary_size, numbers.shape)
        return found

    def _distinct(self) -> Tensor:
        """The words of a sample behind both boundaries."""
        rows = torch.from_numpy(self.words.rows(SAMPLED))
        longest = self.words.longest
        return rows if longest is None else functional.pad(rows, (0, longest - rows.shape[1]), value=PADDING)

    def read(self, model: Any, given: Mapping[str, Tensor]) -> Sequence[Tensor]:
        return self.layers(model, given, *self.features(model, given))

    def features(self, model: Any, given: Mapping[str, Tensor]) -> tuple[list[BothDirections], Tensor]:
        """The features of each layer in both directions, and the mask (W, S) of the words."""
        rightward, leftward = (
            functional.pad(given[f"{self.prefix}{name}"], (1, 0), value=boundary)
            for name, boundary in (("rightward", TEXT_BEGIN), ("leftward", TEXT_END))
        )
        lengths = given[f"{self.prefix}lengths_of_windows"]
        real = mask_of(rightward, lengths + 1)
        features, _ = model.read(given[f"{self.prefix}distinct"], rightward, leftward, mask=real)
        return features, mask_of(given[f"{self.prefix}rightward"], lengths)

    def layers(
        self, model: Any, given: Mapping[str, Tensor], features: Sequence[BothDirections], inside: Tensor
    ) -> list[Tensor]:
        """The vectors (W, S, d) of words in each layer, from these features."""
        found: list[Tensor] = model.layers_of_words(features, inside, given.get(f"{self.prefix}ids"))
        return found

    @property
    def settings(self) -> dict[str, Any]:
        tokenizer: Any = self.framing.tokenizer
        return {
            "prefix": self.prefix,
            "tokenizer": self.file,
            "longest": self.words.longest,
            "lowercase": tokenizer.lowercase,
            "unknown": UNKNOWN,
        }


def reading_of(reader: WordReader, model: Any) -> WaysReading:
    """How texts are read. A word is read whole, so that all poolings of its pieces are the same."""
    framing, is_context = Framing(tokenizer=reader.tokenizer), model.fitting is not None
    return WaysReading(framing=framing, pooling="mean", words=reader, is_context=is_context)


def describe(reader: WordReader, model: Any) -> ModelDescription:
    """Return a description with one function of texts, each a window."""
    reading, has_head = reading_of(reader, model), getattr(model, "head", None) is not None

    def read(model: Any, **given: Any) -> dict[str, Tensor]:
        features, inside = reading.features(model, given)
        layers = torch.stack(reading.layers(model, given, features, inside), 1)
        found = {"layers": layers.masked_fill(~inside[:, None, :, None], 0.0)}
        if has_head:
            for name, h in zip(("rightward", "leftward"), model.beside(features[-1], inside), strict=True):
                found[f"{name}_logits"] = model.head(h).masked_fill(~inside.unsqueeze(-1), 0.0)
        return found

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        lengths = sample_lengths(batch, length)
        return {**reading.sample_windows(lengths, length), "lengths_of_windows": lengths}

    function = TensorFunction("model", read, reading.window_inputs(), sample)
    settings = {**reading.settings, "scores": has_head}
    programs = (f"{PROGRAMS}.bidirectional", *reading.programs)
    tokenizers = {reading.file: reader.tokenizer}
    source = TokenInput(reader.tokenizer)
    return ModelDescription(source, VectorOutput(), model, (function,), model, programs, settings, tokenizers)
