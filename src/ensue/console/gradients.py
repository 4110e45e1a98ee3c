"""How far gradients reach back, on a terminal: a bar or lines while encoders train, a table at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ensue.console.reporter import SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_REFRESHES
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
    found = []
    with TrainingBar(steps) as bar:
        for name in names:
            bar.begin(name)
            found.append(encoder_gradients(name, **settings, stepped=bar.stepped))
            bar.end(found[-1])
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


class TrainingBar:
    """A live bar on a terminal, a line now and then elsewhere; everything on stderr. A context manager."""

    def __init__(self, steps: int) -> None:
        self.steps, self.encoder = steps, ""
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  loss {task.fields[loss]:.3f}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            auto_refresh=False,
            disable=not self.console.is_terminal,
        )
        self.began = self.shown_at = 0.0

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def begin(self, encoder: str) -> None:
        self.encoder = encoder
        self.began = self.shown_at = time.monotonic()
        if self.steps:
            self.bar.add_task(encoder, total=self.steps, loss=0.0)

    def stepped(self, step: int, loss: float) -> None:
        now = time.monotonic()
        live = self.console.is_terminal
        if now - self.shown_at < (SECONDS_BETWEEN_REFRESHES if live else SECONDS_BETWEEN_LINES):
            return
        self.shown_at = now
        if live:
            self.bar.update(self.bar.task_ids[-1], completed=step, loss=loss, refresh=True)
        else:
            self.console.print(f"{self.encoder}: step {step:,} of {self.steps:,}  loss {loss:.3f}")

    def end(self, found: EncoderGradients) -> None:
        """Prints a line in place of the bar."""
        for task in self.bar.task_ids:
            self.bar.remove_task(task)
        if found.trained is not None:
            seconds = time.monotonic() - self.began
            learned = f"loss {found.loss:.3f}, accuracy {found.accuracy:.3f}"
            self.console.print(f"{found.encoder}: {self.steps:,} steps in {seconds:.1f} seconds, {learned}")
