"""Generation of images by DRAW (Gregor et al. 2015): model, data, training and scores."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.permutation import Permutation, mix
from ensue.errors import DataError
from ensue.extensions.frames.data.series import Series, SeriesOptions
from ensue.extensions.frames.data.source import FrameSource
from ensue.extensions.frames.recipe import DrawingRecipe
from ensue.extensions.frames.tasks.data import HashedData, check_image
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, Tap
from ensue.nn.draws import normal
from ensue.nn.filters import ImageWindow, filters
from ensue.nn.gaussian import Gaussian
from ensue.ranks import sharded_map
from ensue.runs.directory import RunDirectory
from ensue.stored import Bounds, arguments
from ensue.tasks.contract.data_set import Split
from ensue.tasks.contract.job import Job, ModelParts
from ensue.tasks.contract.task import NamedScores, Task, TensorBatch, on_device
from ensue.types import Loss, State

INITIAL_COVERAGE, INITIAL_DEVIATION = 0.6, 0.4
"""The fraction of an image's side that a new window covers, and σ of its filters in strides."""
MIN_PIXEL = 1e-2
"""The smallest probability of a pixel on the first canvas. The largest probability is 1 - MIN_PIXEL."""


class ImageSize(NamedTuple):
    """The numbers H of rows, W of columns and P of colors of an image (H, P·W) with P color planes side by side."""

    rows: int
    columns: int
    colors: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of an image, (H, P·W)."""
        return self.rows, self.colors * self.columns

    @property
    def pixels(self) -> int:
        """The number of values of an image, H · P · W."""
        return math.prod(self)

    def __str__(self) -> str:
        return f"{self.rows} × {self.columns}" + (f" × {self.colors}" if self.colors > 1 else "")


class WindowPlacer(nn.Module):
    """A linear map from a vector h to the five parameters of a window on images of B rows and A columns (Gregor et al.
    2015, eqs. 19 to 26):

        (g̃_X, g̃_Y, log σ², log δ̃, log γ) = W h + b
        g_X = (A + 1)/2 · (g̃_X + 1)       g_Y = (B + 1)/2 · (g̃_Y + 1)      δ = (max(A, B) − 1)/(N − 1) · δ̃
        μ_i = g + (i − N/2 − 0.5) δ        F[i, a] = exp(−(a − μ_i)² / 2σ²) / Z_i, with Z_i so that Σ_a F[i, a] = 1

    N is `size`. With initial weights and h = 0, the window is centered, and its filters overlap. Raises ValueError if
    the images have fewer than N rows or columns.
    """

    def __init__(self, d_in: int, *, size: int, rows: int, columns: int) -> None:
        super().__init__()
        if size > min(rows, columns):
            raise ValueError(f"a window of {size} × {size} is larger than images of {rows} × {columns}")
        self.size, self.rows, self.columns = size, rows, columns
        self.parameters_of, self.five = nn.Linear(d_in, 5), Tap()
        self.full_stride = (max(rows, columns) - 1) / max(1, size - 1)
        deviation = INITIAL_DEVIATION * INITIAL_COVERAGE * self.full_stride
        with torch.no_grad():
            self.parameters_of.bias.copy_(torch.tensor([0, 0, 2 * math.log(deviation), math.log(INITIAL_COVERAGE), 0]))

    def forward(self, h: Float[Tensor, "B d_in"]) -> ImageWindow:
        """Return the window of each row."""
        with torch.autocast(h.device.type, enabled=False):  # bfloat16 has 8 significant bits, too few here
            return self.build_window(self.five(self.parameters_of(h.to(self.parameters_of.weight.dtype))))

    def build_window(self, five: Float[Tensor, "B 5"]) -> ImageWindow:
        """Return the window with the `five` parameters on the left side of the first equation."""
        x, y, log_variance, log_stride, log_intensity = five.unbind(1)
        center = torch.stack([(self.rows + 1) / 2 * (y + 1) - 1, (self.columns + 1) / 2 * (x + 1) - 1], 1)
        stride, variance = self.full_stride * log_stride.exp(), log_variance.exp()
        return ImageWindow(
            center, stride, variance, log_intensity.exp(),
            filters(center[:, 0], stride, variance, size=self.size, length=self.rows),
            filters(center[:, 1], stride, variance, size=self.size, length=self.columns),
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"size={self.size}, rows={self.rows}, columns={self.columns}"


class ImageReader(nn.Module):
    """A reader without attention, `read(x, x̂, h) = [x, x̂]` (eq. 17)."""

    def __init__(self, size: ImageSize) -> None:
        super().__init__()
        self.d_out = 2 * size.pixels

    def forward(self, images: Float[Tensor, "B H 2PW"], h: Float[Tensor, "B d"]) -> Float[Tensor, "B d_out"]:
        """Return features of x and x̂, which are side by side in `images`."""
        return images.flatten(1)


class ImageWriter(nn.Module):
    """A writer without attention, `write(h) = W h + b` (eq. 18)."""

    def __init__(self, size: ImageSize, d_in: int) -> None:
        super().__init__()
        self.size = size
        self.stroke = nn.Linear(d_in, size.pixels)

    def forward(self, h: Float[Tensor, "B d"]) -> Float[Tensor, "B H PW"]:
        """Return the change of the canvas."""
        return self.stroke(h).view(-1, *self.size.shape)


class WindowReader(nn.Module):
    """A reader with attention, `read(x, x̂, h) = γ [F_Y x F_Xᵀ, F_Y x̂ F_Xᵀ]`, whose window depends on h (eq. 27)."""

    def __init__(self, size: ImageSize, d_in: int, window: int) -> None:
        super().__init__()
        self.window = WindowPlacer(d_in, size=window, rows=size.rows, columns=size.columns)
        self.d_out = 2 * size.colors * window**2

    def forward(self, images: Float[Tensor, "B H 2PW"], h: Float[Tensor, "B d"]) -> Float[Tensor, "B d_out"]:
        """Return features of x and x̂, which are side by side in `images`."""
        return self.window(h).read(images)


class WindowWriter(nn.Module):
    """A writer with attention, `write(h) = F̂_Yᵀ w F̂_X / γ̂`, `w = W h + b`, whose window depends on h (eqs. 28, 29)."""

    def __init__(self, size: ImageSize, d_in: int, window: int) -> None:
        super().__init__()
        self.window = WindowPlacer(d_in, size=window, rows=size.rows, columns=size.columns)
        self.patch = nn.Linear(d_in, size.colors * window**2)

    def forward(self, h: Float[Tensor, "B d"]) -> Float[Tensor, "B H PW"]:
        """Return the change of the canvas."""
        return self.window(h).write(self.patch(h).view(len(h), self.window.size, -1))


class PaintState(NamedTuple):
    """The canvas c, the output h of the decoder, and the states of the decoder and the encoder."""

    canvas: Float[Tensor, "B H PW"]
    h: Float[Tensor, "B d"]
    decoder: State
    encoder: State = None


class Bound(NamedTuple):
    """The terms of the bound on `-log p(x)` of each image, in nats. The bound is the expectation of `total`."""

    reconstruction: Float[Tensor, " B"]
    """`-log D(x | c_T)` (eq. 9)."""
    divergence: Float[Tensor, "B T"]
    """`KL(Q(z_t | h^enc_t) ‖ N(0, 1))` of each glimpse (eq. 10)."""
    weight: Float[Tensor, " B"]
    """`log p(x, z) / Q(z | x)` for the sampled z: the log-weight of importance sampling."""

    @property
    def total(self) -> Float[Tensor, " B"]:
        """The sum of the terms for each image."""
        return self.reconstruction + self.divergence.sum(1)


class Painter(nn.Module):
    """DRAW (Gregor et al. 2015, eqs. 3 to 8). At each glimpse t:

        x̂_t = x − σ(c_{t−1})                    r_t = read(x, x̂_t, h^dec_{t−1})
        h^enc_t = RNN^enc([r_t, h^dec_{t−1}])   z_t ~ N(μ(h^enc_t), σ(h^enc_t)²)
        h^dec_t = RNN^dec(z_t)                  c_t = c_{t−1} + write(h^dec_t)

    A pixel is 1 with the probability σ(c_T). The first canvas c_0 and h^dec_0 are learned.
    """

    def __init__(
        self, encoder: SequenceLayer, decoder: SequenceLayer, reader: ImageReader | WindowReader,
        writer: ImageWriter | WindowWriter, *, size: ImageSize, glimpses: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size, self.glimpses, self.d_latent = size, glimpses, decoder.d_in
        self.encoder, self.decoder, self.reader, self.writer = encoder, decoder, reader, writer
        self.posterior = nn.Linear(encoder.d_out, 2 * self.d_latent)
        self.canvas = Tap()
        self.first_canvas = nn.Parameter(torch.zeros(size.shape))
        self.first_h = nn.Parameter(torch.zeros(decoder.d_out))

    def forward(self, x: Float[Tensor, "B H PW"], noise: Float[Tensor, "B T d_latent"]) -> Bound:
        """Return the bound of each image for `z = μ + σ ε`, with ε = `noise` from N(0, 1)."""
        state = self._begin(len(x))._replace(encoder=self.encoder.init_state(len(x)))
        posteriors = []
        for epsilon in noise.unbind(1):
            r = self.reader(torch.cat([x, x - state.canvas.sigmoid()], 2), state.h)
            h, encoder = self.encoder.step(torch.cat([r, state.h], 1), state.encoder)
            posteriors.append(q := Gaussian(*self.posterior(h).chunk(2, 1)))
            state = self.paint(q.reparameterize(epsilon), state)._replace(encoder=encoder)
        q = Gaussian(*(torch.stack(parameter, 1).to(noise.dtype) for parameter in zip(*posteriors, strict=True)))
        reconstruction = F.binary_cross_entropy_with_logits(state.canvas, x, reduction="none").sum((1, 2))
        return Bound(reconstruction, q.divergence(), -reconstruction - q.ratio(q.reparameterize(noise)).sum(1))

    def paint(self, z: Float[Tensor, "B d_latent"], state: PaintState) -> PaintState:
        """Return the state after a stroke."""
        h, decoder = self.decoder.step(z, state.decoder)
        return state._replace(canvas=self.canvas(state.canvas + self.writer(h)), h=h, decoder=decoder)

    def canvases(self, noise: Float[Tensor, "B T d_latent"]) -> Float[Tensor, "B T H PW"]:
        """Return the probabilities of the pixels after each stroke, for latent vectors z = `noise` from N(0, 1)."""
        state = self._begin(len(noise))
        canvases = []
        for z in noise.unbind(1):
            state = self.paint(z, state)
            canvases.append(state.canvas.sigmoid())
        return torch.stack(canvases, 1)

    def _begin(self, n: int) -> PaintState:
        return PaintState(self.first_canvas.expand(n, -1, -1), self.first_h.expand(n, -1), self.decoder.init_state(n))


Pixels = NDArray[np.float32]


@dataclass(frozen=True)
class Images(HashedData):
    """Images (N, H, P·W) with values from 0 to 1, whose P color planes are side by side."""

    pixels: Pixels
    size: ImageSize
    groups: Sequence[str] = ()

    @property
    def arrays(self) -> Pixels:
        return self.pixels

    def select(self, rows: NDArray[np.int64]) -> Self:
        """Return the images `rows`."""
        groups = tuple(self.groups[row] for row in rows.tolist()) if self.groups else ()
        return replace(self, pixels=self.pixels[rows], groups=groups)

    def __len__(self) -> int:
        return len(self.pixels)


def read_images(
    location: str, *, colors: int, encoding: str = "utf-8", size: ImageSize | None = None, limit: int | None = None,
    group: str = "",
) -> Images:  # fmt: skip
    """Return the images of a location, up to `limit`.

    Raises DataError for images of another size than `size` (by default the size of the first image), for values outside
    of 0 to 1, and if `group` is not empty, for images without a group.
    """
    source = FrameSource(location, SeriesOptions(encoding=encoding, group=group))
    images = convert_series(islice(source, limit), colors=colors, size=size, group=group)
    if images is None:
        raise DataError("no images found", location)
    return images


def convert_series(
    series: Iterable[Series], *, colors: int, size: ImageSize | None = None, group: str = ""
) -> Images | None:
    """Return series as images, or None if there are no series. Raises DataError like `read_images`."""
    pixels: list[Pixels] = []
    groups: list[str] = []
    first = "the training data"
    for image in series:
        if size is None:
            rows, width = image.frames.shape
            check_image(image, colors=colors, key="canvas.colors")
            size, first = ImageSize(rows, width // colors, colors), image.name
        pixels.append(_to_color_planes(image, size, first))
        if group:
            groups.append(image.named_group(group))
    return None if size is None or not pixels else Images(np.stack(pixels), size, tuple(groups))


def _to_color_planes(series: Series, size: ImageSize, first: str) -> Pixels:
    """Return the color planes of an image. Raises DataError for a sound, another size, and values outside of 0 to 1."""
    values = series.frames
    if series.channels:
        raise series.error("a sound; expected images")
    if values.shape != size.shape:
        actual, expected = (f"{rows} × {width // size.colors}" for rows, width in (values.shape, size.shape))
        raise series.error(f"an image of {actual}; expected {expected}, as in {first}")
    invalid = values[~((values >= 0) & (values <= 1))]  # includes NaN
    if invalid.size:
        raise series.error(f"a pixel of {invalid[0]:g}; expected values from 0 to 1")
    return values.reshape(size.rows, size.columns, size.colors).transpose(0, 2, 1).reshape(size.shape)


def to_colors(pixels: Pixels, size: ImageSize) -> Pixels:
    """Return images (N, H, W, P) from color planes (N, H, P·W)."""
    return pixels.reshape(len(pixels), size.rows, size.colors, size.columns).transpose(0, 1, 3, 2)


def sample_pixels(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Return random binary pixels. The probability of 1 is the value of the pixel."""
    return (generator.random(pixels.shape, np.float32) < pixels).astype(np.float32)


