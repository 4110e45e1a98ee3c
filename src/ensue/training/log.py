"""`metrics.jsonl`: one line per report, appended while the run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ensue.training.weights import write_text


class MetricsLog:
    """Appends records to a file of JSON lines; `rewind` drops what a run that is taken up again will write anew."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, **record: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **record}, ensure_ascii=False) + "\n")

    def rewind(self, step: int) -> None:
        kept = [r for r in self.records() if r.get("step", 0) <= step and r["kind"] != "test"]
        write_text(self.path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept))

    def records(self) -> list[dict[str, Any]]:
        """All complete records; a last line that a kill cut off is passed over."""
        records = []
        for line in self.path.read_text(encoding="utf-8").split("\n") if self.path.exists() else []:
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return records
