"""Captioning with attention (Xu et al. 2015): the model, its construction, and checks of its data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from ensue.extensions.frames.data.series import Series
from ensue.extensions.frames.recipe import CaptionAttention, CaptioningRecipe
from ensue.extensions.frames.tasks.data import check_image
from ensue.extensions.frames.tasks.model import FrameFeatures, FrameParts, Frames, read_frame_statistics
from ensue.models.build_text import target_embedding, target_softmax
from ensue.models.encoder_decoder import TextModel
from ensue.models.encoders import build_attention, build_decoder, build_encoder
from ensue.models.specification import ONE_WAY, EncoderSpecification, NoEncoder, TransformerEncoder, WindowEncoder
from ensue.nn.attention.cross import AttentionBefore, CrossAttention, HardAttention, iterate_sources, joined_steps
from ensue.nn.combinators import Stack
from ensue.nn.dropout import Dropout
from ensue.nn.embeddings import TokenEmbedding
from ensue.nn.images import ImageGrid
from ensue.nn.layer import SequenceLayer
from ensue.nn.recurrent.context import FromContext
from ensue.nn.taps import watch
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size, SizeOrZero
from ensue.tasks.contract.chunks import MAX_ATTENTION_TOKENS, check_num_units, max_positions
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.types import Loss, Memory, State

BASELINE_SCALE = 50.0
"""The factor between the baseline and its parameter, by which the baseline learns faster than the weights."""


def doubly_stochastic_loss(
    alpha: Float[Tensor, "B T S"], source_mask: Bool[Tensor, "B S"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return `Σ_i (1 − Σ_t α_ti)²` over the locations i and steps t of all rows (Xu et al. 2015, eq. 14)."""
    return ((1 - (alpha * mask.unsqueeze(2)).sum(1)) ** 2 * source_mask).sum()


class HardAttentionLoss(nn.Module):
    """The surrogate loss of hard attention (Xu et al. 2015, section 4.1; Williams 1992):

        Σ_t (N_t − b n_t) ln α_t[s_t]  −  λ Σ_t H[α_t]  +  ½ Σ_t (ν_t − b)²

    ν_t are the nats of token t, without gradient. N_t is the sum of ν from token t on, and n_t is the number of these
    tokens. Earlier tokens do not depend on the draw s_t. (The sum over all tokens, as in the paper, gives the same mean
    gradient with a larger variance.) The last term moves the baseline b to the mean of ν_t. As a parameter, b is in
    the checkpoints and equal on all ranks.
    """

    def __init__(self, *, entropy: float) -> None:
        super().__init__()
        self.entropy = entropy
        self.slow_baseline = nn.Parameter(torch.zeros(()))

    @property
    def baseline(self) -> Tensor:
        """b in nats per token."""
        return BASELINE_SCALE * self.slow_baseline

    def forward(
        self, alpha: Float[Tensor, "B T S"], chosen: Float[Tensor, "B T S"], nats: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
    ) -> Float[Tensor, ""]:  # fmt: skip
        """Return the surrogate loss. `chosen` is 1 at the drawn locations, and 0 for steps without a draw."""
        nats = nats.detach().masked_fill(~mask, 0.0)
        future_nats, num_tokens = (x.flip(1).cumsum(1).flip(1) for x in (nats, mask.to(nats.dtype)))
        log_alpha = alpha.clamp(min=torch.finfo(alpha.dtype).tiny).log()
        reward = future_nats - self.baseline.detach() * num_tokens
        policy = (reward * (chosen.detach() * log_alpha).sum(2))[mask].sum()
        entropy = -(alpha * log_alpha).sum(2)[mask].sum()
        return policy - self.entropy * entropy + 0.5 * ((nats - self.baseline) ** 2)[mask].sum()


