"""Arguments and options of several commands, and loading the run that they name."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from ensue.console.imports import importing_torch
from ensue.errors import EnsueError

RunArgument = Annotated[Path, typer.Argument(help="A run directory.", show_default=False)]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="CPU threads; default: the fastest number (ensue machine)."),
]
OneThreadOption = Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads; default: 1.")]
VectorsOption = Annotated[
    Path | None,
    typer.Option(help="A file of pretrained vectors for words that are not in the run.", show_default=False),
]
BeamsOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=10_000, help="Width of the beam search; 1: greedy; default: the recipe's.", show_default=False
    ),
]
LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(help="Outputs are ranked by ln P / length^this; default: the recipe's.", show_default=False),
]
MaxTokensOption = Annotated[
    int | None, typer.Option(min=1, help="The most tokens of an output; default: the recipe's.", show_default=False)
]
WithOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", help="Another run with the same tokens, to decide together; may be repeated.", show_default=False
    ),
]
IN_SEARCH = {"beams": "width"}
"""The options of a search that have another name in `BeamSearch`."""
ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="i/N",
        help="Part i of N, from 1/N to N/N: what all say, one after the other, is the whole.",
        show_default=False,
    ),
]
EncodingOption = Annotated[str, typer.Option(help="Encoding of the text.")]


def load_for(
    command: str,
    run: Path,
    device: str,
    threads: int | None,
    *,
    vectors: Path | None = None,
    others: Sequence[Path] | None = None,
    search: Mapping[str, object] = MappingProxyType({}),
    **options: Any,
) -> Any:
    """The pipeline of a run, and of `others` that decide with it, with the options of `search` that are not None.

    Raises EnsueError unless its task has this command and the given options.
    """
    from ensue.runs.schema import check_is_run

    check_is_run(run)  # before torch is imported, which takes seconds
    with importing_torch():
        import torch

        from ensue.library import load
        from ensue.runs.directory import RunDirectory

    entry = RunDirectory(run).entry
    every = {"vectors": vectors, "with": others or None, **search, **options}
    given = {name for name, value in every.items() if value not in (None, "")}
    unknown = given - entry.options(command) if command in entry.commands else set()
    if command not in entry.commands or unknown:
        *most, last = entry.commands
        commands = f"{', '.join(most)} and {last}" if most else last
        raise EnsueError(
            f"{run}: the model is a {entry.what}, for {commands}"
            + (f"; its {command} has no --{min(unknown).replace('_', '-')}" if unknown else "")
        )
    torch.set_num_threads(threads or 1)  # before anything is computed: several would wait for each other
    pipeline: Any = load(run, device=device, vectors=vectors)
    if changes := {IN_SEARCH.get(name, name): value for name, value in search.items() if value is not None}:
        pipeline = pipeline.with_search(**changes)
    if not others:
        return pipeline
    options["with"] = others
    loaded = (load_for(command, other, device, threads, vectors=vectors, others=(), **options) for other in others)
    return pipeline.with_others(*loaded)


def quoted(path: Path | str) -> str:
    """The path, quoted for a shell."""
    return shlex.quote(str(path))


def say(text: str) -> None:
    """Writes a line to stderr."""
    print(text, file=sys.stderr)
