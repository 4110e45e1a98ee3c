"""Features before the next frame: by causal layers alone, or with latent variables (STORN, VRNN)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn import SequenceLayer, VariationalRecurrent
from ensue.nn.gaussian import Gaussian
from ensue.nn.recurrent.variational import VariationalState
from ensue.types import State, select_rows

ReaderState: TypeAlias = Any
"""The state of a reader between two frames."""


class Read(NamedTuple):
    """The output of a reader: `decoded` for the head, the cost of latent variables (`FrameNats`), and the state."""

    decoded: Float[Tensor, "B T d"]
    divergence: Float[Tensor, "B T"]
    ratio: Float[Tensor, "B T"]
    state: ReaderState


class FrameReader(nn.Module, ABC):
    """`forward` reads whole series. Where frames are generated, `open` says what is known before the next one, with
    latent variables from the prior, and `close` reads it.
    """

    d_out: int
    d_latent: int = 0

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "B T d"],
        disturbed: Float[Tensor, "B T d"],
        noise: Float[Tensor, "B T d_latent"],
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Read:
        """Frames as they are, and as the layers read them in training; `noise` is that of the latent variables."""

    @abstractmethod
    def imagined(
        self, x: Float[Tensor, "1 T d"], noise: Float[Tensor, "1 T d_latent"], draws: Float[Tensor, "N S d_latent"]
    ) -> Float[Tensor, "N S d_out"]:
        """Features before each of the first S frames of a series, with latent variables from their prior by the
        noise of N `draws`. The frames before are read as `forward` reads them with `noise`.
        """

    @abstractmethod
    def init_state(self, rows: int) -> ReaderState:
        """The state before the first frame."""

    @abstractmethod
    def open(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Tensor, ReaderState]:
        """Features before the next frame (B, d_out), and what `close` needs."""

    @abstractmethod
    def close(self, x: Float[Tensor, "B d"], opened: ReaderState) -> ReaderState:
        """The state after a frame."""


class PlainState(NamedTuple):
    """The last frame, which no layer has read yet, and the state of the layers before it."""

    last: Float[Tensor, "B d"]
    layers: State


class PlainReader(FrameReader):
    """`h_t = layers(x_<t)`: the layers read the frame before; before the first frame they read zeros.

    Raises `ValueError` for layers that look ahead.
    """

    def __init__(self, layers: SequenceLayer) -> None:
        super().__init__()
        if not layers.is_causal:
            raise ValueError("the layers of a model of the next frame must be causal")
        self.layers, self.d_out = layers, layers.d_out

    def forward(self, x: Tensor, disturbed: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        zeros = x.new_zeros(x.shape[:2])
        return self._through(x, disturbed, noise, zeros, zeros, mask)

    def _through(
        self, x: Tensor, disturbed: Tensor, z: Tensor, divergence: Tensor, ratio: Tensor, mask: Tensor | None
    ) -> Read:
        decoded, state = self.layers(torch.cat((_before(disturbed), z), dim=-1), mask=mask)
        last = x[:, -1] if mask is None else x[torch.arange(len(x), device=x.device), mask.sum(1) - 1]
        return Read(decoded, divergence, ratio, PlainState(last, state))

    def imagined(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        read: Read = self(x, x, noise)
        return read.decoded[:, :length].expand(count, -1, -1)

    def init_state(self, rows: int) -> PlainState:
        like = next(self.parameters())
        return PlainState(like.new_zeros(rows, self.layers.d_in - self.d_latent), self.layers.init_state(rows))

    def open(self, noise: Float[Tensor, "B d_latent"], state: PlainState) -> tuple[Tensor, State]:
        return self.layers.step(torch.cat((state.last, noise), dim=-1), state.layers)

    def close(self, x: Float[Tensor, "B d"], opened: State) -> PlainState:
        return PlainState(x, opened)


class StochasticReader(PlainReader):
    """STORN (Bayer & Osendorfer 2014): latent variables z_t ~ N(0, 1), each by itself, are an input of the layers too:

        h_t = layers([x_{t-1}; z_t])_t        q(z_t) = N(μ, σ²), (μ, σ) = W recognition(x)_t + b

    The recognition layers may look ahead; generating does not need them.
    """

    def __init__(self, layers: SequenceLayer, recognition: SequenceLayer, *, d_latent: int) -> None:
        super().__init__(layers)
        self.recognition, self.d_latent = recognition, d_latent
        self.posterior = nn.Linear(recognition.d_out, 2 * d_latent)

    def forward(self, x: Tensor, disturbed: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        posterior = self._posterior(x, mask)
        z = posterior.at(noise)
        return self._through(x, disturbed, z, posterior.divergence(), posterior.ratio(z), mask)

    def _posterior(self, x: Tensor, mask: Tensor | None = None) -> Gaussian:
        return Gaussian.of(self.posterior(self.recognition(x, mask=mask)[0]))

    def imagined(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        before, z, state = _before(x), self._posterior(x).at(noise), self.layers.init_state(1)
        first = torch.zeros(count, dtype=torch.int64, device=x.device)
        found = []
        for t in range(length):
            drawn = torch.cat((before[:, t].expand(count, -1), draws[:, t]), dim=-1)
            found.append(self.layers.step(drawn, select_rows(state, first))[0])
            _, state = self.layers.step(torch.cat((before[:, t], z[:, t]), dim=-1), state)
        return torch.stack(found, dim=1)


class VariationalReader(FrameReader):
    """VRNN (Chung et al. 2015): prior and posterior of the latent variables depend on all frames before."""

    def __init__(self, layer: VariationalRecurrent) -> None:
        super().__init__()
        self.layer, self.d_latent, self.d_out = layer, layer.d_latent, layer.d_decoded

    def forward(self, x: Tensor, disturbed: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        y, state = self.layer(torch.cat((disturbed, noise), dim=-1), mask=mask)
        posterior, prior = self.layer.gaussians(y)
        z = posterior.at(noise)
        return Read(y[..., : self.d_out], posterior.divergence(prior), posterior.ratio(z, prior), state)

    def imagined(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        y, _ = self.layer(torch.cat((x, noise), dim=-1))
        h = y[:, :length, self.layer.d_hidden : self.d_out].expand(count, -1, -1).flatten(0, 1)
        decoded, _ = self.layer.imagine(draws.flatten(0, 1), VariationalState(h, None))
        return decoded.view(count, length, -1)

    def init_state(self, rows: int) -> ReaderState:
        return self.layer.init_state(rows)

    def open(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Tensor, ReaderState]:
        decoded, z = self.layer.imagine(noise, state)
        return decoded, (z, state)

    def close(self, x: Float[Tensor, "B d"], opened: ReaderState) -> ReaderState:
        return self.layer.after(x, *opened)


def _before(x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
    """The frame before each; before the first one zeros."""
    return torch.cat((x.new_zeros(len(x), 1, x.shape[2]), x[:, :-1]), dim=1)