class Captioner(TextModel):
    """A captioner of images or other series of frames (Xu et al. 2015).

    The memory of the decoder is `encoder(grid(source(x)))`, or `encoder(source(x))` without a grid. The attribute
    `doubly_stochastic` is the weight of `doubly_stochastic_loss`, and `drawn` is the loss of hard attention, if any.
    """

    source: FrameFeatures
    grid: ImageGrid | None
    encoder: SequenceLayer
    drawn: HardAttentionLoss | None

    def __init__(
        self, source: FrameFeatures, grid: ImageGrid | None, encoder: SequenceLayer, target: TokenEmbedding,
        decoder: SequenceLayer, head: nn.Module, *, label_smoothing: float = 0.0, doubly_stochastic: float = 0.0,
        entropy: float = 0.0,
    ) -> None:  # fmt: skip
        readers = {"source": source, "grid": grid, "encoder": encoder}
        super().__init__(target, decoder, head, label_smoothing=label_smoothing, **readers)
        attentions = {name: layer for name, layer in decoder.named_modules() if isinstance(layer, CrossAttention)}
        self.doubly_stochastic = doubly_stochastic if attentions else 0.0
        hard = [name for name, layer in attentions.items() if isinstance(layer, HardAttention)]
        self.weight_taps = [f"{name}.weights".lstrip(".") for name in attentions]
        self.draw_taps = [f"{name}.chosen".lstrip(".") for name in hard]
        self.drawn = HardAttentionLoss(entropy=entropy) if hard else None

    @property
    def readers(self) -> tuple[FrameFeatures, SequenceLayer]:
        return self.source, self.encoder

    def encode(self, frames: Float[Tensor, "B S d"], mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        """Return the memory of the decoder: a vector for each location of an image, row by row, or for each frame."""
        x = self.source(Frames(frames, mask))
        if self.grid is not None:
            x, mask = self.grid(x), None
        h, _ = self.encoder(x, mask=mask)
        return Memory(h, mask)

    def begin(self, sources: Tensor, mask: Tensor | None = None, contextual: Sequence[Tensor] = ()) -> State:
        return self.decoder.init_state(len(sources), self.encode(sources, mask))

    def loss(self, inputs: Tensor, targets: Tensor, state: State, *, mask: Tensor | None = None) -> Loss:
        """Return the surprisal of targets plus `doubly_stochastic_loss`. Hard attention changes only the gradient."""
        if not (self.doubly_stochastic or self.drawn is not None):
            return super().loss(inputs, targets, state, mask=mask)
        with watch(self.decoder, *self.weight_taps, *self.draw_taps) as recorded:
            h, _ = self.decoder(self.target(inputs), state)
        mask = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
        total = self.head.total_nats(h[mask], targets[mask], label_smoothing=self.label_smoothing)
        length = targets.shape[1]
        alpha = torch.stack([joined_steps(recorded[name], length) for name in self.weight_taps]).mean(0)
        if self.doubly_stochastic:
            source, rows = next(iterate_sources(state))
            total = total + self.doubly_stochastic * doubly_stochastic_loss(alpha, source.real[rows], mask)
        if self.drawn is not None:
            chosen = joined_steps(recorded[self.draw_taps[0]], length)
            surrogate = self.drawn(alpha, chosen, self.head.nats(h.detach(), targets), mask)
            total = total + surrogate - surrogate.detach()
        return Loss(total, int(torch.count_nonzero(mask)))


def _build_decoder(
    decoder: EncoderSpecification, attention: CaptionAttention, *, d_in: int, d_memory: int
) -> SequenceLayer:
    is_before = attention.before and attention.kind != "none"
    if isinstance(decoder, TransformerEncoder | WindowEncoder | NoEncoder) or not is_before:
        return build_decoder(decoder, attention, d_in=d_in, d_memory=d_memory, has_halves=False)
    if attention.hard:
        attends: CrossAttention = HardAttention(decoder.d_model, d_memory, expected=attention.expected)
    else:
        attends = build_attention(attention, decoder.d_model, d_memory)
    cells = FromContext(build_encoder(decoder, d_in=d_in + attends.d_out, directions=ONE_WAY), d_memory, mean=True)
    layer = AttentionBefore(cells, attends, d_out=decoder.d_model, gated=attention.gate)
    return Stack([layer, Dropout(attention.dropout, d_in=layer.d_out)]) if attention.dropout else layer


class CaptioningConfig(Config):
    """`config.json`."""

    target_size: Size
    rows: SizeOrZero
    """The number of rows of an image; 0 if the source is not an image."""
    ratio: Annotated[float, Field(gt=0, lt=1e9)]
    """The 0.999 quantile (`RATIO_QUANTILE`) of the number of tokens per frame in training, which limits captions."""


@dataclass(frozen=True)
class CaptionerParts(FrameParts):
    """The data from which a captioner is built: shape and statistics of frames, tokenizer, and limit of captions."""

    config: ClassVar[type[Config]] = CaptioningConfig
    target: TokenizerWithSpecials
    rows: int
    ratio: float = 0.0

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        target = run.read_json("tokenizer.json", TokenizerWithSpecials.from_json)
        size, expected = target.vocabulary_size, run.config["target_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: {size} symbols; expected {expected}, as in config.json")
        return cls(read_frame_statistics(run), target, run.config["rows"], run.config["ratio"])

    def files(self) -> dict[str, Any]:
        return {**super().files(), "tokenizer.json": self.target.to_json()}

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [f"ensue predict {path} FILE > captions", f"ensue evaluate {path} FILE --json"]

    def build(self, recipe: CaptioningRecipe) -> Captioner:
        if recipe.head.copying:
            raise ValueError("head.copying needs words in the source; a captioner reads frames")
        features, grid, attention = self.features(recipe), recipe.grid, recipe.attention
        target, image_grid = target_embedding(recipe.tokens, self.target.vocabulary_size), None
        if grid.kind != "none":
            sizes: dict[str, Any] = {"colors": grid.colors, "channels": grid.channels, "halvings": grid.halvings}
            image_grid = ImageGrid(self.rows, features.d_out, **sizes, dropout=grid.dropout)
        d_source = features.d_out if image_grid is None else image_grid.d_out
        encoder = build_encoder(recipe.encoder, d_in=d_source, directions=recipe.directions)
        decoder = _build_decoder(recipe.decoder, attention, d_in=target.d_out, d_memory=encoder.d_out)
        softmax = target_softmax(recipe.tokens, target, d_in=decoder.d_out)
        return Captioner(
            features, image_grid, encoder, target, decoder, softmax, label_smoothing=recipe.head.label_smoothing,
            doubly_stochastic=attention.doubly_stochastic, entropy=attention.entropy,
        )  # fmt: skip


class CaptionedSeries(NamedTuple):
    """A series with its gold captions; empty without captions."""

    series: Series
    targets: tuple[str, ...] = ()


def split_captions(series: Series, separator: str) -> tuple[str, ...]:
    """Return the captions of a series. Raises DataError for a missing or empty caption."""
    if series.per_frame:
        raise series.error("a label for each frame; expected a caption of the series")
    if not series.labels:
        raise series.error("no caption; data.labels names the column of captions in a table of paths")
    (text,) = series.labels
    captions = tuple(caption.strip() for caption in (text.split(separator) if separator else [text]))
    if not all(captions):
        raise series.error("an empty caption")
    return captions


def check_readable(series: Series, rows: int, recipe: CaptioningRecipe) -> None:
    """Raise DataError unless an image has `rows` rows (0: any number) and the colors that the model reads."""
    if recipe.reads_images:
        check_image(series, colors=recipe.grid.colors, key="grid.colors", rows=rows)


def check_caption(series: Series, tokens: int, recipe: CaptioningRecipe) -> None:
    """Raise DataError if a caption has more tokens than the decoder reads."""
    path, line = series.place
    maximum = max_positions(recipe.decoder, MAX_ATTENTION_TOKENS)
    check_num_units(
        "a caption of tokens", tokens, maximum, recipe.decoder, table="decoder",
        advice="shorten or omit the caption", path=path, line=line or 0,
    )  # fmt: skip
