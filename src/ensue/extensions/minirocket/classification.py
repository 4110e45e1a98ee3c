"""MiniRocket: features of series by fixed convolutions, and a classifier that is solved on them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.errors import EnsueError, RecipeError
from ensue.extensions.frames.classification import (
    ClassifiedSeriesData,
    FrameClassificationJob,
    FrameClassificationPipeline,
    FrameClassifierParts,
)
from ensue.extensions.frames.tasks.data import pad_frames
from ensue.extensions.frames.tasks.model import FrameStatistics
from ensue.inspection.page import Inspection
from ensue.models.classifier import Classifier
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of
from ensue.models.ngram_bag import MAX_TEXTS, NUM_FOLDS
from ensue.nn.layer import mask_padding
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription
from ensue.text.labels import Classes

SIZE = 9
"""The number of weights of a kernel: six of -1, and three of 2."""
NUM_KERNELS = math.comb(SIZE, 3)
MAX_DILATIONS = 32
"""The maximum number of dilations of a kernel."""
MAX_POSITIONS = 1 << 14
"""The maximum number of positions of a batch, unless a single series is longer."""
MAX_VALUES = 100_000_000
"""The maximum number of values in the features of all training series (400 MB)."""
MARGIN = 1e-5
"""The margin above thresholds, relative to the largest threshold. Rounding then does not separate equal values."""
GOLDEN_RATIO = (1 + math.sqrt(5)) / 2


class MiniRocket(nn.Module):
    """The features of MiniRocket (Dempster, Schmidt & Webb 2021), standardized by the training data:

        PPV(x, W, b) = share of positions t with (W * x)_t > b

    W * x is a convolution with a kernel of 9 weights, of which three are 2 and the others -1, with dilations up to an
    eighth of `length`. A kernel reads a random subset of the features of a position. Half of the kernels read zeros
    beyond the ends of a series; the others stop before the ends, unless the series is too short. The thresholds b are
    quantiles of the outputs for random training series (`fit`). The random choices depend on `seed` only. The layer
    maps (B, T, d_in) to (B, d_out), where d_out is `num_features` or up to 83 less, and no weight has a gradient.
    """

    def __init__(self, d_in: int, *, length: int, num_features: int, seed: int) -> None:
        super().__init__()
        per_kernel = num_features // NUM_KERNELS
        count = min(per_kernel, MAX_DILATIONS)
        exponents = torch.linspace(0, max(0.0, math.log2(max(1, length - 1) / (SIZE - 1))), count, dtype=torch.float64)
        numbers = Counter((2**exponents + 1e-9).long().tolist())
        self.dilations, shares = list(numbers), list(numbers.values())
        self.counts = [per_kernel * share // count for share in shares]
        self.counts[0] += per_kernel - sum(self.counts)
        self.seed, self.d_out = seed, per_kernel * NUM_KERNELS
        generator = torch.Generator().manual_seed(seed)
        weights = torch.full((NUM_KERNELS, SIZE), -1.0)
        for row, places in zip(weights, combinations(range(SIZE), 3), strict=True):
            row[list(places)] = 2.0
        shape = len(self.dilations), NUM_KERNELS
        sizes = (min(d_in, SIZE) + 1) ** torch.rand(*shape, 1, generator=generator)
        is_read = torch.rand(*shape, d_in, generator=generator).argsort(-1).argsort(-1) < sizes.floor()
        self.register_buffer("kernels", is_read.unsqueeze(-1) * weights.unsqueeze(1), persistent=False)
        self.kernels: Float[Tensor, "D K d_in 9"]
        self.thresholds, self.mean, self.deviation = (
            nn.Parameter(torch.zeros(self.d_out), requires_grad=False) for _ in range(3)
        )

    def forward(self, x: Float[Tensor, "B T d_in"], mask: Bool[Tensor, "B T"] | None = None) -> Tensor:
        """Return the standardized features (B, d_out) of series; `mask` is True on real positions, which come first."""
        return (self._shares(x, mask) - self.mean) / self.deviation

    @torch.no_grad()
    def fit(self, num_series: int, read: Callable[[Tensor], tuple[Tensor, Tensor | None]]) -> None:
        """Set thresholds, means and standard deviations. `read` returns `x` and `mask` of training series by index."""
        generator = torch.Generator().manual_seed(self.seed)
        levels = torch.split(torch.arange(1, self.d_out // NUM_KERNELS + 1) * GOLDEN_RATIO % 1, self.counts)
        thresholds = []
        for number, dilation_levels in enumerate(levels):
            rows = torch.randint(num_series, (NUM_KERNELS,), generator=generator)  # the series of each kernel
            pairs = (
                (v[0, k] for v in self._convolve(number, *read(row))) for k, row in enumerate(torch.split(rows, 1))
            )
            quantiles = torch.stack([outputs[is_inside].quantile(dilation_levels) for outputs, is_inside in pairs])
            thresholds.append((quantiles + MARGIN * quantiles.abs().max()).flatten())
        self.thresholds.copy_(torch.cat(thresholds))
        shares = torch.cat([self._shares(*read(rows)) for rows in torch.split(torch.arange(num_series), 256)])
        self.mean.copy_(shares.mean(0))
        deviation = shares.std(0, correction=0)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def _shares(self, x: Tensor, mask: Tensor | None) -> Float[Tensor, "B d_out"]:
        numbers = torch.split(torch.arange(len(x)), max(1, MAX_POSITIONS // max(1, x.shape[1])))
        batches = ((x[rows], None if mask is None else mask[rows]) for rows in numbers)
        return torch.cat([torch.cat([*self._columns(*batch)], dim=1) for batch in batches])

    def _columns(self, x: Tensor, mask: Tensor | None) -> Iterator[Float[Tensor, "B n"]]:
        """Yield the shares for the thresholds of each dilation."""
        if mask is not None:
            longest = max(1, int(mask.sum(1).max()))
            x, mask = x[:, :longest], mask[:, :longest]
        parts = torch.split(self.thresholds, [NUM_KERNELS * count for count in self.counts])
        for number, thresholds in enumerate(parts):
            outputs, is_inside = self._convolve(number, x, mask)
            outputs, total = outputs.masked_fill(~is_inside, -math.inf), is_inside.sum(-1).clamp(min=1)
            shares = [(outputs > b.unsqueeze(-1)).sum(-1) / total for b in thresholds.view(NUM_KERNELS, -1).t()]
            yield torch.stack(shares, -1).flatten(1)

    def _convolve(
        self, number: int, x: Tensor, mask: Tensor | None
    ) -> tuple[Float[Tensor, "B K T"], Bool[Tensor, "B K T"]]:
        """Return the outputs of all kernels with dilation `number`, and whether positions are inside of the series."""
        dilation, positions = self.dilations[number], torch.arange(x.shape[1], device=x.device)
        margin = dilation * (SIZE // 2)
        outputs = F.conv1d(mask_padding(x, mask).mT, self.kernels[number], dilation=dilation, padding=margin)
        length = torch.full((len(x), 1), x.shape[1], device=x.device) if mask is None else mask.sum(1, keepdim=True)
        margins = torch.where(length > 2 * margin, margin, 0)
        stops = (positions >= margins) & (positions < length - margins)
        is_padded = (torch.arange(NUM_KERNELS, device=x.device) + number) % 2 == 0
        return outputs, torch.where(is_padded.unsqueeze(-1), (positions < length).unsqueeze(1), stops.unsqueeze(1))


@dataclass(frozen=True)
class MiniRocketParts(FrameClassifierParts):
    """The shape, statistics and labels from which a classifier is built, and the median length of training series."""

    length: int
    """The number of frames of the median series, which limits dilations."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(**vars(FrameClassifierParts.read(run)), length=run.config["frames"])

    def build(self, recipe: Any) -> Classifier:
        features, settings = self.features(recipe), {"length": self.length, "seed": recipe.train.seed}
        pooling: Any = MiniRocket(features.d_out, num_features=recipe.head.num_features, **settings)
        layers = build_encoder(recipe.encoder, d_in=features.d_out)
        model = Classifier(features, layers, pooling, len(self.labels), multiple=self.labels.multiple)
        model.temperature = self.labels.temperature
        return model