def binarize(images: Images, method: str) -> Images:
    """Return binary images. `method` is a value of `data.binarize`. The seed of an image is its index."""
    if method == "none":
        return images
    if method == "threshold":
        return replace(images, pixels=(images.pixels >= 0.5).astype(np.float32))
    drawn = [sample_pixels(image, np.random.default_rng(number)) for number, image in enumerate(images.pixels)]
    return replace(images, pixels=np.stack(drawn))


MAX_BATCH_ROWS = 250
"""The largest number of rows in a batch of scoring. A row is an image with a sample of z."""


class Drawing(Task[Painter, TensorBatch]):
    """The training task of a painter, validated by the bound in nats per image."""

    judged_by = "nats_per_image"
    less_is_better = True

    def __init__(self, train: Images, valid: Images | None, recipe: DrawingRecipe) -> None:
        self.draws_pixels = recipe.data.binarize == "anew"
        self.train = train if self.draws_pixels else binarize(train, recipe.data.binarize)
        self.valid = valid and binarize(valid, recipe.data.binarize)
        self.seed, self.batch_size = recipe.train.seed, min(recipe.train.batch_size, len(train))
        self.steps_per_epoch = math.ceil(len(train) / self.batch_size)
        self.tokens_per_step = len(train) / self.steps_per_epoch

    def batch(self, step: int, device: torch.device) -> TensorBatch:
        epoch, index = divmod(step, self.steps_per_epoch)
        first = index * self.batch_size
        positions = np.arange(first, min(first + self.batch_size, len(self.train)))
        pixels = self.train.pixels[Permutation(len(self.train), mix(self.seed, epoch))(positions)]
        if self.draws_pixels:
            pixels = sample_pixels(pixels, np.random.default_rng(mix(self.seed, step, 1)))
        return TensorBatch((on_device(pixels, device),))

    def loss(self, model: Painter, batch: TensorBatch, state: State) -> tuple[Loss, State]:
        (x,) = batch.tensors
        noise = normal((len(x), model.glimpses, model.d_latent), device=x.device)
        return Loss(model(x, noise).total.sum(), len(x)), None

    def score(self, model: Painter, data: Images) -> NamedScores:
        return score_painter(model, data)


