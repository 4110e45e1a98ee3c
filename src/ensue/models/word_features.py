"""Words as features: vectors of their own, of their characters, affixes and shape, pretrained ones, given columns, and
layers of other models.

What depends on a word form alone is computed once for each distinct form of a batch, however often it stands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.models.layer_outputs import ContextualVectors, LayersShape
from ensue.models.subword_encoder import Subwords
from ensue.models.word_specification import FeatureSpecification, SentenceFeatureSpecification
from ensue.nn import CharacterCNN, CharacterLSTM, TokenEmbedding
from ensue.nn.dropout import ElementDropout
from ensue.text.lexicon import Lexicon, WordForms

CHUNK_FORMS = 1024
FIRST_STD = 0.1
NO_VECTOR, NEW_CHARACTER = 1, 2


class EncodedForms(NamedTuple):
    """`WordForms` as tensors: (U,) ids of words, shapes, vectors, keys; (U, L) of characters, (U, A) of affixes."""

    words: Int[Tensor, " U"]
    characters: Int[Tensor, "U L"]
    lengths: Int[Tensor, " U"]
    affixes: Int[Tensor, "U A"]
    shapes: Int[Tensor, " U"]
    vectors: Int[Tensor, " U"]
    keys: Int[Tensor, " U"]

    @classmethod
    def of(cls, forms: WordForms, device: torch.device) -> Self:
        """The forms as tensors on a device."""
        return cls(*(torch.from_numpy(part).to(device) for part in forms))


class Positions(Protocol):
    """A batch of rows of positions, such as words, that the features of a model read."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of positions in each, (B, T)."""

    @property
    def mask(self) -> Bool[Tensor, "B T"] | None:
        """True at real positions; None without padding."""

    @property
    def subwords(self) -> Subwords | None:
        """The subwords of the words, for layers that read subwords."""

    @property
    def num_real(self) -> int:
        """The number of real positions."""

    @property
    def keys(self) -> Int[Tensor, "B T"]:
        """A number for each position; equal words have equal numbers."""


