"""The command `pack`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from ensue.cli import options as cli
from ensue.console.output import pause_garbage_collection
from ensue.outputs import Access


def pack(
    run: cli.RunArgument,
    wheel: Annotated[str, Option(help="The name of the model, such as en; the package is ensue-NAME.")],
    out: Annotated[Path, Option(help="The folder in which the wheel is written.")] = Path("."),
    license: Annotated[str, Option(help="The license, such as MIT or CC-BY-SA-4.0; default: as in the card.")] = "",
    license_file: Annotated[Path | None, Option(help="The text of the license, with attributions.")] = None,
    tagger: Annotated[Path | None, Option(help="For a cutter: the run of a tagger after it."), Access.RUN] = None,
    precision: Annotated[str, Option(help="Matrices in f32, or in int8 with a scale for each row.")] = "f32",
    test: Annotated[Path | None, Option(help="Test data, on which the packed model is scored."), Access.DATA] = None,
    version: Annotated[str, Option(help="The version of the package.")] = "1.0",
    overwrite: cli.OverwriteOption = False,
) -> None:  # fmt: skip
    """Write a wheel with a model, which is then used by its name."""
    from ensue.runs.schema import existing_run

    run = existing_run(run)  # before torch is imported, which takes seconds
    with pause_garbage_collection():
        from ensue_packing.packing import pack as packed
    file = packed(
        run, wheel, out, license=license, license_file=license_file, tagger=tagger, precision=precision, test=test,
        version=version, overwrite=overwrite,
    )  # fmt: skip
    cli.notify(f"wrote {file}; try\n  pip install {cli.quote_path(file)}")