def score_painter(model: Painter, images: Images, *, draws: int = 1) -> NamedScores:
    """Return the bound in nats per image, and its two terms.

    With K > 1 draws of z, importance sampling also gives the tighter bound `-log 1/K Σ_k p(x, z_k) / Q(z_k | x)`
    (Rezende et al. 2014).
    """
    device, rows = device_of(model), range(len(images) * draws)

    @torch.inference_mode()
    def score(batch: range) -> Tensor:
        """Return the reconstruction, the divergence and the weight (3, B) of each row."""
        x = on_device(images.pixels[np.array(batch) // draws], device)
        bound: Bound = model(x, draw_noise(model, batch, device))
        return torch.stack([bound.reconstruction, bound.divergence.sum(1), bound.weight]).double().cpu()

    with evaluating(model):
        batches = [rows[first : first + MAX_BATCH_ROWS] for first in rows[::MAX_BATCH_ROWS]]
        reconstruction, divergence, weight = torch.cat(list(sharded_map(score, batches)), 1)
    terms = {"nats_per_image": reconstruction + divergence, "reconstruction": reconstruction, "divergence": divergence}
    scores = NamedScores({name: float(term.mean()) for name, term in terms.items()})
    if draws > 1:
        scores["importance_nats"] = float((math.log(draws) - weight.view(-1, draws).logsumexp(1)).mean())
    return scores


def draw_noise(model: Painter, numbers: range, device: torch.device, *, seed: int = 0) -> Tensor:
    """Return noise (B, T, d_latent) from N(0, 1). The noise of a row depends only on its number and the seed."""
    shape = (model.glimpses, model.d_latent)
    generators = (np.random.default_rng((seed, number, 1)) for number in numbers)  # other seeds than in `binarize`
    return on_device(np.stack([generator.standard_normal(shape, np.float32) for generator in generators]), device)


Side = Annotated[int, Bounds(1, 1_000_000)]


@dataclass(frozen=True)
class DrawingParts(ModelParts):
    """The size of images, from which a painter is built."""

    size: ImageSize

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        def size_of(content: Any) -> ImageSize:
            return ImageSize(**arguments({"rows": Side, "columns": Side, "colors": Side}, content, kind="image"))

        return cls(run.read_json("image.json", size_of))

    def files(self) -> dict[str, Any]:
        return {"image.json": {"kind": "image", "format_version": 1, **self.size._asdict()}}

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [
            f"ensue generate {path} --out samples.png --samples 64", f"ensue generate {path} --out strokes.gif",
            f"ensue evaluate {path} FILE --json",
        ]  # fmt: skip

    def python(self, recipe: Any) -> list[str]:
        return ['print(model.evaluate("FILE").summary())', "canvases = model.paint(16)"]

    def build(self, recipe: DrawingRecipe) -> Painter:
        canvas, size, strokes = recipe.canvas, self.size, build_encoder(recipe.decoder, d_in=recipe.canvas.d_latent)
        d, attends = strokes.d_out, canvas.attention
        reader = WindowReader(size, d, canvas.read) if attends else ImageReader(size)
        writer = WindowWriter(size, d, canvas.write) if attends else ImageWriter(size, d)
        glimpses = build_encoder(recipe.encoder, d_in=reader.d_out + d)
        return Painter(glimpses, strokes, reader, writer, size=size, glimpses=canvas.glimpses)


class DrawingJob(Job[Painter]):
    """The training job of a painter, for images of one size."""

    unit: ClassVar[str] = "images"
    recipe: DrawingRecipe
    parts: DrawingParts
    task: Drawing

    def __init__(self, recipe: DrawingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file or a folder of images")
        self.fingerprint = FrameSource(data.train, SeriesOptions(encoding=data.encoding)).fingerprint()
        self.size = None if run is None else run.parts.size
        self.split = Split.of(self.read(data.train, group=data.group), data, self.read, examples="images")
        self.parts = DrawingParts(self.split.train.size)
        self.task = Drawing(self.split.train, self.split.valid, recipe)

    def read(self, location: str, *, group: str = "") -> Images:
        """Return the images of a location. Raises DataError if their size differs from that of earlier images."""
        data, colors = self.recipe.data, self.recipe.canvas.colors
        images = read_images(location, colors=colors, encoding=data.encoding, size=self.size, group=group)
        self.size = images.size
        return images

    def encode(self, data: Images) -> Images:
        return binarize(data, self.recipe.data.binarize)

    @torch.no_grad()
    def prepare(self, model: Painter) -> None:
        mean = torch.from_numpy(self.split.train.pixels.mean(0))
        model.first_canvas.copy_(mean.clamp(MIN_PIXEL, 1 - MIN_PIXEL).logit())

    @property
    def data(self) -> str:
        train, valid = self.split.train, self.split.valid
        held_out = f"{len(valid):,} for validation" if valid else "no validation images"
        return f"{len(train):,} images of {train.size}, {held_out}"

    @property
    def notes(self) -> list[str]:
        return self.split.notes

    def about(self) -> str:
        return f"of images of {self.parts.size}"
