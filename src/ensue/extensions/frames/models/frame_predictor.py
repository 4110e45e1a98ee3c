"""A model of the next frame: the density of each frame of a series, given all frames before it."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from ensue.extensions.frames.models.frame_features import FrameFeatures, Frames
from ensue.extensions.frames.models.frame_readers import (
    FrameReader,
    PlainReader,
    ReaderState,
    StochasticReader,
    VariationalReader,
)
from ensue.extensions.frames.models.frame_specification import LatentSpecification, MixtureHeadSpecification
from ensue.models.encoders import build_encoder
from ensue.models.specification import Directions, EncoderSpecification
from ensue.nn import VariationalRecurrent
from ensue.nn.draws import normal
from ensue.nn.heads.mixture import Mixture, MixtureHead
from ensue.types import Loss


class FrameNats(NamedTuple):
    """The cost of each frame, in nats (B, T), zero at padding. All are of frames as they are in the files.

    `nats` is `-log p(x_t | z_≤t, x_<t)`, and `divergence` the KL of the posterior of z_t from its prior; without latent
    variables it is zero. Their sum is the bound. `ratio` is `log q(z_t) - log p(z_t)` for the z_t that was drawn, so
    that `nats + ratio` is `-log w_t` of importance sampling.
    """

    nats: Float[Tensor, "B T"]
    divergence: Float[Tensor, "B T"]
    ratio: Float[Tensor, "B T"]


class FramePredictor(nn.Module):
    """`p(x_1 .. x_T) = Π_t p(x_t | x_<t)`, each a mixture of diagonal Gaussians over normalized features.

    A density of normalized features x̂ = (x - μ) / σ becomes one of x by the factor Π 1/σ. So what is lost and scored,
    in nats, is that of the frames as they are in the files, and models with other normalizations can be compared.
    Missing features are summed out.
    """

    def __init__(self, features: FrameFeatures, reader: FrameReader, head: MixtureHead) -> None:
        super().__init__()
        self.features, self.reader, self.head = features, reader, head

    @property
    def d_latent(self) -> int:
        """The number of latent variables of a frame; 0: there are none."""
        return self.reader.d_latent

    def forward(self, frames: Frames, noise: Float[Tensor, "B T d_latent"]) -> FrameNats:
        """The cost of each frame, with latent variables drawn by this noise from N(0, 1)."""
        x = self.features.normalized(frames.values)
        read = self.reader(x, self.features.disturbed(x), noise, mask=frames.mask)
        observed = frames.values.isnan().logical_not()
        scale = (self.features.deviation.log() * observed).sum(-1)
        nats = self.head(read.decoded).nats(x, observed) + scale
        parts = nats, read.divergence, read.ratio
        if frames.mask is not None:
            parts = tuple(part.masked_fill(~frames.mask, 0.0) for part in parts)  # type: ignore[assignment]
        return FrameNats(*parts)

    def loss(self, frames: Frames) -> Loss:
        """The bound on all frames, with latent variables drawn as the step's rows."""
        found = self(frames, normal((*frames.shape, self.d_latent), device=frames.values.device))
        return Loss((found.nats + found.divergence).sum(), frames.num_real)

    def read(self, frames: Frames, noise: Float[Tensor, "B T d_latent"]) -> ReaderState:
        """The state after the frames of each row."""
        x = self.features.normalized(frames.values)
        return self.reader(x, x, noise, mask=frames.mask).state

    def expected(
        self, frames: Frames, noise: Float[Tensor, "1 T d_latent"], draws: Float[Tensor, "N S d_latent"]
    ) -> Mixture:
        """The distributions (N, S) of the first S frames of a series, each given those before it, of normalized
        features; with latent variables one for each of N draws from their prior.
        """
        x = self.features.normalized(frames.values)
        found: Mixture = self.head(self.reader.imagined(x, noise, draws))
        return found

    def next(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Mixture, ReaderState]:
        """The distribution of the next frame, of normalized features, and what `reader.close` needs with it."""
        decoded, opened = self.reader.open(noise, state)
        return self.head(decoded), opened


def build_frame_predictor(
    features: FrameFeatures,
    encoder: EncoderSpecification,
    latent: LatentSpecification,
    head: MixtureHeadSpecification,
) -> FramePredictor:
    """A model of the next frame from its tables."""
    reader = _reader(encoder, latent, features.d_out)
    density = MixtureHead(reader.d_out, features.d_out, components=head.components, least=head.least_deviation)
    return FramePredictor(features, reader, density)


def _reader(encoder: EncoderSpecification, latent: LatentSpecification, d: int) -> FrameReader:
    size, hidden = latent.size, latent.d_hidden
    match latent.kind:
        case "vrnn":
            cell = build_encoder(encoder, d_in=2 * hidden)
            return VariationalReader(VariationalRecurrent(cell, d_x=d, d_latent=size, d_hidden=hidden))
        case "storn":
            recognition = build_encoder(encoder, d_in=d, directions=Directions(bidirectional=latent.looks_ahead))
            return StochasticReader(build_encoder(encoder, d_in=d + size), recognition, d_latent=size)
    return PlainReader(build_encoder(encoder, d_in=d))
