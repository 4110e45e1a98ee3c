"""Files that tests write."""

from pathlib import Path
from typing import Any


def write_file(path: Path, content: str | bytes, **options: Any) -> Path:
    """Write a file, and return its path."""
    path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content, **options)
    return path
