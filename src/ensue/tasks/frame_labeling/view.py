"""What happens in a tagger with a series of frames, in numbers: scores, paths, probabilities. `page.py` draws it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ensue.inspection.series import SeriesView
from ensue.models.frame_features import Frames
from ensue.models.tagger import Tagger
from ensue.tasks.labeling.view import TagsView, view_tags
from ensue.text.labels import Labels


@dataclass(frozen=True)
class FrameTaggerView(SeriesView, TagsView):
    """A series in a tagger. `said` are the labels of its frames in the model."""

    said: tuple[str, ...]


@torch.inference_mode()
def view_series(model: Tagger, series: SeriesView, labels: Labels, device: torch.device) -> FrameTaggerView:
    """The view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device).unsqueeze(0), None)
    x = model.features(frames)
    found = view_tags(model, x, model.emissions(x, frames.keys, None), labels.tags.symbols)
    return FrameTaggerView(**vars(series), **vars(found), said=tuple(labels.decode(found.path.tolist())))
