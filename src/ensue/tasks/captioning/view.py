"""What happens in a captioner with an image and a caption, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensue.tasks.sequence_to_sequence.output_view import OutputView


@dataclass(frozen=True)
class CaptionView(OutputView):
    """A caption of a series. The columns of its alignments are the places of `grid`, row by row, or the frames."""

    series: str
    image: NDArray[np.float32] | None
    """(rows, columns, colors); None for a series that is no image."""
    grid: tuple[int, int] | None
    """The rows and columns of the grid."""
    gates: NDArray[np.float64] | None
    """β (T,); None for a decoder without a gate."""
