"""Scores of a model of the next frame: nats per frame."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.metrics.scores import Scores, finite


@dataclass(frozen=True)
class FrameScores(Scores):
    """The nats of `frames` frames in `series` series, as they are in the files. A density may be above 1, and its nats
    below 0: what says something are the differences between models of the same frames.

    With latent variables `total_nats` is the bound, of which `divergence` is the part of the variables; `importance`
    are the nats estimated by importance sampling, from several draws. Both are None without latent variables.
    """

    total_nats: float
    frames: int
    series: int
    divergence: float | None = None
    importance: float | None = None

    @property
    def nats_per_frame(self) -> float:
        """The mean of a frame, in nats; with latent variables at most so many."""
        return self.total_nats / self.frames

    def as_json(self) -> dict[str, float | int | None]:
        found = {"nats_per_frame": finite(self.nats_per_frame), "frames": self.frames, "series": self.series}
        for name, total in (("divergence", self.divergence), ("importance_nats", self.importance)):
            if total is not None:
                found[f"{name}_per_frame"] = finite(total / self.frames)
        return found

    def summary(self) -> str:
        bound = (
            "" if self.divergence is None else f" at most, {self.divergence / self.frames:.4f} of the latent variables"
        )
        return f"{self.nats_per_frame:.4f} nats per frame{bound}"
