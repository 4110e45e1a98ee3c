"""Which folders are labeled texts by themselves, whatever their files hold."""

from __future__ import annotations

from pathlib import Path

from ensue.data.detection.format_names import TEXT_SUFFIXES, suffix
from ensue.data.files import expanded, readable, visible


def has_class_folders(location: Path) -> bool:
    """Whether there are folders of texts: several, or one and nothing else; folders of tables are none."""
    with readable(location):
        path = expanded(location)
        if not str(location) or not path.is_dir():
            return False
    entries = visible(path)
    folders = [entry for entry in entries if entry.is_dir()]
    is_table = any(suffix(file.name) in TEXT_SUFFIXES for folder in folders for file in visible(folder))
    return (len(folders) > 1 or (bool(folders) and folders == entries)) and not is_table
