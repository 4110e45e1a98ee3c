"""A text for a grid of vectors, such as the caption of an image; an encoder–decoder whose source are frames."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.caption_specification import GridSpecification, LookingSpecification
from ensue.models.decoders import build_attention, build_decoder
from ensue.models.encoder_decoder import TextModel
from ensue.models.encoders import build_encoder
from ensue.models.frame_features import FrameFeatures, Frames
from ensue.models.looking import DrawnLooks, uneven_looks
from ensue.models.specification import (
    ONE_WAY,
    Directions,
    EncoderSpecification,
    NoEncoder,
    PairTokens,
    TextHead,
    TransformerEncoder,
    WindowEncoder,
)
from ensue.nn import (
    AttentionBefore,
    CrossAttention,
    Dropout,
    FromContext,
    HardAttention,
    ImageGrid,
    SequenceLayer,
    SoftmaxHead,
    Stack,
    TiedSoftmaxHead,
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
        """What the decoder looks at: the places of an image, row by row, or the frames of a series."""
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


def build_captioner(
    features: FrameFeatures,
    grid: GridSpecification,
    encoder: EncoderSpecification,
    directions: Directions,
    tokens: PairTokens,
    decoder: EncoderSpecification,
    attention: LookingSpecification,
    head: TextHead,
    *,
    rows: int,
    target_size: int,
) -> Captioner:
    """A captioner from its tables, for images of so many `rows`. Raises ValueError for tables that do not go
    together.
    """
    tied = tokens.tied != "none"
    if head.copying:
        raise ValueError("head.copying copies words of a source; a caption's source has none")
    scale = tokens.d_embedding**0.5 if tied else 1.0
    target = TokenEmbedding(target_size, tokens.d_embedding, dropout=tokens.dropout_words, scale=scale)
    places = None
    if grid.kind != "none":
        places = ImageGrid(
            rows, features.d_out, colors=grid.colors, channels=grid.channels, halvings=grid.halvings,
            dropout=grid.dropout,
        )  # fmt: skip
    d_read = features.d_out if places is None else places.d_out
    reads = build_encoder(encoder, d_in=d_read, directions=directions)
    writes = _decoder(decoder, attention, d_in=target.d_out, d_memory=reads.d_out)
    softmax = TiedSoftmaxHead(writes.d_out, target) if tied else SoftmaxHead(writes.d_out, target_size)
    return Captioner(
        features, places, reads, target, writes, softmax, label_smoothing=head.label_smoothing,
        doubly_stochastic=attention.doubly_stochastic, entropy=attention.entropy,
    )  # fmt: skip


def _decoder(
    decoder: EncoderSpecification, attention: LookingSpecification, *, d_in: int, d_memory: int
) -> SequenceLayer:
    """The layers of a decoder that looks before its step, or of one like those of `build_decoder`."""
    if (
        not attention.before
        or attention.kind == "none"
        or isinstance(decoder, TransformerEncoder | WindowEncoder | NoEncoder)
    ):
        return build_decoder(decoder, attention, d_in=d_in, d_memory=d_memory, both_ways=False)
    asks = (
        HardAttention(decoder.d_model, d_memory, expected=attention.expected)
        if attention.hard
        else build_attention(attention, decoder.d_model, d_memory)
    )
    cells = build_encoder(decoder, d_in=d_in + asks.d_out, directions=ONE_WAY)
    layer = AttentionBefore(FromContext(cells, d_memory, mean=True), asks, d_out=decoder.d_model, gated=attention.gate)
    return Stack([layer, Dropout(attention.dropout, d_in=layer.d_out)]) if attention.dropout else layer
