"""The command `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import importing_torch
from ensue.outputs import Access


def import_(
    path: Annotated[
        Path,
        Argument(
            help="A published model: a directory of transformers or sentence-transformers, hf:NAME of one on the hub, "
            "or a file of vectors."
        ),
        Access.RUN,
    ],
    out: Annotated[Path, Option(help="The run directory to make."), Access.OUT_FOLDER],
    overwrite: Annotated[bool, Option("--overwrite", help="Replace a run that is there.")] = False,
) -> None:
    """Make a run of a published model."""
    with importing_torch():
        from ensue.extensions.importing.importing import import_run

    imported = import_run(path, out, overwrite=overwrite)
    for note in imported.notes:
        cli.say(note)
    cli.say(f"wrote {out}: a {imported.recipe.what} ({imported.recipe.describe()}) from {imported.what}")
