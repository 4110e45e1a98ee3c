"""Tests leave no process behind."""

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
    """It holds the pipe, whose end is waited for, as long as it lives."""
    command = [sys.executable, "-SEc", f"import sys; sys.path.append({str(Path(__file__).parent)!r}){PROGRAM}"]
    subprocess.run(command, stdout=subprocess.PIPE, timeout=30, check=False)
