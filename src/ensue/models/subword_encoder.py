"""The layers of a language model, causal or masked, that read the subwords of texts and give vectors of words."""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn import SequenceLayer, SoftmaxHead, TokenEmbedding
from ensue.nn.border import weight_of
from ensue.nn.draws import RowSlice, drawing_rows, is_sharded


class Subwords(NamedTuple):
    """A batch of texts as subwords: W windows, since a long text has several, and where the vectors of words come from.

    `ids` (W, S) are read with `mask` and `segments`; `rows` (W,) are the texts of the windows, in order. The vector of
    slot n of text b is the sum of the vectors at `places` (N,), counted over the windows, whose `slots` (N,) are
    b · T + n, each times its weight (None: 1). `real` (B, T) are the slots that there are (None: all). The slots of a
    text are its words, and where the text is to have a vector too, one before or behind them; the words begin at
    `first`. A pair is one text.
    """

    ids: Int[Tensor, "W S"]
    mask: Bool[Tensor, "W S"] | None
    segments: Int[Tensor, "W S"] | None
    rows: Int[Tensor, " W"]
    places: Int[Tensor, " N"]
    slots: Int[Tensor, " N"]
    weights: Float[Tensor, " N"] | None
    real: Bool[Tensor, "B T"] | None
    size: tuple[int, int]
    """B and T."""
    first: int
    share: float
    """Texts for each subword that is predicted, in the whole batch."""
    windows: RowSlice | None = None
    """The windows here, of those of the batch that this is a part of."""

    def part(self, rows: slice) -> Self:
        """The batch of some of its texts."""
        first, last, _ = rows.indices(self.size[0])
        begin, end = torch.searchsorted(self.rows, torch.tensor([first, last], device=self.rows.device)).tolist()
        width, number = self.ids.shape[1], self.size[1]
        here = (self.places >= begin * width) & (self.places < end * width)
        return self._replace(
            ids=self.ids[begin:end],
            mask=None if self.mask is None else self.mask[begin:end],
            segments=None if self.segments is None else self.segments[begin:end],
            rows=self.rows[begin:end] - first,
            places=self.places[here] - begin * width,
            slots=self.slots[here] - first * number,
            weights=None if self.weights is None else self.weights[here],
            real=None if self.real is None else self.real[rows],
            size=(last - first, number),
            windows=RowSlice(slice(begin, end), len(self.ids)),
        )


class SubwordEncoder(nn.Module):
    """Vectors of subwords (and of segments) → layers → for each slot of a text the sum of what its subwords have.

    With a `head`, it also predicts each next subword.
    """

    def __init__(
        self,
        features: TokenEmbedding,
        layers: SequenceLayer,
        segments: TokenEmbedding | None = None,
        head: SoftmaxHead | None = None,
    ) -> None:
        super().__init__()
        self.features, self.segments, self.layers, self.head = features, segments, layers, head
        self.d_out = layers.d_out

    @property
    def is_causal(self) -> bool:
        """Whether a position depends on earlier ones only."""
        return self.layers.is_causal

    def read(self, subwords: Subwords) -> Float[Tensor, "W S d"]:
        """The features of each subword."""
        with drawing_rows(subwords.windows if is_sharded() else None):
            return self.vectors(subwords.ids, subwords.mask, subwords.segments)

    def vectors(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> Float[Tensor, "W S d"]:
        """As `read`, from the ids (W, S) of windows, their mask and their segments."""
        x: Tensor = self.features(ids)
        if self.segments is not None:
            is_one = segments is None or self.segments.vocabulary_size == 1
            x = x + (weight_of(self.segments)[0] if is_one else self.segments(segments))
        h: Tensor = self.layers(x, mask=mask)[0]
        return h

    def forward(self, subwords: Subwords) -> Float[Tensor, "B T d"]:
        """The vector of each slot; zeros where it has no subwords."""
        return self.gathered(self.read(subwords), subwords)

    def language_nats(self, h: Float[Tensor, "W S d"], subwords: Subwords) -> Float[Tensor, ""]:
        """The mean surprisal in nats of each subword but the first of its window, for each text, from all features."""
        assert self.head is not None
        targets = subwords.ids[:, 1:]
        real = torch.ones_like(targets, dtype=torch.bool) if subwords.mask is None else subwords.mask[:, 1:]
        return self.head.total_nats(h[:, :-1][real], targets[real]) * subwords.share

    def gathered(self, h: Float[Tensor, "W S d"], subwords: Subwords) -> Float[Tensor, "B T d"]:
        """The vectors of the slots, from the features of all subwords."""
        found = h.flatten(0, 1)[subwords.places].float()
        if subwords.weights is not None:
            found = found * subwords.weights.unsqueeze(1)
        rows, slots = subwords.size
        whole = found.new_zeros(rows * slots, self.d_out).index_add(0, subwords.slots, found)
        return whole.view(rows, slots, self.d_out)


def beside(h: Float[Tensor, "B T d"], x: Float[Tensor, "B U e"], *, first: int) -> Float[Tensor, "B T f"]:
    """The vectors of slots with the features of words beside them, which begin at slot `first`."""
    if not x.shape[-1]:
        return h
    behind = h.shape[1] - first - x.shape[1]
    return torch.cat((h, nn.functional.pad(x.float(), (0, 0, first, behind))), dim=-1)
