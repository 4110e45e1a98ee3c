"""Taggers: a label for each word of a sentence, or for each position of another sequence."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder, Subwords, append_features
from ensue.models.tag_heads import TagHead
from ensue.models.word_features import REACH, Positions
from ensue.nn import SequenceLayer
from ensue.nn.layer import Parallel, mask_padding
from ensue.types import Inputs, Loss, Mask, Outputs, State


class SentenceIndices(NamedTuple):
    """The positions of S sentences in a batch whose rows are concatenated sentences.

    `places` (S, L) index the flattened batch, `mask` (S, L) is True at words, and `rows` (S,) are the sentences' rows.
    """

    places: Int[Tensor, "S L"]
    mask: Bool[Tensor, "S L"]
    rows: Int[Tensor, " S"]


class Tagger(nn.Module):
    """A tagger: features of `Positions` (words, for example) → layers → emissions of tags.

    With `repeats`, the head also reads the maxima of the features over all occurrences of a word in the row, so that
    the context of one occurrence also affects the others. `layers` may be a `SubwordEncoder`, with the layers of
    another model. The features are then concatenated to its output.
    """

    layers: SequenceLayer | SubwordEncoder
    features: Any  # `Module.__call__` has no types
    label_prefix = "head."
    """The prefix of the names of parameters that have a row for each tag."""

    def __init__(
        self, features: nn.Module, layers: SequenceLayer | SubwordEncoder, head: TagHead, *, repeats: bool = False
    ) -> None:
        super().__init__()
        if isinstance(layers, SubwordEncoder):  # checkpoints store the optimizer's moments in this order
            self.layers, self.features = layers, features
        self.features, self.layers, self.head, self.repeats = features, layers, head, repeats

    def modules_in_order(self) -> Iterator[nn.Module]:
        """Yield the modules in the order of computation."""
        body = (self.layers, self.features) if isinstance(self.layers, SubwordEncoder) else (self.features, self.layers)
        yield from (*body, self.head)

    def loss(self, words: Positions, tags: Int[Tensor, "S L"], sentences: SentenceIndices | None = None) -> Loss:
        """Return the summed surprisal of tags (S, L) in nats, and the number of words.

        The rows of `words` are sentences, or concatenated sentences at the positions `sentences`.
        """
        h, mask = self._read(self.features(words), words.keys, words.mask, words.subwords), words.mask
        if sentences is not None:
            h, mask = h.flatten(0, 1)[sentences.places], sentences.mask
        return Loss(self.head.total_nats(h, tags, mask), words.num_real)

    def emissions(
        self, x: Float[Tensor, "B T d"], keys: Int[Tensor, "B T"], mask: Mask = None,
        subwords: Subwords | None = None,
    ) -> Float[Tensor, "B T K"]:  # fmt: skip
        """Return the score of each tag at each position, from features and keys of words, or from subwords."""
        return self.head.emissions(self._read(x, keys, mask, subwords))

    def _read(self, x: Tensor, keys: Tensor, mask: Tensor | None, subwords: Subwords | None) -> Tensor:
        h = self.layers(x, mask=mask)[0] if subwords is None else self.layers(subwords)
        return self.head_input(h, x, keys, mask)

    def head_input(self, h: Tensor, x: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """Return the input of the head from the output of the layers (B, T, d) and the features."""
        h = append_features(h, x, first=0) if isinstance(self.layers, SubwordEncoder) else h
        return torch.cat((h, self.maxima(h, keys, mask)), dim=-1) if self.repeats else h

    def forward(self, words: Positions) -> Float[Tensor, "B T K"]:
        """Return the score of each tag for each word."""
        return self.emissions(self.features(words), words.keys, words.mask, words.subwords)

    def maxima(self, h: Float[Tensor, "B T d"], keys: Int[Tensor, "B T"], mask: Mask) -> Float[Tensor, "B T d"]:
        """Return for each word the maximum of each feature over the words of the row with the same key."""
        rows = torch.arange(len(keys), device=keys.device).unsqueeze(1).expand_as(keys)
        real = torch.ones_like(keys) if mask is None else mask.long()  # separates padding from words
        equal = torch.unique(torch.stack((rows, keys, real), dim=-1).flatten(0, 1), dim=0, return_inverse=True)[1]
        flat = h.flatten(0, 1)
        index = equal.unsqueeze(1).expand_as(flat)
        maxima = torch.zeros_like(flat).scatter_reduce(0, index, flat, "amax", include_self=False)
        return maxima.gather(0, index).view_as(h)


class WindowSum(Parallel):
    """The sum of `WindowScores` over the words around each word, `h_t[k] = Σ_p x_{t + REACH - p}[p K + k]`."""

    is_causal = False

    def __init__(self, d_out: int) -> None:
        super().__init__()
        self.d_in, self.d_out = (2 * REACH + 1) * d_out, d_out

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, State]:
        places, length = torch.split(F.pad(mask_padding(x, mask), (0, 0, REACH, REACH)), self.d_out, dim=2), x.shape[1]
        shifted = [scores[:, 2 * REACH - p : 2 * REACH - p + length] for p, scores in enumerate(places)]
        return torch.stack(shifted).sum(0), None
