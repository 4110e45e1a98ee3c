"""The commands `push` and `models`."""

import json
import sys
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import pause_garbage_collection


def push(
    run: cli.RunArgument,
    name: Annotated[str, Argument(help="The repository on the Hub, OWNER/NAME.")],
    license: Annotated[str, Option(help="The license, such as mit or cc-by-4.0; default: as in the card.")] = "",
    language: Annotated[str, Option(help="The language, such as en.")] = "",
    private: Annotated[bool, Option("--private", help="Create a private repository.")] = False,
) -> None:
    """Upload a model, with its card, to the Hugging Face Hub."""
    from ensue.runs.schema import existing_run

    run = existing_run(run)  # before torch is imported, which takes seconds
    with pause_garbage_collection():
        from ensue.extensions.hub.pushing import license_of
        from ensue.extensions.hub.pushing import push as upload
        from ensue.runs.directory import RunDirectory

    if not license and sys.stdin.isatty() and not license_of(run):
        license = typer.prompt("The license of this model, such as mit or cc-by-4.0", err=True)
    location = upload(run, name, license=license, language=language, private=private)
    cli.notify(
        f"uploaded {location}; try\n  HF_HUB_OFFLINE=0 ensue {next(iter(RunDirectory(run).entry.commands))} {location}"
    )


def models(as_json: Annotated[bool, Option("--json", help="A JSON line for each model.")] = False) -> None:
    """List the installed models."""
    from ensue.console.cache import format_bytes
    from ensue.console.tables import show_rows
    from ensue.extension import installed_models

    with pause_garbage_collection():
        from ensue.extensions.hub.pushing import final_records, license_of
        from ensue.runs.directory import RunDirectory

    rows = [["name", "task", "size", "license", "scores"]]
    for name, path in sorted(installed_models().items()):
        run, num_bytes = RunDirectory(path), sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        record: dict[str, Any] = [{"scores": {}, "summary": ""}, *final_records(run)][-1]
        rows.append([name, run.entry.what, format_bytes(num_bytes), license_of(path), record["summary"]])
        if as_json:
            facts = {"name": name, "task": run.entry.what, "bytes": num_bytes, "license": license_of(path)}
            print(json.dumps({**facts, "scores": record["scores"], "run": str(path)}))
    if len(rows) == 1:
        cli.notify("no models are installed; a package of a model has an entry point in the group ensue.models")
    elif not as_json:
        show_rows(rows)
