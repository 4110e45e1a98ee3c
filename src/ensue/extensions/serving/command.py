"""The command `serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import mistake
from ensue.errors import EnsueError, in_one_line
from ensue.models.adaptation import Adaptation
from ensue.notices import say_once
from ensue.outputs import Access

PACKAGES = ("starlette", "h11", "prometheus_client")


@cli.with_settings(Adaptation, after="drain_seconds")
def serve(
    runs: Annotated[
        list[Path], Argument(help="Run directories, or hf:NAME; their names are the models' ids."), Access.RUN
    ],
    host: Annotated[str, Option(help="The address to listen at; 0.0.0.0: all of this machine.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0: any that is free.")] = 8000,
    key: Annotated[
        str | None, Option(envvar="ENSUE_KEY", help="Clients have to know this key; default: none is needed.")
    ] = None,
    trusted_host: Annotated[
        list[str] | None, Option(help="Another name under which clients know this server; may be repeated.")
    ] = None,
    processes: Annotated[int, Option(min=1, max=256, help="Processes, for several cores.")] = 1,
    rows: Annotated[int, Option(min=1, max=4096, help="Texts of a model that are written together.")] = 64,
    places: Annotated[int, Option(min=1, help="Texts that are answered or wait; more are refused.")] = 1024,
    max_tokens: Annotated[int, Option(min=1, help="The most tokens that a client may ask for.")] = 65536,
    request_seconds: Annotated[float, Option(min=0.1, help="The longest time of an answer.")] = 300.0,
    drain_seconds: Annotated[float, Option(min=0, help="The time for open answers after SIGTERM.")] = 30.0,
    device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
    precision: cli.PrecisionOption = "float32",
    **adaptation: Any,
) -> None:
    """Serve models over HTTP."""
    from ensue.runs.hub import found_run

    if not (os.environ.get("ENSUE_KEY", "-") if key is None else key).strip():
        raise EnsueError("--key or ENSUE_KEY is empty: expected a key; without the option anyone is let in")
    runs = [found_run(run) for run in runs]
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise EnsueError(f"serve needs the package {missing[0]}: pip install 'ensue[serve]'")
    from ensue.extensions.serving.limits import Limits
    from ensue.extensions.serving.processes import LOOPBACK, check_names, listening

    check_names(runs)
    if key is None and host not in LOOPBACK:
        say_once("no key", f"{host} can be reached from other machines, and no key is asked for: --key sets one")
    limits = Limits(
        rows=rows, places=places, max_tokens=max_tokens, request_seconds=request_seconds, drain_seconds=drain_seconds
    )
    sock = listening(host, port)
    print(f"http://{host}:{sock.getsockname()[1]}", flush=True)

    def work() -> None:
        from ensue.extensions.serving.server import serve as run_server

        run_server(
            runs, sock, host=host, device=device, threads=threads or 1, precision=precision, key=key,
            hosts=trusted_host or [], limits=limits, has_sessions=processes == 1,
            adaptation=cli.taken_adaptation(adaptation),
        )  # fmt: skip

    if processes == 1:
        work()
        return
    from ensue.extensions.serving.processes import in_processes

    if status := in_processes(processes, lambda: _status_of(work)):
        raise typer.Exit(status)


def _status_of(work: Callable[[], None]) -> int:
    """Run the life of a child process and return its exit status, after a line about a mistake."""
    try:
        work()
    except Exception as error:
        said = mistake(error)
        if said is None:
            raise
        print(f"ensue: {in_one_line(said)}", file=sys.stderr)
        return 2
    finally:
        sys.stdout.flush()
    return 0
