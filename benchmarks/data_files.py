"""Files in the folder of the data sets, compressed or not."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path


def data_path(data: Path, name: str) -> str:
    """Return the path of the file `name` in the folder `data`, or of its compressed copy."""
    candidates = [data / f"{name}{suffix}" for suffix in ("", ".xz", ".gz")]
    path = next((candidate for candidate in candidates if candidate.exists()), None)
    if path is None:
        raise SystemExit(f"{data / name}: no such file, nor one with the suffix .xz or .gz")
    return str(path)


def read_lines(data: Path, name: str, encoding: str = "utf-8-sig") -> list[str]:
    """Return the lines of a file without line ends and without a byte order mark."""
    path = Path(data_path(data, name))
    open_file = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with open_file(path, "rt", encoding=encoding, newline="\n") as file:
        return [line.rstrip("\r\n") for line in file]
