"""`metrics.jsonl`: one line per report, appended while the run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ensue.runs.manifest import altered, entry_of
from ensue.runs.schema import RECORD, Entry, checked, parsed, told
from ensue.runs.weights import flush, write_text


class MetricsLog:
    """Appends records to a file of JSON lines. `rewind` removes the records that a resumed run will write again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, **record: Any) -> None:
        """Appends a record as a line."""
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps({"kind": kind, **record}, ensure_ascii=False) + "\n")

    def entry(self) -> Entry | None:
        """The manifest's entry of the log as it is now, on the disk; None before the first line."""
        if not self.path.exists():
            return None
        flush(self.path)
        return entry_of(self.path)

    def rewind(self, start: Entry | None) -> None:
        """Cuts the log back to the entry `start`. Raises RunError if the log does not begin with that content."""
        if start is None:
            write_text(self.path, "")
            return
        with told(self.path):
            size = self.path.stat().st_size
            if size < start.bytes or entry_of(self.path, start.bytes).sha256 != start.sha256:
                raise altered(self.path, start, size)
        with self.path.open("r+b") as file:
            file.truncate(start.bytes)

    def records(self) -> list[dict[str, Any]]:
        """All records. An incomplete last line is skipped. Raises RunError for a line that is no record."""
        with told(self.path):
            *lines, _ = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        return [self._record(line, number) for number, line in enumerate(lines, 1)]

    def _record(self, line: bytes, number: int) -> dict[str, Any]:
        place = Path(f"{self.path}:{number}")
        with told(place):
            record: dict[str, Any] = parsed(line)
        checked(RECORD, record, place)
        return record
