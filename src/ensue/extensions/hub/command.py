"""The command `push`."""

import sys
from typing import Annotated

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import importing_torch


def push(
    run: cli.RunArgument,
    name: Annotated[str, Argument(help="The repository of the hub, OWNER/NAME.")],
    license: Annotated[str, Option(help="The license, such as mit or cc-by-4.0; default: as in the card.")] = "",
    language: Annotated[str, Option(help="The language, such as en.")] = "",
    private: Annotated[bool, Option("--private", help="Create a private repository.")] = False,
) -> None:
    """Upload a model, with its card, to the hub of Hugging Face."""
    from ensue.runs.schema import existing_run

    run = existing_run(run)  # before torch is imported, which takes seconds
    with importing_torch():
        from ensue.extensions.hub.pushing import license_of
        from ensue.extensions.hub.pushing import push as pushed
        from ensue.runs.directory import RunDirectory

    if not license and sys.stdin.isatty() and not license_of(run):
        license = typer.prompt("The license of this model, such as mit or cc-by-4.0", err=True)
    location = pushed(run, name, license=license, language=language, private=private)
    cli.notify(
        f"uploaded {location}; try\n  HF_HUB_OFFLINE=0 ensue {next(iter(RunDirectory(run).entry.commands))} {location}"
    )