class MiniRocketData(ClassifiedSeriesData):
    """The data of a classifier by MiniRocket. Features without names, such as pixels, share a mean and a deviation."""

    def statistics(self) -> FrameStatistics:
        data = super().statistics()
        if data.shape.columns or self.recipe.features.normalize == "none":
            return data
        deviation = float(np.sqrt(np.square(data.deviation).mean() + np.var(data.mean)))
        means, deviations = (float(np.mean(data.mean)),) * data.shape.width, (deviation,) * data.shape.width
        return replace(data, mean=means, deviation=deviations)

    def parts(self, labels: Classes) -> MiniRocketParts:
        return MiniRocketParts(self.statistics(), labels, int(np.median(self.split.train.lengths)))

    def config(self, parts: MiniRocketParts) -> dict[str, Any]:
        return {"frames": parts.length}


class MiniRocketJob(FrameClassificationJob):
    """The training job: fixed features, and a logistic regression by cross-validation."""

    data_class: ClassVar[Any] = MiniRocketData

    def _assign_folds(self) -> NDArray[np.int64]:
        train = self.split.train
        if len(train) > MAX_TEXTS:
            raise RecipeError(f"classify-minirocket is for at most {MAX_TEXTS:,} series; use classify-frames")
        if len(train) * self.recipe.head.num_features > MAX_VALUES:
            raise RecipeError(f"the features of {len(train):,} series need too much memory; reduce head.num_features")
        return self.folds(NUM_FOLDS, classes=train.classes)

    def prepare(self, model: Classifier) -> None:
        super().prepare(model)
        rows, transform = self.split.train.rows, model.pooling

        def read(numbers: Tensor) -> tuple[Tensor, Tensor | None]:
            frames = pad_frames(rows, numbers.numpy(), device_of(model))
            return model.features.normalized(frames.values), frames.mask

        assert isinstance(transform, MiniRocket)
        transform.fit(len(rows), read)


class MiniRocketPipeline(FrameClassificationPipeline):
    """The pipeline of a classifier by MiniRocket."""

    def inspect(self, series: Any) -> Inspection:
        raise EnsueError("a classifier by MiniRocket has no inspection page; a model of classify-frames has a page")

    def describe(self) -> ModelDescription:
        raise EnsueError("a classifier by MiniRocket cannot be exported; a model of classify-frames can be exported")
