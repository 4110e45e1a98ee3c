"""How far gradients reach back, as a picture: a line for each encoder, before and after training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.errors import EnsueError, nearest
from ensue.inspection.gradients import EncoderGradients, Norms
from ensue.outputs import written
from ensue.runs.pictures import picture

SUFFIXES = (".png", ".svg")
COLORS = (
    "#c1440e", "#1f4e79", "#2a8c6a", "#b8860b", "#7b4f9e", "#5a6470", "#d45087", "#3fa7d6", "#7a9a01", "#6b3e26",
)  # fmt: skip
DASHES = ("-", "--", ":")
"""The lines of encoders that have no color of their own are dashed."""
FLOOR = 1e-38
"""The smallest normal number of float32; training does not see smaller ones."""
LABEL_HEIGHT = 0.055
"""The height of a label, as a share of the panel's."""


def checked_picture_path(path: Path) -> Path:
    """`path`, if a picture can be written there. Raises `EnsueError` for another suffix."""
    if path.suffix.lower() not in SUFFIXES:
        raise EnsueError(f"{path}: a picture is .png or .svg{nearest(path.suffix, SUFFIXES)}")
    return path


def draw_gradients(found: Sequence[EncoderGradients], path: Path, *, steps: int) -> None:
    """The norms over the positions back from the last one, on a logarithmic scale. Raises EnsueError if it cannot be
    written.

    The same numbers give the same file.
    """
    panels = [("untrained", [each.untrained for each in found])]
    if trained := [each.trained for each in found if each.trained]:
        panels.append((f"after {steps:,} steps of training", trained))
    names = [each.encoder for each in found]
    limits = _limits([norms for _, lines in panels for norms in lines])
    with written(path) as partial, picture(partial, (1.0 + 4.6 * len(panels), 4.4)) as figure:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for place, (title, lines) in zip(axes, panels, strict=True):
            place.set(title=title, xlabel="positions back from the last", yscale="log", ylim=limits)
            _draw_lines(place, names, lines, limits)
        axes[0].set_ylabel("norm of ∂loss/∂h")


def _limits(lines: Sequence[Norms]) -> tuple[float, float]:
    """Half of a decade around all norms, but not below the floor."""
    lowest, highest = min(min(norms) for norms in lines), max(max(norms) for norms in lines)
    return max(lowest / 3, FLOOR), max(highest * 3, 10 * FLOOR)


def _draw_lines(axes: Any, names: Sequence[str], lines: Sequence[Norms], limits: tuple[float, float]) -> None:
    """A panel: its lines, and their names beside the ends, which are the first positions."""
    for number, norms in enumerate(lines):
        back = [max(norm, limits[0] / 100) for norm in reversed(norms)]
        axes.plot(range(len(back)), back, linewidth=1.6, **_style(number))
    axes.grid(alpha=0.25)
    axes.set_xlim(0, max(1, len(lines[0]) - 1))
    axes.spines[["top", "right"]].set_visible(False)
    for number, height in enumerate(spread([_height(norms[0], limits) for norms in lines])):
        style = {"color": _style(number)["color"], "fontsize": 9, "fontweight": "bold", "va": "center"}
        axes.text(1.02, height, names[number], transform=axes.transAxes, **style)


def _style(number: int) -> dict[str, str]:
    return {"color": COLORS[number % len(COLORS)], "linestyle": DASHES[number // len(COLORS) % len(DASHES)]}


def _height(norm: float, limits: tuple[float, float]) -> float:
    """The height of a norm in a panel, from 0 at the bottom to 1 at the top."""
    low, high = map(math.log, limits)
    return (math.log(max(norm, limits[0])) - low) / (high - low)


def spread(heights: Sequence[float]) -> list[float]:
    """Heights near these, in the same order, so far apart that labels do not touch."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    found, lowest = list(heights), -math.inf
    for place in order:
        lowest = found[place] = max(heights[place], lowest)
        lowest += LABEL_HEIGHT
    highest = 1.0
    for place in reversed(order):
        highest = found[place] = min(found[place], highest)
        highest -= LABEL_HEIGHT
    return found
