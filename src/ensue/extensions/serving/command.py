"""The command `serve`."""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import user_message
from ensue.errors import EnsueError, to_one_line
from ensue.models.adaptation import Adaptation
from ensue.notices import warn_once
from ensue.outputs import Access

PACKAGES = ("starlette", "h11", "prometheus_client")


@cli.with_settings(Adaptation, after="drain_seconds")
def serve(
    runs: Annotated[
        list[Path], Argument(help="Run directories, or hf:NAME; their names are the models' ids."), Access.RUN
    ],
    host: Annotated[str, Option(help="The address to listen on; 0.0.0.0: all interfaces.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0: any free port.")] = 8000,
    key: Annotated[
        str | None, Option(envvar="ENSUE_KEY", help="The API key that clients must send; default: none.")
    ] = None,
    trusted_host: Annotated[list[str] | None, Option(help="Another host name of this server; may be repeated.")] = None,
    processes: Annotated[int, Option(min=1, max=256, help="The number of processes, for several cores.")] = 1,
    rows: Annotated[int, Option(min=1, max=4096, help="The maximum batch size of a model; other rows wait.")] = 64,
    places: Annotated[int, Option(min=1, help="The maximum number of texts in progress or queued.")] = 1024,
    max_tokens: Annotated[int, Option(min=1, help="The maximum number of tokens of a completion.")] = 65536,
    request_seconds: Annotated[float, Option(min=0.1, help="The time limit of a request, in seconds.")] = 300.0,
    drain_seconds: Annotated[
        float, Option(min=0, help="The time limit of open requests after SIGTERM, in seconds.")
    ] = 30.0,
    device: cli.DeviceOption = "auto", threads: cli.OneThreadOption = None, precision: cli.PrecisionOption = "float32",
    **adaptation: Any,
) -> None:  # fmt: skip
    """Serve models over HTTP."""
    from ensue.runs.schema import existing_run

    if not (os.environ.get("ENSUE_KEY", "-") if key is None else key).strip():
        raise EnsueError("--key or ENSUE_KEY is empty: expected a key; without the option no key is checked")
    runs = [existing_run(run) for run in runs]
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise EnsueError(f"serve needs the package {missing[0]}: pip install 'ensue[serve]'")
    from ensue.extensions.serving.limits import Limits
    from ensue.extensions.serving.processes import LOOPBACK, check_unique_ids, open_listener

    check_unique_ids(runs)
    if key is None and host not in LOOPBACK:
        warn_once("no key", f"{host} is reachable from other machines without a key; --key sets one")
    limits = Limits(
        rows=rows, places=places, max_tokens=max_tokens, request_seconds=request_seconds, drain_seconds=drain_seconds
    )
    sock = open_listener(host, port)
    print(f"http://{host}:{sock.getsockname()[1]}", flush=True)

    def serve_runs() -> None:
        from ensue.extensions.serving.server import serve as run_server

        run_server(
            runs, sock, host=host, device=device, threads=threads or 1, precision=precision, key=key,
            hosts=trusted_host or [], limits=limits, has_sessions=processes == 1,
            adaptation=cli.pop_adaptation(adaptation),
        )  # fmt: skip

    if processes == 1:
        serve_runs()
        return
    from ensue.extensions.serving.processes import run_processes

    if status := run_processes(processes, lambda: _exit_status(serve_runs)):
        raise typer.Exit(status)


def _exit_status(function: Callable[[], None]) -> int:
    """Call a function, print its error, and return the exit status."""
    try:
        function()
    except Exception as error:
        message = user_message(error)
        if message is None:
            raise
        print(f"ensue: {to_one_line(message)}", file=sys.stderr)
        return 2
    finally:
        sys.stdout.flush()
    return 0
