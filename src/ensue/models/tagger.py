"""A tagger: one label for every word of a sentence."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.tag_heads import TagHead
from ensue.models.word_features import WordFeatures, Words
from ensue.nn import SequenceLayer
from ensue.types import Loss


class Tagger(nn.Module):
    """Features of the words → layers → emissions → tags."""

    def __init__(self, features: WordFeatures, layers: SequenceLayer, head: TagHead) -> None:
        super().__init__()
        self.features, self.layers, self.head = features, layers, head

    def loss(self, words: Words, tags: Int[Tensor, "B T"]) -> Loss:
        """The summed surprisal of the sentences' tags (B, T) in nats, and the number of words."""
        h, _ = self.layers(self.features(words), mask=words.mask)
        return Loss(self.head.total_nats(h, tags, words.mask), words.num_words)

    def emissions(self, x: Float[Tensor, "B T d"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T K"]:
        """The score of each tag at each position, from the words' features."""
        return self.head.emissions(self.layers(x, mask=mask)[0])

    def forward(self, words: Words) -> Float[Tensor, "B T K"]:
        """The score of each tag for each word."""
        return self.emissions(self.features(words), words.mask)
