"""Files of JSON lines: the results of benchmarks, and the metrics of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_json_lines(path: Path) -> list[Record]:
    """Return the records of a file, or no records if the file does not exist."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append_json_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append a record to a file."""
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps(record), file=file)


def read_metrics(run: Path) -> list[Record]:
    """Return the records of the metrics of a run."""
    return read_json_lines(run / "metrics.jsonl")


def training_seconds(run: Path) -> float:
    """Return the seconds of training of a run."""
    return max(record.get("seconds", 0.0) for record in read_metrics(run))


def best_validation(records: Sequence[Record]) -> Record:
    """Return the record of the validation with the best score."""
    return [record for record in records if record["kind"] == "valid" and record["best"]][-1]


def last_training(records: Sequence[Record]) -> Record:
    """Return the last record of training."""
    return [record for record in records if record["kind"] == "train"][-1]
