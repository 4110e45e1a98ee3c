"""Several processes for one command: torchrun's agent starts them, and each runs the same command."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import typer

from ensue.console.output import importing_torch
from ensue.errors import EnsueError


@contextmanager
def among_processes(wanted: int | None, timeout: float) -> Iterator[bool]:
    """A `with` block that runs in each of the processes; it gives whether this one speaks for all.

    If `wanted` are to be started, this process starts them, waits, and ends with their status.
    """
    size = os.environ.get("WORLD_SIZE")
    if size is None and wanted is not None and wanted > 1:
        raise typer.Exit(_started(wanted))
    if size is not None and wanted not in (None, int(size)):
        raise EnsueError(f"--processes {wanted}: torchrun has started {size}; leave the option out")
    if size in (None, "1"):
        yield True
        return
    with importing_torch():
        from ensue.training.processes import joined
    with joined(timeout=timeout) as company:
        yield company.is_first


def _started(count: int) -> int:
    """The exit status of so many processes of this command."""
    with importing_torch():
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the processes speak for themselves
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=count, run_id=uuid4().hex, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-m", "ensue", *sys.argv[1:])
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        return 130 if codes == {130} else 2 if 2 in codes else 1
    except SignalException:
        return 130
    return 0
