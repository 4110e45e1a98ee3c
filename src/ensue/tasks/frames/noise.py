"""Random numbers for series: they follow from the frames, so they do not depend on what else is read with a series."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from ensue.data.frames.series import Vectors


class SeriesNoise:
    """Numbers from N(0, 1) for a series, `size` at each place: as many draws as are asked, the same ones whenever the
    series is read with that seed.
    """

    def __init__(self, frames: Vectors, size: int, *, seed: int = 0) -> None:
        self.length, self.size = len(frames), size
        self._generator = np.random.default_rng(crc32(np.ascontiguousarray(frames).tobytes(), seed))

    def draw(self, length: int | None = None) -> Vectors:
        """Numbers (length, size); by default for each frame."""
        return self._generator.standard_normal((self.length if length is None else length, self.size), np.float32)


def noise_for(sources: list[SeriesNoise], length: int, device: torch.device) -> Tensor:
    """A draw for the frames of each series (B, length, size), zeros at padding."""
    found = np.zeros((len(sources), length, sources[0].size), np.float32)
    for row, source in zip(found, sources, strict=True):
        row[: source.length] = source.draw()
    return torch.from_numpy(found).to(device)
