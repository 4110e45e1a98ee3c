"""The construction of a bidirectional model from its recipe and vocabulary, and its description for exporters."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ensue.extensions.bidirectional import layers as bidirectional
from ensue.extensions.bidirectional import recipe as tables
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe
from ensue.extensions.bidirectional.words import LINE_END, UNKNOWN, WordReader
from ensue.models.encoders import build_encoder
from ensue.nn import HighwayCharacterCNN, SoftmaxHead, Stack, TokenEmbedding
from ensue.nn.combinators import reverse_rows
from ensue.tasks.contract import description
from ensue.tasks.texts.export_encoder import ExportEncoder
from ensue.tasks.texts.framing import Framing
from ensue.tasks.texts.tokenizer import TokenizerParts
from ensue.text.character_ngrams import NUM_CHARACTERS, PADDING
from ensue.text.tokenizer import Tokenizer, WordTokenizer

PROGRAMS = "ensue.extensions.bidirectional.programs"
"""The package of the programs of exported models."""


class BidirectionalParts(TokenizerParts):
    """The tokenizer of a bidirectional model, with the vocabulary of predicted words."""

    tokenizer_class: ClassVar[type[Tokenizer]] = WordTokenizer
    tokenizer: WordTokenizer

    def commands(self, recipe: BidirectionalRecipe, path: str) -> list[str]:
        words = self.tokenizer.vocabulary.symbols[LINE_END + 1 :]
        query = "the [] of" if isinstance(recipe.head, tables.ContextOutput) else words[0] if words else ""
        return [
            f"ensue embed {path} TEXTS --json",
            *([f"ensue neighbors {path} {shlex.quote(query)}"] if query else []),
            *([] if isinstance(recipe.head, tables.NoOutput) else [f"ensue evaluate {path} TEXT --json"]),
        ]

    def python(self, recipe: BidirectionalRecipe) -> list[str]:
        return ['print([layers.shape for layers in model.layers_of_words([["The", "house"]])])']

    def build(self, recipe: BidirectionalRecipe) -> bidirectional.BidirectionalModel:
        size, head = self.vocabulary_size, recipe.head
        words = _build_words(recipe, size)
        rightward, leftward = (build_encoder(recipe.encoder, d_in=words.d_out) for _ in range(2))
        assert isinstance(rightward, Stack)
        assert isinstance(leftward, Stack)
        if not isinstance(head, tables.ContextOutput):
            softmax = SoftmaxHead(rightward.d_out, size) if isinstance(head, tables.SoftmaxOutput) else None
            return bidirectional.BidirectionalLanguageModel(words, rightward, leftward, softmax)
        sizes = {"d_context": head.d_context, "d_hidden": head.d_hidden or 2 * rightward.d_out}
        return bidirectional.ContextModel(words, rightward, leftward, vocabulary_size=size, **sizes)


def _build_words(recipe: BidirectionalRecipe, vocabulary_size: int) -> HighwayCharacterCNN | TokenEmbedding:
    table = recipe.words
    if not isinstance(table, tables.CharacterWords):
        return TokenEmbedding(vocabulary_size, recipe.d_words)
    return HighwayCharacterCNN(
        NUM_CHARACTERS, d_character=table.d_character, d_out=recipe.d_words,
        filters=[(width, count) for width, count in table.filters], num_highways=table.num_highways,
        activation=table.activation, longest=table.longest, padding=PADDING,
    )  # fmt: skip


SAMPLE_WORDS = ("a", "be", "sea", "é", "words")
"""The distinct words of sample inputs."""


@dataclass(frozen=True, kw_only=True)
class BidirectionalExportEncoder(ExportEncoder):
    """The encoder of a bidirectional model for export, in which a window is a text of S words.

    The input `distinct` has both boundaries and the distinct words. The inputs `rightward` and `leftward` (W, S) are
    indices of the words in `distinct`, in the order of each direction. `ids` (W, S) of context2vec are word ids.
    """

    words: WordReader
    is_context2vec: bool
    programs: ClassVar[tuple[str, ...]] = ("subwords", f"{PROGRAMS}.both_ways")

    def window_inputs(self) -> dict[str, description.TensorSpec]:
        characters = () if self.words.longest is None else (self.words.longest,)
        windows = f"{self.prefix}windows"
        shape = (windows, f"{self.prefix}words_of_windows")
        sizes: dict[str, tuple[str | int, ...]] = {"distinct": (f"{self.prefix}distinct", *characters)}
        sizes |= {"rightward": shape, "leftward": shape, "lengths_of_windows": (windows,)}
        if self.is_context2vec:
            sizes["ids"] = shape
        return {name: description.TensorSpec(size, torch.int64) for name, size in sizes.items()}

    def sample_windows(self, lengths: Tensor, width: int) -> dict[str, Tensor]:
        indices = torch.randint(
            bidirectional.FIRST_WORD, bidirectional.FIRST_WORD + len(SAMPLE_WORDS), (len(lengths), width)
        )
        mask = description.mask_of(indices, lengths)
        indices = indices.masked_fill(~mask, 0)
        leftward = reverse_rows(indices.unsqueeze(-1), mask).squeeze(-1)
        distinct = torch.from_numpy(self.words.rows(SAMPLE_WORDS))
        if self.words.longest is not None:
            distinct = functional.pad(distinct, (0, self.words.longest - distinct.shape[1]), value=PADDING)
        sample = {"distinct": distinct, "rightward": indices, "leftward": leftward}
        if self.is_context2vec:
            sample["ids"] = torch.randint(self.framing.tokenizer.vocabulary_size, indices.shape)
        return sample

    def read(self, model: Any, inputs: Mapping[str, Tensor]) -> Sequence[Tensor]:
        return self.layers(model, inputs, *self.features(model, inputs))

    def features(self, model: Any, inputs: Mapping[str, Tensor]) -> tuple[list[bidirectional.BothDirections], Tensor]:
        """Return the features of each layer in both directions, and the mask (W, S) of words."""
        rightward, leftward = (
            functional.pad(inputs[f"{self.prefix}{name}"], (1, 0), value=boundary)
            for name, boundary in (("rightward", bidirectional.TEXT_BEGIN), ("leftward", bidirectional.TEXT_END))
        )
        lengths = inputs[f"{self.prefix}lengths_of_windows"]
        mask = description.mask_of(rightward, lengths + 1)
        features, _ = model.read(inputs[f"{self.prefix}distinct"], rightward, leftward, mask=mask)
        return features, description.mask_of(inputs[f"{self.prefix}rightward"], lengths)

    def layers(
        self, model: Any, inputs: Mapping[str, Tensor], features: Sequence[bidirectional.BothDirections], mask: Tensor
    ) -> list[Tensor]:
        """Return the vectors (W, S, d) of words in each layer."""
        return model.layers_of_words(features, mask, inputs.get(f"{self.prefix}ids"))

    @property
    def settings(self) -> dict[str, Any]:
        tokenizer: Any = self.framing.tokenizer
        return {
            "prefix": self.prefix, "tokenizer": self.file, "longest": self.words.longest,
            "lowercase": tokenizer.lowercase, "unknown": UNKNOWN,
        }  # fmt: skip


def export_encoder_of(reader: WordReader, model: Any) -> BidirectionalExportEncoder:
    """Return the encoder of texts for export. Words have no subwords, so the pooling of subwords has no effect."""
    framing, is_context2vec = Framing(tokenizer=reader.tokenizer), model.target_vectors is not None
    return BidirectionalExportEncoder(framing=framing, pooling="mean", words=reader, is_context2vec=is_context2vec)


def describe(reader: WordReader, model: Any) -> description.ModelDescription:
    """Return a description for exporters, with one function that reads each text as a window."""
    encoder, has_head = export_encoder_of(reader, model), getattr(model, "head", None) is not None

    def read(model: Any, **inputs: Any) -> dict[str, Tensor]:
        features, mask = encoder.features(model, inputs)
        layers = torch.stack(encoder.layers(model, inputs, features, mask), 1)
        outputs = {"layers": layers.masked_fill(~mask[:, None, :, None], 0.0)}
        if has_head:
            for name, h in zip(("rightward", "leftward"), model.features_before(features[-1], mask), strict=True):
                outputs[f"{name}_logits"] = model.head(h).masked_fill(~mask.unsqueeze(-1), 0.0)
        return outputs

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        lengths = description.sample_lengths(batch, length)
        return {**encoder.sample_windows(lengths, length), "lengths_of_windows": lengths}

    function = description.TensorFunction("model", read, encoder.window_inputs(), sample)
    settings = {**encoder.settings, "scores": has_head}
    programs = (f"{PROGRAMS}.bidirectional", *encoder.programs)
    tokenizers = {encoder.file: reader.tokenizer}
    source = description.TokenInput(reader.tokenizer)
    return description.ModelDescription(
        source, description.VectorOutput(), model, (function,), model, programs, settings, tokenizers
    )
