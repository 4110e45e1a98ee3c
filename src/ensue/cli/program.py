"""The command line. Results go to stdout; progress and errors go to stderr.

The exit status is 0 for success, 1 for a failed check or a bug (with a traceback), 2 for a user error (in one line),
and 130 for an interrupted command. Commands import torch when they run, so that `--help` is fast.
"""

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer import Option

from ensue.cli.generating import embed, generate, neighbors
from ensue.cli.options import StrictCommand, add_checks, notify
from ensue.cli.training import cache, machine, prepare, quickstart, recipes, train
from ensue.cli.using import evaluate, inspect, predict, score
from ensue.console.output import drop_notices, replace_streams, show_notices_as_lines, user_message
from ensue.errors import ReportedError, to_one_line
from ensue.extension import loadable_entries
from ensue.version import VERSION

COMMANDS = (
    quickstart, prepare, train, evaluate, predict, inspect, score, generate, embed, neighbors, cache, recipes, machine,
)  # fmt: skip
"""The commands of the core. The commands of extensions follow in the help."""
USAGE_ERROR: Any = typer.BadParameter.__base__
"""The exception of the parser for an unknown command, option or value."""


def main() -> None:
    """Run the `ensue` command and exit."""
    with replace_streams(), show_notices_as_lines():
        sys.exit(_run_command())


def _run_command() -> int:
    """Run the command and return its exit status. Unexpected exceptions are raised."""
    arguments = sys.argv[1:] or ["--help"]
    name = "" if arguments[0].startswith("-") else arguments[0]
    try:
        status: int = command_line(name)(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except ReportedError:
        return 2
    except USAGE_ERROR as error:
        message = " ".join(error.format_message().replace("Value error, ", "").split())
    except Exception as error:
        user_error = user_message(error)
        if user_error is None:
            raise
        message = user_error
    drop_notices()
    notify(f"ensue: {to_one_line(message)}")
    return 2


def _show_version(is_requested: bool) -> None:
    if is_requested:
        print(f"ensue {VERSION}")
        raise typer.Exit


def _accept_global_options(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def commands() -> dict[str, Callable[..., Any]]:
    """Return the functions of all commands, by name."""
    added: dict[str, Any] = loadable_entries("command", Callable)  # type: ignore[arg-type]
    core = {command.__name__: command for command in COMMANDS}
    return core | {name: command for name, command in added.items() if name not in core}


@functools.cache
def command_line(name: str | None = None) -> typer.Typer:
    """Return the command line. With `name`, only this command has options, since creating all options takes 0.1 s."""
    program = typer.Typer(
        name="ensue", help="Train small sequence models on your own data, use them, and look inside.",
        no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    program.callback()(_accept_global_options)
    for key, command in commands().items():
        checked = add_checks(command) if name in (None, key) else lambda: None
        program.command(key, cls=StrictCommand, help=command.__doc__)(checked)
    return program
