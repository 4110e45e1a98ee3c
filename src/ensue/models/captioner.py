"""A text for a grid of vectors, such as the caption of an image; an encoder–decoder whose source are frames."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.encoder_decoder import TextModel
from ensue.models.frame_features import FrameFeatures, Frames
from ensue.models.looking import DrawnLooks, uneven_looks
from ensue.nn import (
    CrossAttention,
    HardAttention,
    ImageGrid,
    SequenceLayer,
    TokenEmbedding,
    joined_steps,
    watch,
)
from ensue.nn.attention.cross import sources_in
from ensue.types import Loss, Memory, State


class Captioner(TextModel):
    """A text model whose source are frames: `decoder` looks at `encoder(grid(source(x)))`, or without a grid at
    `encoder(source(x))`.

    `doubly_stochastic` is the weight of the loss for looking unevenly; `drawn` estimates the gradient of hard
    attention. Source: Xu et al. 2015.
    """

    source: FrameFeatures
    grid: ImageGrid | None
    encoder: SequenceLayer
    drawn: DrawnLooks | None

    def __init__(
        self,
        source: FrameFeatures,
        grid: ImageGrid | None,
        encoder: SequenceLayer,
        target: TokenEmbedding,
        decoder: SequenceLayer,
        head: nn.Module,
        *,
        label_smoothing: float = 0.0,
        doubly_stochastic: float = 0.0,
        entropy: float = 0.0,
    ) -> None:
        reading = {"source": source, "grid": grid, "encoder": encoder}
        super().__init__(target, decoder, head, label_smoothing=label_smoothing, **reading)
        looks = {name: part for name, part in decoder.named_modules() if isinstance(part, CrossAttention)}
        self.doubly_stochastic = doubly_stochastic if looks else 0.0
        self.looks = [f"{name}.weights".lstrip(".") for name in looks]
        self.draws = [f"{name}.chosen".lstrip(".") for name, part in looks.items() if isinstance(part, HardAttention)]
        self.drawn = DrawnLooks(entropy=entropy) if self.draws else None

    @property
    def readers(self) -> tuple[FrameFeatures, SequenceLayer]:
        return self.source, self.encoder

    def encode(self, frames: Float[Tensor, "B S d"], mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        """The memory of the decoder: the places of an image, row by row, or the frames of a series."""
        x = self.source(Frames(frames, mask))
        if self.grid is not None:
            x, mask = self.grid(x), None
        h, _ = self.encoder(x, mask=mask)
        return Memory(h, mask)

    def begin(
        self,
        sources: Float[Tensor, "B S d"],
        mask: Bool[Tensor, "B S"] | None = None,
        contextual: Sequence[Tensor] = (),
    ) -> State:
        return self.decoder.init_state(len(sources), self.encode(sources, mask))

    def loss(
        self,
        inputs: Int[Tensor, "B T"],
        targets: Int[Tensor, "B T"],
        state: State,
        *,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Loss:
        """The summed loss of the targets where `mask` is True: surprisal, and the weighted loss for looking unevenly.
        With draws it has the gradient of `drawn`, too, and its value without that.
        """
        if not (self.doubly_stochastic or self.drawn is not None):
            return super().loss(inputs, targets, state, mask=mask)
        with watch(self.decoder, *self.looks, *self.draws) as seen:
            h, _ = self.decoder(self.target(inputs), state)
        real = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
        total = self.head.total_nats(h[real], targets[real], label_smoothing=self.label_smoothing)
        length = targets.shape[1]
        alpha = torch.stack([joined_steps(seen[name], length) for name in self.looks]).mean(0)
        if self.doubly_stochastic:
            places, rows = next(sources_in(state))
            total = total + self.doubly_stochastic * uneven_looks(alpha, places.real[rows], real)
        if self.drawn is not None:
            chosen = joined_steps(seen[self.draws[0]], length)
            surrogate = self.drawn(alpha, chosen, self.head.nats(h.detach(), targets), real)
            total = total + surrogate - surrogate.detach()
        return Loss(total, int(torch.count_nonzero(real)))
