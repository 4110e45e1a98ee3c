"""The command `gradients`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import pause_garbage_collection
from ensue.outputs import Access


def gradients(
    encoders: Annotated[
        list[str] | None, Argument(help="Names of encoders; default: elman, lstm, gru, clockwork, mingru.")
    ] = None,
    positions: Annotated[int, Option(min=1, max=100_000, help="Positions from the first symbol to the cue.")] = 200,
    out: Annotated[Path, Option(help="The picture to write: .png or .svg."), Access.OUT_FILE] = Path("gradients.png"),
    overwrite: cli.OverwriteOption = False,
    steps: Annotated[int, Option(min=0, max=1_000_000, help="Training steps; 0: no training.")] = 1000,
    seed: Annotated[int, Option(min=0, max=2**63 - 1, help="The seed of weights, data and training.")] = 0,
    d_model: Annotated[int, Option(min=1, max=10_000, help="Features of the state.")] = 64,
    threads: cli.OneThreadOption = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object on stdout, with every norm.")] = False,
) -> None:
    """Measure gradients through time in recurrent encoders."""
    with pause_garbage_collection():
        from ensue.extensions.gradients.gradients import show_gradients

    show_gradients(
        encoders or [], out, positions=positions, steps=steps, seed=seed, d_model=d_model, threads=threads or 1,
        as_json=as_json,
    )  # fmt: skip
    cli.notify(f"wrote {out}")
