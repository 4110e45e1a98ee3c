"""Each reader of text gives the same for lines that end in \\n, \\r\\n and \\r alone."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ensue.data.decoding import decode_blocks, load_text
from ensue.data.detection.format_table import ALIGNED, FOLDERS, FORMAT_TABLE
from ensue.data.detection.kind import detect
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.sentences.source import SentenceSource
from ensue.extensions.frames.data.series import SeriesOptions
from ensue.extensions.frames.data.source import FrameSource

ROWS = [("a good day", "good"), ("a bad day", "bad")] * 4
LONG = "a day of rain", "ein Tag im Regen"
CONLLU = "".join(f"{n}\t{word}" + "\t_" * 8 + "\n" for n, word in enumerate(("Anna", "left"), 1)) + "\n"
SAMPLES: dict[str, dict[str, str]] = {
    "columns": {"a.conll": "Anna B-PER\nleft O\n\nLima B-LOC\nwon O\n\n"},
    "conllu": {"a.conllu": CONLLU.replace("Anna\t_\t_", "Anna\t_\tNOUN") * 2},
    "tsv": {"a.tsv": "".join(f"{label}\t{text}\n" for text, label in ROWS)},
    "csv": {"a.csv": "text,label\n" + "".join(f'"{text}, {label}",{label}\n' for text, label in ROWS)},
    "csv-semicolon": {"a.csv": "text;label\n" + "".join(f"{text};{label}\n" for text, label in ROWS)},
    "csv-tab": {"a.txt": "text\tlabel\n" + "".join(f'"a ""{text}"""\t{label}\n' for text, label in ROWS)},
    "fasttext": {"a.txt": "".join(f"__label__{label} {text}\n" for text, label in ROWS)},
    "first-word": {"a.txt": "1 so good\n0 so bad\n" * 4},
    "class-files": {"c/good.txt": "a day\nb day\n", "c/bad.txt": "c day\nd day\n"},
    FOLDERS: {"c/good/a.txt": "a day\nb day\n", "c/bad/b.txt": "c day\nd\n"},
    "sigmorphon": {"a.txt": "go\twent\tV;PST\nsee\tsaw\tV;PST\n"},
    "cmudict": {"a.txt": ";;; a comment\nGO  G OW1\nSEE  S IY1\n"},
    "scan": {"a.txt": "IN: jump OUT: JUMP\nIN: walk OUT: WALK\n"},
    "json": {"a.jsonl": "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)},
    ALIGNED: {"a.en": f"{LONG[0]}\n\n{LONG[0]}\n", "a.de": f"{LONG[1]}\n\n{LONG[1]}\n"},
    "a JSON array": {"a.json": json.dumps([{"text": text, "label": label} for text, label in ROWS], indent=1)},
    "brat": {"a.txt": "Anna saw Lima\nno one left\n", "a.ann": "T1\tPER 0 4\tAnna\nT2\tLOC 9 13\tLima\n"},
    "frames": {"a.csv": "time,series,x,label\n" + "".join(f"{n},s,{n % 3}.5,{'ab'[n % 2]}\n" for n in range(9))},
    "ts": {"a.ts": "@timeStamps false\n@classLabel true a b\n@data\n1.5,2:a\n2,3:b\n"},
}
READ: dict[str, Callable[[str], Iterable[Any]]] = {
    "sentences": lambda path: [(s.words, dict(s.columns)) for s in SentenceSource(path)],
    "texts": lambda path: [(d.texts, d.labels, d.line) for d in DocumentSource(path)],
    "pairs": lambda path: [pair[:2] for pair in PairSource(path)],
    "frames": lambda path: [(s.frames.tolist(), s.labels) for s in FrameSource(path, SeriesOptions())],
}


def contents(folder: Path, files: dict[str, str], end: str) -> tuple[str, list[Any]]:
    """Return the kind of the files with this line end, and what is read from them."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.replace("\n", end).encode())
    first = next(iter(files))
    location = ",".join(str(folder / name) for name in files) if first == "a.en" else str(folder / first)
    location = str(folder / "c") if first.startswith("c/") else str(folder) if "a.ann" in files else location
    kind = detect(location).kind
    return kind, [str(each).replace("\\r\\n", "\\n") for each in READ[kind](location)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_line_end_changes_nothing(tmp_path: Path, name: str) -> None:
    expected = contents(tmp_path / "n", SAMPLES[name], "\n")
    assert len(expected[1]) > 1 or name == "frames"
    for end in ("\r\n", "\r"):
        assert contents(tmp_path / end.encode().hex(), SAMPLES[name], end) == expected


def test_every_format_of_text_has_a_sample() -> None:
    assert {known.name for known in FORMAT_TABLE} - {"text", "plain", "conllu-text"} <= SAMPLES.keys()


def test_line_ends_are_read_across_blocks(tmp_path: Path) -> None:
    """A block may end between \\r and \\n, and a \\r beside other line ends is a character."""
    (tmp_path / "a.txt").write_bytes(b"a b\rc d\r")
    assert load_text(tmp_path / "a.txt", "utf-8") == "a b\nc d\n"
    for blocks in ([b"a\r", b"\nb\rc"], [b"a\nb\rc\r"], [b"a\r"]):
        assert "".join(decode_blocks([*blocks, b""], "", "utf-8")) == b"".join(blocks).decode()
