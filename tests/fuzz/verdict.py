"""The judgment of cases: each must succeed, or end with one line and status 2, with its input unchanged."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from fuzz.case import Outcome

PEAK_MIB = 2500
"""`classify-bag` with 38 labels has 82 million parameters, each with a gradient, a moment and copies for the disk."""
MAX_LINE_LENGTH = 6000
_FRAME = re.compile(r'File "[^"]*/(?:src|site-packages)/(ensue/[^"]+)", line (\d+),? in (\S+)')


class Finding(NamedTuple):
    """A fault of a case. Its `fault` and `location` define its group."""

    name: str
    fault: str
    location: str
    detail: str
    command: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault} in {self.location}: {self.detail} [{self.command}]"


def judge(outcome: Outcome) -> Finding | None:
    """Return the first fault of a case, if any."""
    fault = next(_faults(outcome), None)
    if fault is None:
        return None
    kind, _, detail = fault.partition(": ")
    frames = _FRAME.findall(outcome.err)
    in_order = frames if "most recent call first" not in outcome.err else frames[::-1]
    location = f"{in_order[-1][0]} {in_order[-1][2]}" if in_order else "-"
    command = shlex.join(outcome.case.arguments) if outcome.case.action is None else "library"
    return Finding(outcome.case.name, kind, location, detail[:300], command[:400])


def _faults(outcome: Outcome) -> Iterator[str]:
    status, err = outcome.status, outcome.err
    if status is None:
        yield f"hang: stopped after {outcome.seconds:.0f} s"
    elif status < 0:
        yield f"signal {-status}: {_last_line(err)}"
    if "Traceback (most recent call last)" in err:
        last = _last_line(err)
        yield last if ": " in last else f"{last}: "
    if status not in (0, 2):
        yield f"status {status}: {_last_line(err)}"
    if outcome.peak_mib > (PEAK_MIB if outcome.case.peak_mib is None else outcome.case.peak_mib):
        yield f"memory: {outcome.peak_mib:,} MiB"
    if "Warning: " in err:
        yield f"warning: {next(line for line in err.splitlines() if 'Warning: ' in line)}"
    if status == 2:
        yield from _faults_of_the_line(outcome)
    yield from _faults_of_the_files(outcome)
    if status == 0:
        for check in outcome.case.checks:
            if fault := check(outcome):
                yield fault


def _faults_of_the_line(outcome: Outcome) -> Iterator[str]:
    if outcome.case.streams[2] != "file":
        return
    notices = r"^.*: Notice: .*\n  .*\n" if outcome.case.action is not None else r"(?!)"  # warnings of the library
    lines = re.sub(notices, "", outcome.err, flags=re.MULTILINE).split("\n")
    if lines.pop() or not lines or not lines[-1].startswith("ensue: "):
        yield f"no line: {_last_line(outcome.err)}"
    elif len(lines) > 1 and not outcome.case.writes_progress:
        yield f"{len(lines)} lines: {lines[0]}"
    elif len(lines[-1]) > MAX_LINE_LENGTH:
        yield f"a long line: {len(lines[-1]):,} characters"
    elif re.search(r"[\x00-\x08\x0b-\x1f\x7f]", lines[-1]):
        yield f"control characters: {lines[-1]!r}"


def _faults_of_the_files(outcome: Outcome) -> Iterator[str]:
    has_begun = outcome.status == 0 or "--overwrite" in outcome.case.arguments
    has_begun = has_begun or (outcome.case.writes_progress and outcome.err.count("\n") > 1)
    allowed = outcome.case.may_change if has_begun else set()
    for name, digest in outcome.before.items():
        if name.split("/")[0] not in allowed and outcome.after.get(name) != digest:
            yield f"{'lost' if name not in outcome.after else 'changed'}: {name}"
    for name in sorted(outcome.after.keys() - outcome.before.keys()):
        if ".partial" in name:
            yield f"left over: {name}"


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
