"""Outputs of commands, and their comparison with stored ones."""

import io
import json
import math
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

import typer

import ensue.cli

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
TOLERANCE = 1e-5
"""The tolerance is absolute below 1, relative above. Fewer digits may differ by 1 in the last one."""

NEWER_KEYS = {"probability", "text"}
"""Keys of JSON objects that are newer than the first stored runs: of spans, and of unknown tokens."""

_commands = cache(typer.main.get_command)


def answer(command: str) -> str:
    """Return the stdout of a command of ensue, or of an exported program whose path begins the command."""
    program, *arguments = command.split()
    if program.endswith(".py"):
        with open(arguments[0], encoding="utf-8") as texts:
            result = subprocess.run([sys.executable, program], stdin=texts, capture_output=True, text=True, check=True)
        return result.stdout
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        _commands(ensue.cli.command_line())([program, *arguments], standalone_mode=False)
    return out.getvalue()


def are_alike(output: str, expected: str) -> bool:
    """Return whether two outputs have equal text and close numbers. Objects may have keys of `NEWER_KEYS`."""
    lines, expected_lines = output.split("\n"), expected.split("\n")
    if len(lines) == len(expected_lines):
        output = "\n".join(map(_without_newer_keys, lines, expected_lines))
    numbers = list(zip(NUMBER.findall(output), NUMBER.findall(expected), strict=False))
    return NUMBER.sub("#", output) == NUMBER.sub("#", expected) and all(_are_close(*pair) for pair in numbers)


def _without_newer_keys(line: str, expected: str) -> str:
    """Return a line, without the newer keys if it is a JSON object."""
    if not line.startswith("{"):
        return line
    try:
        value = json.loads(line)
        old_value = _shared(value, json.loads(expected))
    except json.JSONDecodeError:
        return line
    return line if old_value == value else json.dumps(old_value, ensure_ascii=False)


def _shared(value: Any, expected: Any) -> Any:
    if isinstance(value, dict) and isinstance(expected, dict):
        old_keys = {key: item for key, item in value.items() if key in expected or key not in NEWER_KEYS}
        return {key: _shared(item, expected.get(key)) for key, item in old_keys.items()}
    if isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected):
        return list(map(_shared, value, expected))
    return value


def _are_close(number: str, expected: str) -> bool:
    digits = len(expected.partition("e")[0].partition(".")[2])
    exact = "e" in expected or digits == 0
    last = 0.0 if exact else 1.01 * 10.0**-digits
    allowed = max(TOLERANCE, last) if digits else 0
    return math.isclose(float(number), float(expected), rel_tol=TOLERANCE, abs_tol=allowed)