class Words(NamedTuple):
    """A batch of texts: their distinct `forms`, the `numbers` of those that stand there, given columns, a mask, and the
    layers (B, T, L, d) of other models. `subwords` are for layers that read these.
    """

    forms: EncodedForms
    numbers: Int[Tensor, "B T"]
    columns: Int[Tensor, "B T C"]
    mask: Bool[Tensor, "B T"] | None
    contextual: tuple[Tensor, ...] = ()
    subwords: Subwords | None = None

    def part(self, rows: slice) -> Self:
        """The batch of some of its rows."""
        mask = None if self.mask is None else self.mask[rows]
        contextual = tuple(layers[rows] for layers in self.contextual)
        return self._replace(
            numbers=self.numbers[rows],
            columns=self.columns[rows],
            mask=mask,
            contextual=contextual,
            subwords=None if self.subwords is None else self.subwords.part(rows),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of places in each, (B, T)."""
        return self.numbers.shape[0], self.numbers.shape[1]

    @property
    def num_real(self) -> int:
        """The number of real words."""
        return self.numbers.numel() if self.mask is None else int(self.mask.sum())

    @property
    def keys(self) -> Int[Tensor, "B T"]:
        """The key that tells one word from another."""
        return self.forms.keys[self.numbers]


class FormTable(NamedTuple):
    """The features of word forms by their numbers: features (N, d) and keys (N,). `lacks` (N,) has `NO_VECTOR`
    for words without a pretrained vector, and `NEW_CHARACTER` for those with an unknown character.
    """

    vectors: Float[Tensor, "N d"]
    keys: Int[Tensor, " N"]
    lacks: Int[Tensor, " N"]


class WordFeatures(nn.Module):
    """All features of a word that a recipe switches on, concatenated: `Words` to (B, T, d_out).

    The last `d_late` of them enter behind the first layer. `contextual` are the shapes of other models' layers.
    """

    def __init__(
        self,
        specification: FeatureSpecification,
        lexicon: Lexicon,
        *,
        pretrained: Tensor | None = None,
        contextual: Sequence[LayersShape] = (),
    ) -> None:
        super().__init__()
        self.dropout_words, self.dropout = specification.dropout_words, ElementDropout(specification.dropout)
        self.words = _table(len(lexicon.words), specification.d_words) if specification.d_words else None
        self.characters = _characters(specification, lexicon)
        self.affixes = _table(len(lexicon.affixes), specification.d_affix) if lexicon.affixes else None
        self.shapes = _table(len(lexicon.shapes), specification.d_shape) if lexicon.shapes else None
        self.vectors: nn.Embedding | None = None
        self.looked_up: Tensor | None = None
        kept: nn.Parameter | None = None
        if pretrained is not None:
            of_data = len(pretrained) - lexicon.kept_vectors
            self.vectors = nn.Embedding(of_data, pretrained.shape[1])
            self.vectors.weight = nn.Parameter(pretrained[:of_data].clone(), requires_grad=specification.train_vectors)
            if lexicon.kept_vectors:
                kept = nn.Parameter(_halves(pretrained[of_data:]), requires_grad=False)
        self.kept_vectors = kept
        d_column = specification.d_column if isinstance(specification, SentenceFeatureSpecification) else 0
        self.columns = nn.ModuleList(_table(len(vocabulary), d_column) for vocabulary in lexicon.columns.values())
        self.d_forms = sum(part.d_out for part in (self.words, self.characters, self.shapes) if part is not None)
        if self.affixes is not None:
            self.d_forms += 2 * lexicon.longest_affix * self.affixes.d_out
        if self.vectors is not None:
            self.d_forms += self.vectors.embedding_dim
        at, mix = specification.contextual_at, specification.contextual_mix
        places = [place for place in ("input", "first-layer") if contextual and at in (place, "both")]
        parts = [ContextualVectors(contextual, mix=mix) for _ in places]
        self.contextual = nn.ModuleList(parts)
        self.d_late = parts[-1].d_out if "first-layer" in places else 0
        self.d_out = self.d_forms + d_column * len(self.columns) + sum(part.d_out for part in parts)

    def form_vectors(self, forms: EncodedForms, *, spelled: Tensor | None = None) -> Float[Tensor, "U d"]:
        """The features of the distinct words of a batch, each by itself.

        `spelled` (U, d_characters) are the vectors of their characters, if these were worked out before.
        """
        parts = []
        if self.words is not None:
            words = forms.words
            if self.training and self.dropout_words:
                words = words.masked_fill(torch.rand(words.shape, device=words.device) < self.dropout_words, 0)
            parts.append(self.words(words))
        if spelled is not None:
            parts.append(spelled)
        elif self.characters is not None:
            real = torch.arange(forms.characters.shape[1], device=forms.lengths.device) < forms.lengths.unsqueeze(1)
            parts.append(self.characters(forms.characters, real))
        if self.affixes is not None:
            parts.append(self.affixes(forms.affixes).flatten(1))
        if self.shapes is not None:
            parts.append(self.shapes(forms.shapes))
        if self.vectors is not None:
            parts.append(self.pretrained(forms.vectors))
        if not parts:
            return torch.zeros(len(forms.words), 0, device=forms.words.device)
        return torch.cat([part.float() for part in parts], dim=-1)

    def pretrained(self, ids: Int[Tensor, " U"]) -> Float[Tensor, "U d"]:
        """The pretrained vectors of the data's words, then of those that are cached or looked up beside them."""
        assert self.vectors is not None
        start, others = (
            self.vectors.num_embeddings,
            [part for part in (self.kept_vectors, self.looked_up) if part is not None],
        )
        of_data = ids if self.training or not others else ids.masked_fill(ids >= start, 0)
        x: Tensor = self.vectors(of_data)
        if self.training:
            return x
        for rows in others:
            inside = (ids >= start) & (ids < start + len(rows))
            x = x.where(~inside.unsqueeze(1), F.embedding((ids - start).masked_fill(~inside, 0), rows).to(x.dtype))
            start += len(rows)
        return x

    def beside(self, rows: Float[Tensor, "N d"]) -> Self:
        """Features in which further words have pretrained vectors; see `Lexicon.beside`."""
        other = copy(self)
        other.looked_up = rows
        return other

    @torch.inference_mode()
    def table(self, forms: WordForms, device: torch.device) -> FormTable:
        """`form_vectors` of many forms, some at a time, those of similar length together."""
        vectors = torch.empty(len(forms.words), self.d_forms, device=device)
        for rows in np.array_split(np.argsort(forms.lengths, kind="stable"), len(vectors) // CHUNK_FORMS + 1):
            vectors[torch.from_numpy(rows).to(device)] = self.form_vectors(EncodedForms.of(forms.select(rows), device))
        return FormTable(vectors, *(torch.from_numpy(part).to(device) for part in (forms.keys, self._lacks(forms))))

    def _lacks(self, forms: WordForms) -> NDArray[np.int64]:
        lacks = np.zeros(len(forms.words), np.int64)
        if self.vectors is not None:
            lacks += NO_VECTOR * (forms.vectors == 0)
        if self.characters is not None:
            real = np.arange(forms.characters.shape[1]) < forms.lengths[:, None]
            lacks += NEW_CHARACTER * (real & (forms.characters == 0)).any(1)
        return lacks

    def in_place(
        self,
        vectors: Float[Tensor, "U d"],
        numbers: Int[Tensor, "B T"],
        columns: Int[Tensor, "B T C"],
        contextual: Sequence[Tensor] = (),
    ) -> Float[Tensor, "B T d_out"]:
        """The forms' vectors where they stand, with the columns and the layers of other models beside them."""
        x = F.embedding(numbers, vectors)
        if len(self.columns):
            given = [table(ids) for table, ids in zip(self.columns, columns.unbind(-1), strict=True)]
            x = torch.cat([x, *given], dim=-1)
        if len(self.contextual):
            x = torch.cat([x, *(part(contextual) for part in self.contextual)], dim=-1)
        features: Tensor = self.dropout(x)
        return features

    def forward(self, words: Words) -> Float[Tensor, "B T d_out"]:
        """The features (B, T, d_out) of a batch of words."""
        return self.in_place(self.form_vectors(words.forms), words.numbers, words.columns, words.contextual)


def _table(size: int, d_out: int) -> TokenEmbedding:
    """Vectors that begin small: what is rare should say little until it has been learned (docs/log)."""
    table = TokenEmbedding(size, d_out)
    nn.init.normal_(table.weight, std=FIRST_STD)
    return table


def _halves(numbers: Tensor) -> Tensor:
    """In half precision, in which no number is above its largest one."""
    most = torch.finfo(torch.float16).max
    return numbers.clamp(-most, most).half()


def _characters(specification: FeatureSpecification, lexicon: Lexicon) -> CharacterLSTM | CharacterCNN | None:
    if specification.characters == "none" or lexicon.characters is None:
        return None
    kind = CharacterLSTM if specification.characters == "lstm" else CharacterCNN
    return kind(len(lexicon.characters), d_character=specification.d_character, d_out=specification.d_characters)
