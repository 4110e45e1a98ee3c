"""The names of all formats, and their suffixes. They are read in `sentences`, `documents` and `pairs`."""

from __future__ import annotations

import re
from pathlib import Path

from ensue.data.decoding import COMPRESSED
from ensue.data.row_files import PARQUET

SENTENCE_FORMATS = ("columns", "conllu", "json", "text")
TEXT_FORMATS = ("tsv", "csv", "csv-semicolon", "json", "fasttext", "first-word", "class-files", "plain")
ALIGNED = "aligned"
"""Two files, line by line."""
ONLY_PAIRS = ("tmx", "scan", "cmudict", "sigmorphon", ALIGNED)
PAIR_FORMATS = ("tsv", "csv", "csv-semicolon", "json", *ONLY_PAIRS, "plain")
TABBED = {"tsv", "sigmorphon"}
"""Formats of pairs with tabs between columns."""
FOLDERS = "folders"
"""A folder for each class, with a file for each text."""
CLASS_FILES = "class-files"
"""A file for each class, with a text on each line."""
_JSON = dict.fromkeys((".json", ".jsonl", ".ndjson", *PARQUET), "json")
"""Rows of binary tables are read as JSON."""
SENTENCE_SUFFIXES = {
    **_JSON,
    ".conllu": "conllu",
    **dict.fromkeys((".conll", ".bio", ".iob", ".iob2", ".bmes", ".bioes", ".iobes"), "columns"),
}
TEXT_SUFFIXES = {**_JSON, ".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".ft": "fasttext", ".fasttext": "fasttext"}
PAIR_SUFFIXES = {**_JSON, ".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".tmx": "tmx"}
FRAMES = "frames"
"""Series of real vectors, whatever file they are in."""
FRAME_SUFFIXES = {
    **dict.fromkeys((".wav", ".wave"), "sound"),
    **{suffix: suffix[1:] for suffix in (".npy", ".npz", ".safetensors")},
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"), "image"),
}
"""What a file of frames holds, by its suffix; tables of frames have names that say less."""
FRAME_TABLES = {".csv", ".tsv", ".tab"}
IDX = re.compile(r"idx[1-9]")
"""Matches in the name of an idx file."""


def suffix(name: str) -> str:
    """`.csv` for `a.csv.xz`."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def frames_in(path: Path) -> str:
    """What a file of frames holds, by its name; "" if that does not say it."""
    return "idx" if IDX.search(path.name) else FRAME_SUFFIXES.get(suffix(path.name), "")


def class_of(name: str) -> str:
    """The class of a file by its name: `Arabic` for `names/Arabic.txt.xz`."""
    path = Path(name)
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem
