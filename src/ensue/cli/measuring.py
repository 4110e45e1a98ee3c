"""The commands that measure: machine how fast this one computes, gradients how far they reach back in a layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.options import OneThreadOption, OverwriteOption, say
from ensue.console.imports import importing_torch
from ensue.outputs import Access


def machine(
    renew: Annotated[bool, typer.Option("--renew", help="Measure again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show how this machine computes fastest. It is measured once, at the first training, and kept for all runs."""
    from ensue.console.machine import machine_json, show_machine
    from ensue.training.machine import machine_profile

    profile = machine_profile(say, renew=renew)
    print(machine_json(profile)) if as_json else show_machine(profile)


def gradients(
    encoders: Annotated[
        list[str] | None, typer.Argument(help="Names of encoders; default: elman, lstm, gru, clockwork, mingru.")
    ] = None,
    positions: Annotated[
        int, typer.Option(min=1, max=100_000, help="Positions from the first symbol to the recall.")
    ] = 200,
    out: Annotated[Path, typer.Option(help="The picture to write: .png or .svg."), Access.OUT_FILE] = Path(
        "gradients.png"
    ),
    overwrite: OverwriteOption = False,
    steps: Annotated[int, typer.Option(min=0, max=1_000_000, help="Training steps; 0: no training.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed draws the same picture.")] = 0,
    d_model: Annotated[int, typer.Option(min=1, max=10_000, help="Features of the state.")] = 64,
    threads: OneThreadOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, with every norm.")] = False,
) -> None:
    """Measure how far gradients reach back in recurrent encoders. On a copy task, before and after training."""
    with importing_torch():
        from ensue.console.gradients import show_gradients

    show_gradients(
        encoders or [], out, positions=positions, steps=steps, seed=seed, d_model=d_model, threads=threads or 1,
        as_json=as_json,
    )  # fmt: skip
    say(f"wrote {out}")
