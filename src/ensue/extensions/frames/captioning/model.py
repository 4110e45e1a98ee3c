"""Captioning: the network, its parts and its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from ensue.extensions.frames.data.series import Series
from ensue.extensions.frames.recipe import CaptionAttention, CaptioningRecipe, GridSpecification
from ensue.extensions.frames.tasks.data import check_image
from ensue.extensions.frames.tasks.model import FrameFeatures, FrameParts, Frames, read_frames_seen
from ensue.models.build_text import target_embedding, target_softmax
from ensue.models.encoder_decoder import TextModel
from ensue.models.encoders import build_attention, build_decoder, build_encoder
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
    Stack,
    TokenEmbedding,
    joined_steps,
    watch,
)
from ensue.nn.attention.cross import sources_in
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size, SizeOrZero
from ensue.tasks.contract.chunks import MOST_ATTENDED, check_read, most_read
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.types import Loss, Memory, State

PACE = 50.0
"""A step of an optimizer moves a parameter by about the learning rate; the baseline moves this many times as far."""


def uneven_looks(
    alpha: Float[Tensor, "B T S"], real: Bool[Tensor, "B S"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """`Σ_i (1 − Σ_t α_ti)²` over the real places i and steps t of all rows (Xu et al. 2015, eq. 14)."""
    looks = (alpha * mask.unsqueeze(2)).sum(1)
    return ((1 - looks) ** 2 * real).sum()


class DrawnLooks(nn.Module):
    """The surrogate of hard attention (Xu et al. 2015, section 4.1; Williams 1992), to be minimized:

        Σ_t (N_t − b n_t) ln α_t[s_t]  −  λ Σ_t H[α_t]  +  ½ Σ_t (ν_t − b)²

    ν_t are the nats of the token t, which are fixed here. The draw s_t has to do with the tokens from t on alone: N_t
    is the sum of their nats and n_t their number. That has the expectation of the paper's estimate, which has the nats
    of all tokens at all draws, and varies less. The last term moves the baseline b to the mean of the ν_t. b is a
    parameter, so it is in the checkpoints and the same in all processes.
    """

    def __init__(self, *, entropy: float) -> None:
        super().__init__()
        self.entropy = entropy
        self.slow_baseline = nn.Parameter(torch.zeros(()))

    @property
    def baseline(self) -> Tensor:
        """b, in nats for a token."""
        return PACE * self.slow_baseline

    def forward(
        self,
        alpha: Float[Tensor, "B T S"],
        chosen: Float[Tensor, "B T S"],
        nats: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, ""]:
        """Return the surrogate loss. `chosen` is 1 at the drawn place, and 0 at all places where none was drawn."""
        nats = nats.detach().masked_fill(~mask, 0.0)
        to_come, tokens = (part.flip(1).cumsum(1).flip(1) for part in (nats, mask.to(nats.dtype)))
        logarithms = alpha.clamp(min=torch.finfo(alpha.dtype).tiny).log()
        of_draws = ((to_come - self.baseline.detach() * tokens) * (chosen.detach() * logarithms).sum(2))[mask].sum()
        entropy = -(alpha * logarithms).sum(2)[mask].sum()
        error = 0.5 * ((nats - self.baseline) ** 2)[mask].sum()
        surrogate: Tensor = of_draws - self.entropy * entropy + error
        return surrogate


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
        self, source: FrameFeatures, grid: ImageGrid | None, encoder: SequenceLayer, target: TokenEmbedding,
        decoder: SequenceLayer, head: nn.Module, *, label_smoothing: float = 0.0, doubly_stochastic: float = 0.0,
        entropy: float = 0.0,
    ) -> None:  # fmt: skip
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
        """Return the memory of the decoder: the places of an image, row by row, or the frames of a series."""
        x = self.source(Frames(frames, mask))
        if self.grid is not None:
            x, mask = self.grid(x), None
        h, _ = self.encoder(x, mask=mask)
        return Memory(h, mask)

    def _begin(self, sources: Tensor, mask: Tensor | None, contextual: Sequence[Tensor]) -> State:
        return self.decoder.init_state(len(sources), self.encode(sources, mask))

    def _loss(self, inputs: Tensor, targets: Tensor, state: State, mask: Tensor | None) -> Loss:
        """Return the summed loss of the targets where `mask` is True: surprisal, and the weighted loss of uneven
        attention.

        For hard attention it has the gradient of `drawn`, too, but not its value.
        """
        if not (self.doubly_stochastic or self.drawn is not None):
            return super()._loss(inputs, targets, state, mask)
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
    features: FrameFeatures, grid: GridSpecification, encoder: EncoderSpecification, directions: Directions,
    tokens: PairTokens, decoder: EncoderSpecification, attention: CaptionAttention, head: TextHead, *, rows: int,
    target_size: int,
) -> Captioner:  # fmt: skip
    """Return a captioner from its tables, for images of `rows` rows. Raises ValueError for tables that do not fit
    together.
    """
    if head.copying:
        raise ValueError("head.copying copies words of a source; a caption's source has none")
    target = target_embedding(tokens, target_size)
    places = None
    if grid.kind != "none":
        places = ImageGrid(
            rows, features.d_out, colors=grid.colors, channels=grid.channels, halvings=grid.halvings,
            dropout=grid.dropout,
        )  # fmt: skip
    d_read = features.d_out if places is None else places.d_out
    reads = build_encoder(encoder, d_in=d_read, directions=directions)
    writes = _decoder(decoder, attention, d_in=target.d_out, d_memory=reads.d_out)
    softmax = target_softmax(tokens, target, d_in=writes.d_out)
    return Captioner(
        features, places, reads, target, writes, softmax, label_smoothing=head.label_smoothing,
        doubly_stochastic=attention.doubly_stochastic, entropy=attention.entropy,
    )  # fmt: skip


def _decoder(decoder: EncoderSpecification, attention: CaptionAttention, *, d_in: int, d_memory: int) -> SequenceLayer:
    """Return the layers of a decoder that looks before its step, or of one like those of `build_decoder`."""
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


class CaptioningConfig(Config):
    """`config.json`."""

    target_size: Size
    rows: SizeOrZero
    """The rows of an image; 0: the source is no image, and may have any number of frames."""
    ratio: Annotated[float, Field(gt=0, lt=1e9)]
    """Tokens for a frame, which hardly a training caption exceeds."""


@dataclass(frozen=True)
class CaptionerParts(FrameParts):
    """The parts of a captioner."""

    config: ClassVar[type[Config]] = CaptioningConfig
    target: TokenizerWithSpecials
    rows: int

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        target = run.read_json("tokenizer.json", TokenizerWithSpecials.from_json)
        size, expected = target.vocabulary_size, run.config["target_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has {size} symbols, not {expected}")
        return cls(read_frames_seen(run), target, run.config["rows"])

    def files(self) -> dict[str, Any]:
        return {**super().files(), "tokenizer.json": self.target.to_json()}

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [f"ensue predict {path} FILE > captions", f"ensue evaluate {path} FILE --json"]

    def build(self, recipe: CaptioningRecipe) -> Captioner:
        return build_captioner(
            self.features(recipe), recipe.grid, recipe.encoder, recipe.directions, recipe.tokens, recipe.decoder,
            recipe.attention, recipe.head, rows=self.rows, target_size=self.target.vocabulary_size,
        )  # fmt: skip


class Captioned(NamedTuple):
    """A series and its right captions, perhaps none."""

    series: Series
    targets: tuple[str, ...] = ()


def captions_of(series: Series, separator: str) -> tuple[str, ...]:
    """Return the captions of a series, split at the separator.

    Raises:
        DataError: There is no caption, or an empty one.
    """
    if series.per_frame:
        raise series.error(f"{series.name}: a label for each frame; expected a caption of the whole")
    if not series.labels:
        advice = "data.labels names their column in a table of paths"
        raise series.error(f"{series.name}: no caption; {advice}")
    (text,) = series.labels
    captions = tuple(part.strip() for part in (text.split(separator) if separator else [text]))
    if not all(captions):
        raise series.error(f"{series.name}: an empty caption")
    return captions


def check_looked_at(series: Series, rows: int, recipe: CaptioningRecipe) -> None:
    """Raise DataError unless an image has the `rows` (0: any) and the colors that the model reads."""
    if recipe.reads_images:
        check_image(series, colors=recipe.grid.colors, key="grid.colors", rows=rows)


def check_caption(series: Series, tokens: int, recipe: CaptioningRecipe) -> None:
    """Raise DataError, with its file, if a caption has more tokens than the decoder reads."""
    path, line = series.place
    most = most_read(recipe.decoder, MOST_ATTENDED)
    check_read(
        "a caption of tokens",
        tokens,
        most,
        recipe.decoder,
        table="decoder",
        advice="cut it, or leave it out",
        path=path,
        line=line or 0,
    )
