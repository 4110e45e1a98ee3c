"""The command that puts runs side by side: compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.options import DeviceOption, EncodingOption, OneThreadOption, say
from ensue.console.imports import importing_torch


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories of one task.", show_default=False)],
    test: Annotated[
        str, typer.Option(help="Data that all runs are scored on; default: those that their recipes have in common.")
    ] = "",
    format: Annotated[
        str, typer.Option(help="The format of labeled data; default: by name and first lines.", show_default=False)
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Put runs of one task side by side."""
    from ensue.runs.schema import check_is_run

    for run in runs:
        check_is_run(run)
    with importing_torch():
        import torch

        from ensue.comparison import compare as compared
        from ensue.console.comparison import comparison_lines
    torch.set_num_threads(threads or 1)
    found = compared(runs, test=test, encoding=encoding, device=device, format=format)
    for note in found.notes:
        say(f"note: {note}")
    print(json.dumps(found.as_json()) if as_json else "\n".join(comparison_lines(found)))
