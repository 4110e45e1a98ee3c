"""The command `import`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import pause_garbage_collection
from ensue.outputs import Access


def import_(
    path: Annotated[
        Path,
        Argument(
            help="A published model: a directory of transformers or sentence-transformers, its address hf:NAME, "
            "or a file of vectors."
        ),
        Access.RUN,
    ],
    out: Annotated[Path, Option(help="The run directory to write."), Access.OUT_FOLDER],
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing run.")] = False,
) -> None:
    """Import a published model as a run."""
    with pause_garbage_collection():
        from ensue.extensions.importing.importing import import_run

    imported = import_run(path, out, overwrite=overwrite)
    for note in imported.notes:
        cli.notify(note)
    cli.notify(f"wrote {out}: a {imported.recipe.what} ({imported.recipe.describe()}) from {imported.kind}")
