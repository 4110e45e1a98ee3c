"""`RUN/metrics.csv`: the reports of a run as a table that spreadsheets read."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_text
from ensue.trackers.tracker import Record, Tracker, numbers


class CsvFile(Tracker):
    """A row for each record, a column for each number. The file is whole at any time."""

    name = "csv"
    path: Path

    def begin(self, run: RunDirectory) -> None:
        self.path, self.rows = run.path / "metrics.csv", list[Record]()

    def record(self, record: Record) -> None:
        times: Record = {key: record[key] for key in ("step", "seconds") if key in record}
        self.rows.append({"kind": record["kind"]} | times | dict(numbers(record)))

    def flush(self) -> None:
        columns = dict.fromkeys(["kind", "step", "seconds", *(name for row in self.rows for name in row)])
        text = io.StringIO()
        table = csv.DictWriter(text, list(columns), lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        write_text(self.path, text.getvalue())

    def end(self) -> None:
        self.flush()
