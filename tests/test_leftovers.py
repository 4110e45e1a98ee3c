"""Processes started by tests end with the tests."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import leftovers, os, signal, subprocess
leftovers.watch()
subprocess.Popen(["sleep", "60"], start_new_session=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_process_ends_with_tests_that_are_killed() -> None:
    """`subprocess.run` returns when the `sleep` process, which holds the pipe, has ended."""
    command = [sys.executable, "-SEc", f"import sys; sys.path.append({str(Path(__file__).parent)!r}){PROGRAM}"]
    subprocess.run(command, stdout=subprocess.PIPE, timeout=30, check=False)
