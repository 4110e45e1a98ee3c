"""DRAW: an image is painted on a canvas, stroke by stroke (Gregor et al. 2015).

In training an encoder reads the image, and what the canvas still lacks of it; alone, the decoder paints from noise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.extensions.frames.models.frame_specification import CanvasSpecification
from ensue.models.encoders import build_encoder
from ensue.models.specification import CellsSpecification
from ensue.nn import SequenceLayer, Tap
from ensue.nn.filters import WindowPlacer
from ensue.nn.gaussian import Gaussian
from ensue.types import State

LEAST = 1e-2
"""The least probability of a pixel on the first canvas, and of its opposite."""


class ImageSize(NamedTuple):
    """The sizes of an image (H, P·W): H `rows` of W `columns`, of P `colors` side by side."""

    rows: int
    columns: int
    colors: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """(H, P·W)."""
        return self.rows, self.colors * self.columns

    @property
    def pixels(self) -> int:
        """H · P · W."""
        return math.prod(self)

    def __str__(self) -> str:
        return f"{self.rows} × {self.columns}" + (f" × {self.colors}" if self.colors > 1 else "")


class WholeReader(nn.Module):
    """`read(x, x̂, h) = [x, x̂]` (eq. 17)."""

    def __init__(self, size: ImageSize) -> None:
        super().__init__()
        self.d_out = 2 * size.pixels

    def forward(self, images: Float[Tensor, "B H 2PW"], h: Float[Tensor, "B d"]) -> Float[Tensor, "B d_out"]:
        """`images` are x and x̂, side by side."""
        return images.flatten(1)


class WholeWriter(nn.Module):
    """`write(h) = W h + b` (eq. 18)."""

    def __init__(self, size: ImageSize, d_in: int) -> None:
        super().__init__()
        self.size = size
        self.stroke = nn.Linear(d_in, size.pixels)

    def forward(self, h: Float[Tensor, "B d"]) -> Float[Tensor, "B H PW"]:
        """The change of the canvas."""
        return self.stroke(h).view(-1, *self.size.shape)  # type: ignore[no-any-return]


class WindowReader(nn.Module):
    """`read(x, x̂, h) = γ [F_Y x F_Xᵀ, F_Y x̂ F_Xᵀ]`, by a window that h places (eq. 27)."""

    def __init__(self, size: ImageSize, d_in: int, window: int) -> None:
        super().__init__()
        self.window = WindowPlacer(d_in, size=window, rows=size.rows, columns=size.columns)
        self.d_out = 2 * size.colors * window**2

    def forward(self, images: Float[Tensor, "B H 2PW"], h: Float[Tensor, "B d"]) -> Float[Tensor, "B d_out"]:
        """`images` are x and x̂, side by side."""
        return self.window(h).read(images)  # type: ignore[no-any-return]


class WindowWriter(nn.Module):
    """`write(h) = F̂_Yᵀ w F̂_X / γ̂` with a patch `w = W h + b`, by a window that h places (eqs. 28 and 29)."""

    def __init__(self, size: ImageSize, d_in: int, window: int) -> None:
        super().__init__()
        self.window = WindowPlacer(d_in, size=window, rows=size.rows, columns=size.columns)
        self.patch = nn.Linear(d_in, size.colors * window**2)

    def forward(self, h: Float[Tensor, "B d"]) -> Float[Tensor, "B H PW"]:
        """The change of the canvas."""
        patch = self.patch(h).view(len(h), self.window.size, -1)
        return self.window(h).write(patch)  # type: ignore[no-any-return]


class PaintState(NamedTuple):
    """The canvas c, the output h of the decoder, and the states of decoder and encoder."""

    canvas: Float[Tensor, "B H PW"]
    h: Float[Tensor, "B d"]
    decoder: State
    encoder: State = None


class Bound(NamedTuple):
    """The parts of the bound on `-log p(x)` of each image, in nats. In the mean over draws it is not below."""

    reconstruction: Float[Tensor, " B"]
    """`-log D(x | c_T)` (eq. 9)."""
    divergence: Float[Tensor, "B T"]
    """`KL(Q(z_t | h^enc_t) ‖ N(0, 1))` of each glimpse (eq. 10)."""
    weight: Float[Tensor, " B"]
    """`log p(x, z) / Q(z | x)` of the draw z, for importance sampling."""

    @property
    def total(self) -> Float[Tensor, " B"]:
        """Nats of an image."""
        return self.reconstruction + self.divergence.sum(1)


class Painter(nn.Module):
    """DRAW (Gregor et al. 2015, eqs. 3 to 8), at each glimpse t:

        x̂_t = x − σ(c_{t−1})                    r_t = read(x, x̂_t, h^dec_{t−1})
        h^enc_t = RNN^enc([r_t, h^dec_{t−1}])   z_t ~ N(μ(h^enc_t), σ(h^enc_t)²)
        h^dec_t = RNN^dec(z_t)                  c_t = c_{t−1} + write(h^dec_t)

    A pixel is 1 with the probability σ(c_T). The first canvas c_0 and h^dec_0 are learned.
    """

    def __init__(
        self, encoder: SequenceLayer, decoder: SequenceLayer, reader: WholeReader | WindowReader,
        writer: WholeWriter | WindowWriter, *, size: ImageSize, glimpses: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size, self.glimpses, self.d_latent = size, glimpses, decoder.d_in
        self.encoder, self.decoder, self.reader, self.writer = encoder, decoder, reader, writer
        self.posterior = nn.Linear(encoder.d_out, 2 * self.d_latent)
        self.canvas = Tap()
        self.first_canvas = nn.Parameter(torch.zeros(size.shape))
        self.first_h = nn.Parameter(torch.zeros(decoder.d_out))

    @torch.no_grad()
    def begin_with(self, mean: Float[Tensor, "H PW"]) -> None:
        """Makes the first canvas the mean of the training images, whose pixels are from 0 to 1."""
        self.first_canvas.copy_(mean.clamp(LEAST, 1 - LEAST).logit())

    def forward(self, x: Float[Tensor, "B H PW"], noise: Float[Tensor, "B T d_latent"]) -> Bound:
        """The bound of each image, for draws `z = μ + σ ε` with the ε of `noise`, from N(0, 1)."""
        state = self._begin(len(x))._replace(encoder=self.encoder.init_state(len(x)))
        found = []
        for epsilon in noise.unbind(1):
            read = self.reader(torch.cat([x, x - state.canvas.sigmoid()], 2), state.h)
            e, encoder = self.encoder.step(torch.cat([read, state.h], 1), state.encoder)
            found.append(q := Gaussian(*self.posterior(e).chunk(2, 1)))
            state = self.paint(q.at(epsilon), state)._replace(encoder=encoder)
        q = Gaussian(*(torch.stack(parts, 1).to(noise.dtype) for parts in zip(*found, strict=True)))
        reconstruction = F.binary_cross_entropy_with_logits(state.canvas, x, reduction="none").sum((1, 2))
        return Bound(reconstruction, q.divergence(), -reconstruction - q.ratio(q.at(noise)).sum(1))

    def paint(self, z: Float[Tensor, "B d_latent"], state: PaintState) -> PaintState:
        """One stroke."""
        h, decoder = self.decoder.step(z, state.decoder)
        return state._replace(canvas=self.canvas(state.canvas + self.writer(h)), h=h, decoder=decoder)

    def canvases(self, noise: Float[Tensor, "B T d_latent"]) -> Float[Tensor, "B T H PW"]:
        """The probabilities of the pixels after each stroke, painted from draws `noise` of N(0, 1) alone."""
        state = self._begin(len(noise))
        found = []
        for z in noise.unbind(1):
            state = self.paint(z, state)
            found.append(state.canvas.sigmoid())
        return torch.stack(found, 1)

    def _begin(self, rows: int) -> PaintState:
        return PaintState(
            self.first_canvas.expand(rows, -1, -1), self.first_h.expand(rows, -1), self.decoder.init_state(rows)
        )


def build_painter(
    canvas: CanvasSpecification, encoder: CellsSpecification, decoder: CellsSpecification, *, size: ImageSize
) -> Painter:
    """A painter from its tables. Raises ValueError for a window that is larger than the images."""
    strokes = build_encoder(decoder, d_in=canvas.d_latent)
    d, attends = strokes.d_out, canvas.attention
    reader = WindowReader(size, d, canvas.read) if attends else WholeReader(size)
    writer = WindowWriter(size, d, canvas.write) if attends else WholeWriter(size, d)
    glimpses = build_encoder(encoder, d_in=reader.d_out + d)
    return Painter(glimpses, strokes, reader, writer, size=size, glimpses=canvas.glimpses)
