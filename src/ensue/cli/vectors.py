"""The commands that give vectors: embed, neighbors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import DeviceOption, EncodingOption, OneThreadOption, RunArgument, ShardOption, load_for, say


def embed(
    run: RunArgument,
    path: Annotated[
        str | None,
        typer.Argument(help="Texts, one on a line: a file, folder, glob or pipe; default: stdin.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A file to write: .npy, .jsonl; of words also .txt, .vec, .bin.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each text.")] = False,
    pooling: Annotated[
        str | None,
        typer.Option(help="From the vectors of a text to one: mean, first, last, max; default: mean."),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="The layer; 0: the embeddings, -1: the last; default: the last.")
    ] = None,
    shard: ShardOption = None,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Give the vector of each text."""
    options: dict[str, Any] = {"pooling": pooling, "layer": layer}
    given = {name: value for name, value in options.items() if value is not None}
    pipeline = load_for("embed", run, device, threads, **given)
    from ensue.console.vectors import embedded, text_line
    from ensue.data.vector_files import json_line, write_vectors
    from ensue.tasks.contract.windows import Shard

    texts = "-" if path is None else path
    rows = embedded(pipeline, texts, encoding=encoding, shard=Shard.parse(shard, texts), **given)
    if out is not None:
        say(f"wrote {write_vectors(out, rows):,} vectors to {out}")
        return
    for row in rows:
        print(json_line(*row) if as_json else text_line(row), flush=True)


def neighbors(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="A word or a text.", show_default=False)],
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each.")] = False,
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Show what has the most similar vectors."""
    pipeline = load_for("neighbors", run, device, threads)
    from ensue.console.vectors import neighbor_lines

    for line in neighbor_lines(pipeline.neighbors(text, count), as_json=as_json):
        print(line)
