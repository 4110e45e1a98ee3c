"""The reach of gradients on a terminal: a bar or lines while encoders train, a table at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ensue.console.reporter import Bar
from ensue.inspection.gradient_picture import checked_picture_path, draw_gradients
from ensue.inspection.gradients import DEFAULT_ENCODERS, EncoderGradients, build_layer, encoder_gradients, first_to_last


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
        print(
            json.dumps({**settings, "picture": str(out), "encoders": {each.encoder: each.as_json() for each in found}})
        )
    else:
        Console(highlight=False).print(gradient_rows(found))


def gradient_rows(found: Sequence[EncoderGradients]) -> Table:
    """A row for each encoder: the norm at the first position relative to that at the last one, and the scores."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("encoder")
    for column in ("first / last, untrained", "trained", "nats per symbol", "accuracy"):
        table.add_column(column, justify="right")
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
