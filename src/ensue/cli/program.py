"""The command line. Results go to stdout; progress and complaints go to stderr.

Exit status: 0 done, 2 the user's mistake (one line), 130 interrupted and saved; anything else is a bug, with traceback.
What needs torch is imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer import Option

from ensue.cli.data import cache, data, machine, prepare
from ensue.cli.generating import embed, generate, neighbors
from ensue.cli.options import OnceCommand, say, with_checked_outputs
from ensue.cli.training import quickstart, recipes, train
from ensue.cli.using import evaluate, inspect, predict, score
from ensue.console.output import drop_waiting, mistake, notices_shown, streams
from ensue.errors import SilentError, in_one_line
from ensue.extension import loadable_entries
from ensue.version import VERSION

COMMANDS = (
    quickstart, prepare, train, evaluate, predict, inspect, data, score, generate, embed, neighbors, cache, recipes,
    machine,
)  # fmt: skip
"""The commands of the core; those of extensions stand behind them."""
USAGE_ERROR: Any = typer.BadParameter.__base__
"""The exception of the parser for an unknown command, option or value."""


def main() -> None:
    """The entry point of the `ensue` command."""
    with streams(), notices_shown():
        sys.exit(_status())


def _status() -> int:
    """Runs the command and returns its exit status. Errors that are no mistakes are raised."""
    arguments = sys.argv[1:] or ["--help"]
    named = "" if arguments[0].startswith("-") else arguments[0]
    try:
        status: int = command_line(named)(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except SilentError:
        return 2
    except USAGE_ERROR as error:
        what = " ".join(error.format_message().replace("Value error, ", "").split())
    except Exception as error:
        found = mistake(error)
        if found is None:
            raise
        what = found
    drop_waiting()
    say(f"ensue: {in_one_line(what)}")
    return 2


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ensue {VERSION}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def commands() -> dict[str, Callable[..., Any]]:
    """Return the functions of all commands, by name."""
    added: dict[str, Any] = loadable_entries("command", Callable)  # type: ignore[arg-type]
    core = {command.__name__: command for command in COMMANDS}
    return core | {name: command for name, command in added.items() if name not in core}


@functools.cache
def command_line(named: str | None = None) -> typer.Typer:
    """Return the command line; if a command is named, only its options are read, since reading all takes 0.1 s."""
    found = typer.Typer(
        name="ensue", help="Train small sequence models on your own data, use them, and look inside.",
        no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    found.callback()(_options)
    for name, command in commands().items():
        checked = with_checked_outputs(command) if named in (None, name) else lambda: None
        found.command(name, cls=OnceCommand, help=command.__doc__)(checked)
    return found
