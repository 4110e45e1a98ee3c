"""The commands that give vectors: embed, neighbors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import (
    DeviceOption,
    EncodingOption,
    OneThreadOption,
    OverwriteOption,
    PrecisionOption,
    RunArgument,
    ShardOption,
    load_for,
    say,
)
from ensue.data.files import one_location
from ensue.errors import EnsueError
from ensue.outputs import Access


def embed(
    run: RunArgument,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, one on a line: files, folders, globs or a pipe; default: stdin."),
        Access.TEXTS,
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A file to write: .npy, .jsonl; of words also .txt, .vec, .bin."),
        Access.OUT_FILE,
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each text.")] = False,
    pooling: Annotated[
        str | None, typer.Option(help="From the vectors of a text to one: mean, first, last, max; default: mean.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="The layer; 0: the embeddings, -1: the last; default: the last.")
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Numbers of 16 bits in a .npy file.")] = False,
    shard: ShardOption = None,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
    precision: PrecisionOption = "float32",
) -> None:
    """Give the vector of each text."""
    if half and (out is None or out.suffix != ".npy"):
        raise EnsueError("--half is for vectors in a file: --out FILE.npy")
    options: dict[str, Any] = {"pooling": pooling, "layer": layer}
    given = {name: value for name, value in options.items() if value is not None}
    pipeline = load_for("embed", run, device, threads, precision, **given)
    from ensue.console.vectors import embedded, in_half, text_line
    from ensue.data.vector_files import json_line, write_vectors
    from ensue.tasks.contract.chunks import Shard

    texts = one_location(paths or []) or "-"
    rows = embedded(pipeline, texts, encoding=encoding, shard=Shard.parse(shard, texts), **given)
    if out is not None:
        written = ((text, in_half(text, vector)) for text, vector in rows) if half else rows
        say(f"wrote {write_vectors(out, written):,} vectors to {out}")
        return
    for row in rows:
        print(json_line(*row) if as_json else text_line(row), flush=True)


def neighbors(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="A word or a text; none for --near-duplicates.")] = "",
    among: Annotated[
        list[str] | None,
        typer.Option("--in", help="Texts to search, one on a line: a file, folder or glob; may be repeated."),
        Access.DATA,
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Their vectors, which embed --out FILE.npy wrote."), Access.DATA
    ] = None,
    near_duplicates: Annotated[
        float | None, typer.Option(min=-1, max=1, help="Pairs of these texts with this cosine at least.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each.")] = False,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
    precision: PrecisionOption = "float32",
) -> None:
    """Show what has the most similar vectors."""
    if among is None and (vectors is not None or near_duplicates is not None):
        raise EnsueError("--vectors and --near-duplicates are for texts: --in TEXTS")
    if bool(text) == (near_duplicates is not None):
        raise EnsueError("expected a text whose neighbors are shown, or --near-duplicates")
    pipeline = load_for("neighbors" if among is None else "embed", run, device, threads, precision)
    from ensue.console.vectors import TextTable, neighbor_lines, pair_lines

    if among is None:
        lines = neighbor_lines(pipeline.neighbors(text, count), as_json=as_json)
    else:
        table = TextTable(pipeline, one_location(among), vectors, encoding=encoding)
        if near_duplicates is None:
            lines = neighbor_lines(table.neighbors(text, count), as_json=as_json)
        else:
            lines = pair_lines(table.near_duplicates(near_duplicates), as_json=as_json)
    for line in lines:
        print(line)
