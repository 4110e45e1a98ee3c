"""The command `export`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from ensue.cli import options as cli
from ensue.console.output import pause_garbage_collection
from ensue.errors import EnsueError
from ensue.extension import entries
from ensue.outputs import Access


def export(
    run: cli.RunArgument,
    format: Annotated[
        str,
        Option(
            help="huggingface, sentence-transformers, onnx, c, web; word vectors: word2vec, word2vec-binary, fasttext."
        ),
    ],
    out: Annotated[Path, Option(help="The directory or file to write."), Access.OUT_FOLDER],
    overwrite: cli.OverwriteOption = False,
    int8: Annotated[bool, Option("--int8", help="For onnx: write matrices as int8.")] = False,
    embed: Annotated[bool, Option("--embed", help="For c: write the weights into the C file.")] = False,
    precision: Annotated[str, Option(help="For c and web: matrices in f32, f16 or int8.")] = "f32",
    threads: cli.OneThreadOption = None,
) -> None:
    """Write a model for other programs."""
    from ensue.runs.schema import existing_run

    run = existing_run(run)  # before torch is imported, which takes seconds
    with pause_garbage_collection():
        import torch

        from ensue.extensions.exporting.exporting import export_run
        from ensue.runs.directory import RunDirectory
    torch.set_num_threads(threads or 1)
    options = {"--int8": int8, "--embed": embed, "--precision": precision != "f32"}
    if "export" in RunDirectory(run).entry.commands and format not in entries("exporter"):
        if unknown := next((option for option, is_given in options.items() if is_given), ""):
            raise EnsueError(f"{unknown} is not for --format {format}: word vectors are 32-bit numbers in one file")
        cli.load_for("export", run, "cpu", threads).export(out, format, overwrite=overwrite)
    else:
        for note in export_run(run, out, format, int8=int8, embed=embed, precision=precision, overwrite=overwrite):
            cli.notify(note)
    cli.notify(f"wrote {out}")
