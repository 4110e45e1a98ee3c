"""Vectors of words, computed by the layers of a causal or masked language model of subwords."""

from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn import SequenceLayer, SoftmaxHead, TokenEmbedding
from ensue.nn.border import get_weight
from ensue.nn.draws import RowSlice, drawing_rows, is_sharded


class Subwords(NamedTuple):
    """A batch of B texts as W windows of subwords, and the mapping from subwords to word vectors.

    Long texts have several windows; a pair is one text. The T slots of a text are its words and, if the text itself
    needs a vector, one more slot before or after the words. N subwords belong to slots: the subword at `places[i]` of
    the flattened windows belongs to slot `slots[i]` of the flattened texts. A slot's vector is the sum of the vectors
    of its subwords, multiplied by `weights`.
    """

    ids: Int[Tensor, "W S"]
    mask: Bool[Tensor, "W S"] | None
    segments: Int[Tensor, "W S"] | None
    rows: Int[Tensor, " W"]
    """The index of the text of each window, ascending."""
    places: Int[Tensor, " N"]
    slots: Int[Tensor, " N"]
    weights: Float[Tensor, " N"] | None
    """None: all weights are 1."""
    slot_mask: Bool[Tensor, "B T"] | None
    """True at slots, False at padding; None: no padding."""
    size: tuple[int, int]
    """B and T."""
    first_word_slot: int
    texts_per_prediction: float
    """The number of texts divided by the number of predicted subwords, in the full batch (see `language_nats`)."""
    windows: RowSlice | None = None
    """These windows as a slice of the full batch, for random numbers; None: the full batch."""

    def slice_rows(self, rows: slice) -> Self:
        """Return a slice of the texts."""
        first, last, _ = rows.indices(self.size[0])
        begin, end = torch.searchsorted(self.rows, torch.tensor([first, last], device=self.rows.device)).tolist()
        width, number = self.ids.shape[1], self.size[1]
        inside = (self.places >= begin * width) & (self.places < end * width)
        return self._replace(
            ids=self.ids[begin:end], mask=None if self.mask is None else self.mask[begin:end],
            segments=None if self.segments is None else self.segments[begin:end], rows=self.rows[begin:end] - first,
            places=self.places[inside] - begin * width, slots=self.slots[inside] - first * number,
            weights=None if self.weights is None else self.weights[inside],
            slot_mask=None if self.slot_mask is None else self.slot_mask[rows], size=(last - first, number),
            windows=RowSlice(slice(begin, end), len(self.ids)),
        )  # fmt: skip


class SubwordEncoder(nn.Module):
    """An encoder of words: vectors of subwords (and of segments) → layers → the sum of subword vectors in each slot.

    With a `head`, the encoder also predicts each next subword.
    """

    def __init__(
        self, features: TokenEmbedding, layers: SequenceLayer, segments: TokenEmbedding | None = None,
        head: SoftmaxHead | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.features, self.segments, self.layers, self.head = features, segments, layers, head
        self.d_out, self.is_causal = layers.d_out, layers.is_causal

    def read(self, subwords: Subwords) -> Float[Tensor, "W S d"]:
        """Return the features of each subword."""
        with drawing_rows(subwords.windows if is_sharded() else None):
            return self.vectors(subwords.ids, subwords.mask, subwords.segments)

    def vectors(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> Float[Tensor, "W S d"]:
        """Return the features of each subword from the ids of windows, their mask and their segments."""
        x: Tensor = self.features(ids)
        if self.segments is not None:
            is_one = segments is None or self.segments.vocabulary_size == 1
            x = x + (get_weight(self.segments)[0] if is_one else self.segments(segments))
        return self.layers(x, mask=mask)[0]

    def forward(self, subwords: Subwords) -> Float[Tensor, "B T d"]:
        """Return the vector of each slot; zeros for a slot without subwords."""
        return self.sum_subwords(self.read(subwords), subwords)

    def language_nats(self, h: Float[Tensor, "W S d"], subwords: Subwords) -> Float[Tensor, ""]:
        """Return the mean surprisal in nats of all subwords but the first of each window, times the number of texts."""
        assert self.head is not None
        targets = subwords.ids[:, 1:]
        real = torch.ones_like(targets, dtype=torch.bool) if subwords.mask is None else subwords.mask[:, 1:]
        return self.head.total_nats(h[:, :-1][real], targets[real]) * subwords.texts_per_prediction

    def sum_subwords(self, h: Float[Tensor, "W S d"], subwords: Subwords) -> Float[Tensor, "B T d"]:
        """Return the vectors of the slots from the features of all subwords."""
        vectors = h.flatten(0, 1)[subwords.places].float()
        if subwords.weights is not None:
            vectors = vectors * subwords.weights.unsqueeze(1)
        rows, slots = subwords.size
        sums = vectors.new_zeros(rows * slots, self.d_out).index_add(0, subwords.slots, vectors)
        return sums.view(rows, slots, self.d_out)


def append_features(h: Float[Tensor, "B T d"], x: Float[Tensor, "B U e"], *, first: int) -> Float[Tensor, "B T f"]:
    """Concatenate features of words to the vectors of slots, from slot `first` on."""
    if not x.shape[-1]:
        return h
    return torch.cat((h, nn.functional.pad(x.float(), (0, 0, first, h.shape[1] - first - x.shape[1]))), dim=-1)
