"""The reach of gradients: a bar or lines while encoders train, then a picture, and a table or JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ensue.console.reporter import Bar
from ensue.console.tables import table_of
from ensue.errors import EnsueError, nearest
from ensue.extensions.gradients.gradients import (
    DEFAULT_ENCODERS,
    EncoderGradients,
    Norms,
    build_layer,
    encoder_gradients,
    first_to_last,
)
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
    low, high = map(math.log, limits)
    heights = [(math.log(max(norms[0], limits[0])) - low) / (high - low) for norms in lines]  # from 0 to 1, the top
    for number, height in enumerate(spread(heights)):
        style = {"color": _style(number)["color"], "fontsize": 9, "fontweight": "bold", "va": "center"}
        axes.text(1.02, height, names[number], transform=axes.transAxes, **style)


def _style(number: int) -> dict[str, str]:
    return {"color": COLORS[number % len(COLORS)], "linestyle": DASHES[number // len(COLORS) % len(DASHES)]}


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


def show_gradients(
    encoders: Sequence[str], out: Path, *,
    positions: int, steps: int, seed: int, d_model: int, threads: int, as_json: bool,
) -> None:  # fmt: skip
    """Measures each encoder once, writes the picture, and prints a table or a JSON object. Mistakes are found first."""
    checked_picture_path(out)
    names = list(dict.fromkeys(encoders)) or list(DEFAULT_ENCODERS)
    for name in names:
        build_layer(name, d_model=d_model)
    torch.set_num_threads(threads)
    settings = {"positions": positions, "steps": steps, "seed": seed, "d_model": d_model}
    bar = Bar(Console(stderr=True, highlight=False, soft_wrap=True))
    try:
        found = [_measured(name, bar, **settings) for name in names]
    finally:
        bar.stop()
    draw_gradients(found, out, steps=steps)
    if as_json:
        by_name = {each.encoder: each.as_json() for each in found}
        print(json.dumps({**settings, "picture": str(out), "encoders": by_name}))
    else:
        Console(highlight=False).print(gradient_rows(found))


def gradient_rows(found: Sequence[EncoderGradients]) -> Table:
    """A row for each encoder: the norm at the first position relative to that at the last one, and the scores."""
    table = table_of("encoder", right=("first / last, untrained", "trained", "nats per symbol", "accuracy"))
    for each in found:
        norms = [f"{first_to_last(norms):.1e}" if norms else "-" for norms in (each.untrained, each.trained)]
        learned = ["-" if value is None else f"{value:.3f}" for value in (each.loss, each.accuracy)]
        table.add_row(each.encoder, *norms, *learned)
    return table


def _measured(name: str, bar: Bar, *, steps: int, **settings: int) -> EncoderGradients:
    """The gradients of an encoder, with a bar while it trains and a line behind it."""

    def stepped(step: int, loss: float) -> None:
        if step < steps:  # the line behind it says the rest
            bar.show(f"{name}: step {step:,}", step / steps, f"loss {loss:.3f}")

    began = time.monotonic()
    found = encoder_gradients(name, steps=steps, **settings, stepped=stepped)
    bar.stop()
    if found.trained is not None:
        learned = f"loss {found.loss:.3f}, accuracy {found.accuracy:.3f}"
        bar.console.print(f"{name}: {steps:,} steps in {time.monotonic() - began:.1f} seconds, {learned}")
    return found
