"""What a command says, and whether that is what it said before."""

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
"""Absolute below 1, relative above. Where fewer digits are shown, one in the last of them is allowed."""

GROWN = {"probability", "text"}
"""The keys that objects of JSON got after the first kept runs: of spans, and of unknown tokens."""

_commands = cache(typer.main.get_command)


def answer(command: str) -> str:
    """What a command of ensue writes to stdout; what an exported program does, where its path begins the command."""
    program, *arguments = command.split()
    if program.endswith(".py"):
        with open(arguments[0], encoding="utf-8") as texts:
            result = subprocess.run([sys.executable, program], stdin=texts, capture_output=True, text=True, check=True)
        return result.stdout
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        _commands(ensue.cli.command_line())([program, *arguments], standalone_mode=False)
    return out.getvalue()


def are_alike(found: str, expected: str) -> bool:
    """Whether two answers have the same text and numbers as good as equal; objects may have keys of `GROWN`."""
    lines, before = found.split("\n"), expected.split("\n")
    if len(lines) == len(before):
        found = "\n".join(map(_as_before, lines, before))
    numbers = list(zip(NUMBER.findall(found), NUMBER.findall(expected), strict=False))
    return NUMBER.sub("#", found) == NUMBER.sub("#", expected) and all(_are_close(*pair) for pair in numbers)


def _as_before(found: str, expected: str) -> str:
    """A line; one that is an object of JSON without the keys that it did not have."""
    if not found.startswith("{"):
        return found
    try:
        now = json.loads(found)
        then = _shared(now, json.loads(expected))
    except json.JSONDecodeError:
        return found
    return found if then == now else json.dumps(then, ensure_ascii=False)


def _shared(found: Any, expected: Any) -> Any:
    if isinstance(found, dict) and isinstance(expected, dict):
        kept = {key: value for key, value in found.items() if key in expected or key not in GROWN}
        return {key: _shared(value, expected.get(key)) for key, value in kept.items()}
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return list(map(_shared, found, expected))
    return found


def _are_close(found: str, expected: str) -> bool:
    digits = len(expected.partition("e")[0].partition(".")[2])
    exact = "e" in expected or digits == 0
    last = 0.0 if exact else 1.01 * 10.0**-digits
    return math.isclose(float(found), float(expected), rel_tol=TOLERANCE, abs_tol=max(TOLERANCE, last) if digits else 0)
