"""A tagger: one label for each word of a sentence, or for each position of another sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder, Subwords, beside
from ensue.models.tag_heads import TagHead
from ensue.models.word_features import Positions
from ensue.nn import SequenceLayer
from ensue.types import Loss


class SentencePlaces(NamedTuple):
    """The places of S sentences in a batch whose rows are several sentences, one after another.

    `places` (S, L) are numbers of words, counted over the batch row by row. `mask` (S, L) is True on real words, and
    `rows` (S,) is the row of each sentence.
    """

    places: Int[Tensor, "S L"]
    mask: Bool[Tensor, "S L"]
    rows: Int[Tensor, " S"]


class Tagger(nn.Module):
    """Features of positions (`WordFeatures`, or a module that reads other `Positions`) → layers → emissions → tags.

    With `repeats`, the head also reads the maxima of the features over all places in the row that have the same word.
    So a name that is clear in one place helps in all others. The layers of another model, a `SubwordEncoder`, read the
    subwords of the words; features then stand beside what it gives.
    """

    layers: SequenceLayer | SubwordEncoder
    features: Any  # `Module.__call__` has no types
    of_labels = "head."
    """The parameters with a row for each tag, by what their names begin with."""

    def __init__(
        self,
        features: nn.Module,
        layers: SequenceLayer | SubwordEncoder,
        head: TagHead,
        *,
        repeats: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(layers, SubwordEncoder):  # the order of moments in checkpoints
            self.layers, self.features = layers, features
        self.features, self.layers, self.head, self.repeats = features, layers, head, repeats

    def passed_parts(self) -> Iterator[nn.Module]:
        """The parts in the order in which a text passes them."""
        read = (self.layers, self.features) if isinstance(self.layers, SubwordEncoder) else (self.features, self.layers)
        yield from (*read, self.head)

    def loss(self, words: Positions, tags: Int[Tensor, "S L"], sentences: SentencePlaces | None = None) -> Loss:
        """The summed surprisal of the sentences' tags (S, L) in nats, and the number of words.

        The rows of `words` are sentences, or several sentences whose places are `sentences`.
        """
        h, mask = self._read(self.features(words), words.keys, words.mask, words.subwords), words.mask
        if sentences is not None:
            h, mask = h.flatten(0, 1)[sentences.places], sentences.mask
        return Loss(self.head.total_nats(h, tags, mask), words.num_real)

    def emissions(
        self,
        x: Float[Tensor, "B T d"],
        keys: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        subwords: Subwords | None = None,
    ) -> Float[Tensor, "B T K"]:
        """The score of each tag at each position, from the words' features and keys, and from their subwords if there
        are layers that read these.
        """
        return self.head.emissions(self._read(x, keys, mask, subwords))

    def _read(self, x: Tensor, keys: Tensor, mask: Tensor | None, subwords: Subwords | None) -> Tensor:
        h: Tensor = self.layers(x, mask=mask)[0] if subwords is None else beside(self.layers(subwords), x, first=0)
        return self.with_repeats(h, keys, mask)

    def with_repeats(self, h: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """The input of the head, from the output of the layers (B, T, d)."""
        return torch.cat((h, self.maxima(h, keys, mask)), dim=-1) if self.repeats else h

    def forward(self, words: Positions) -> Float[Tensor, "B T K"]:
        """The score of each tag for each word."""
        return self.emissions(self.features(words), words.keys, words.mask, words.subwords)

    def maxima(
        self, h: Float[Tensor, "B T d"], keys: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T d"]:
        """At each word the largest value of each feature at any place of the row with the same key."""
        rows = torch.arange(len(keys), device=keys.device).unsqueeze(1).expand_as(keys)
        real = torch.ones_like(keys) if mask is None else mask.long()  # padding is no word's equal
        equal = torch.unique(torch.stack((rows, keys, real), dim=-1).flatten(0, 1), dim=0, return_inverse=True)[1]
        flat = h.flatten(0, 1)
        index = equal.unsqueeze(1).expand_as(flat)
        most = torch.zeros_like(flat).scatter_reduce(0, index, flat, "amax", include_self=False)
        return most.gather(0, index).view_as(h)
