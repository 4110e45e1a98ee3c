"""The inside of a classifier of series of frames, in numbers: probabilities, contributions of frames, pooling.

`series_page.py` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.attributions import Integrated, gradients_of
from ensue.inspection.encoder import Attention, Trace, attention_of, traces_of
from ensue.inspection.features import ReadFeatures
from ensue.inspection.series import SeriesView
from ensue.models.classifier import Classifier, Pooled
from ensue.models.frame_features import Frames
from ensue.models.modules import device_of
from ensue.nn import SequenceLayer
from ensue.tasks.classification.view import attention_weights, integrated_of, log_odds, maxima_of

MOST_INTEGRATED = 2_000
"""The most frames of a series whose integrated gradients are computed; of more it takes half a minute and longer."""


@dataclass(frozen=True)
class FrameClassifierView(SeriesView):
    """A series in a classifier. `label` is the most probable one; contributions are to its log-odds.

    `gradients` (T,) are gradient times features, summed over the normalized features of a frame, whose zeros are the
    means of the training data; so a missing value contributes nothing. `attention` are the weights of attention
    pooling, and `maxima` the share of the outputs whose maximum is at a frame, (T,); None without such a pooling.
    """

    label: int
    probabilities: NDArray[np.float32]
    gradients: NDArray[np.float64]
    integrated: Integrated | None
    attention: NDArray[np.float64] | None
    maxima: NDArray[np.float64] | None
    traces: list[Trace]
    heads: list[Attention] | None
    """The attention of the layers; None for a series that is too long."""


def view_series(model: Classifier, series: SeriesView) -> FrameClassifierView:
    """The view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device_of(model)).unsqueeze(0), None)
    with torch.no_grad():
        reading = ReadFeatures(model.features(frames), frames.keys)
        pooled = model.pooled(reading.x, reading.keys, None)
        probabilities = model.probabilities(model.logits_of([pooled]))[0]
    label = int(probabilities.argmax())
    gradients = _gradients(model, reading, label)
    is_long = len(series.frames) > MOST_INTEGRATED
    integrated = None if is_long else integrated_of(model, reading, [pooled], 0, label)
    with torch.inference_mode():
        return FrameClassifierView(
            **vars(series),
            label=label,
            probabilities=probabilities.cpu().numpy(),
            gradients=gradients,
            integrated=integrated,
            attention=attention_weights(model, reading),
            maxima=maxima_of(model, reading),
            traces=traces_of(model.layers, reading.x),
            heads=attention_of(model.layers, reading.x),
        )


def _gradients(model: Classifier, reading: ReadFeatures, label: int) -> NDArray[np.float64]:
    """Gradient times features of each frame (T,)."""
    pooling, layers = model.pooling, model.layers
    assert pooling is not None
    assert isinstance(layers, SequenceLayer)  # frames have no subwords

    def output(h: Tensor) -> Tensor:
        return log_odds(model, model.logits_of([Pooled(pooling(h, None).float(), reading.keys)]), label)

    found = gradients_of(layers, reading.x, output)
    contributions: NDArray[np.float64] = (found.inputs * reading.x[0].cpu().numpy()).sum(1)
    return contributions
