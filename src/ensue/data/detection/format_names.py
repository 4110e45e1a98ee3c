"""The names of all formats, and their suffixes. They are read in `sentences`, `documents` and `pairs`."""

from __future__ import annotations

from pathlib import Path

from ensue.data.decoding import COMPRESSED

SENTENCE_FORMATS = ("columns", "conllu", "json", "text")
TEXT_FORMATS = ("tsv", "csv", "csv-semicolon", "json", "fasttext", "first-word", "class-files", "plain")
ALIGNED = "aligned"
"""Two files, line by line."""
ONLY_PAIRS = ("tmx", "scan", "cmudict", "sigmorphon", ALIGNED)
PAIR_FORMATS = ("tsv", "csv", "csv-semicolon", "json", *ONLY_PAIRS, "plain")
FOLDERS = "folders"
"""A folder for each class, with a file for each text."""
CLASS_FILES = "class-files"
"""A file for each class, with a text on each line."""
_JSON = {".json": "json", ".jsonl": "json", ".ndjson": "json"}
SENTENCE_SUFFIXES = {
    **_JSON,
    ".conllu": "conllu",
    **dict.fromkeys((".conll", ".bio", ".iob", ".iob2", ".bmes", ".bioes", ".iobes"), "columns"),
}
TEXT_SUFFIXES = {**_JSON, ".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".ft": "fasttext", ".fasttext": "fasttext"}
PAIR_SUFFIXES = {**_JSON, ".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".tmx": "tmx"}


def suffix(name: str) -> str:
    """`.csv` for `a.csv.xz`."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def class_of(name: str) -> str:
    """The class of a file by its name: `Arabic` for `names/Arabic.txt.xz`."""
    path = Path(name)
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem
