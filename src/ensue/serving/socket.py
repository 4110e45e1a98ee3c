"""The socket of a server, and the names of its models: what can be wrong before anything is loaded."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from ensue.errors import EnsueError

BACKLOG = 1024
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
"""The names of this machine for itself."""


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises EnsueError if the port is taken or the host is not of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        raise EnsueError(f"{host}:{port}: cannot listen there: {error.strerror or error}") from None
    found.setblocking(False)
    return found


def check_names(runs: Sequence[Path]) -> None:
    """Raises EnsueError for two runs of one name."""
    names: dict[str, Path] = {}
    for run in runs:
        other = names.setdefault(name_of(run), run)
        if other is not run:
            raise EnsueError(f"{other} and {run}: two models with the id {name_of(run)}; rename one of the directories")


def name_of(run: Path) -> str:
    """The id of a run's model: the name of its directory; what is no UTF-8 in it becomes question marks."""
    return run.resolve().name.encode("utf-8", "replace").decode()
