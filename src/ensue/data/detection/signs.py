"""The signs of formats in the first lines of a file. `format_table` and `kind` ask for them in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from ensue.data.lines import is_blank
from ensue.data.records.quoting import announced_delimiter

DOCUMENT_START = "-DOCSTART-"
FASTTEXT_PREFIX = "__label__"
_LONGEST_LABEL = 60
_FEW = 10
CMUDICT_COMMENT = ";;;"
_PHONEME = re.compile(r"[A-Z]{1,3}[0-9]?", re.ASCII)
_ALTERNATIVE = re.compile(r"(?<=.)\(\d{1,9}\)$")
_PHONEMES = """
AA AE AH AO AW AX AXR AY B CH D DH DX EH ER EY F G HH IH IX IY JH K L M N NG OW OY P R S SH T TH UH UW UX V W Y Z ZH
"""
_ARPABET = frozenset(_PHONEMES.split())
_FEATURES = re.compile(r"[A-Z0-9][\w.+/*{}()-]*(?:;[\w.+/*{}()-]+)*", re.ASCII)
_MOST = 0.75


def is_json(rows: Sequence[str]) -> bool:
    """Whether the first row begins an object."""
    return bool(rows) and rows[0].lstrip().startswith("{")


def is_conllu(head: Sequence[str]) -> bool:
    """Whether the first row has ten columns, the first of them the number 1, or a range or empty node in its place."""
    fields = next((line.split("\t") for line in head if not is_blank(line) and not line.startswith("#")), [])
    return len(fields) == 10 and (fields[0] in ("1", "0.1") or fields[0].startswith("1-"))


def has_columns(head: Sequence[str], *, is_cut: bool) -> bool:
    """Whether each row has as many columns, and blank lines part them, or tabs do; `is_cut`: the file goes on."""
    if any(line.startswith(DOCUMENT_START) for line in head):
        return True
    rows = [line for line in head if not is_blank(line)]
    has_tabs = bool(rows) and "\t" in rows[0]
    widths = {line.count("\t") if has_tabs else len(line.split()) for line in rows}
    has_long_sentence = any(not is_blank(line) and not is_blank(behind) for line, behind in pairwise(head))
    has_parts = len(rows) < len(head) or (is_cut and widths <= {2, 3, 4})
    return len(widths) == 1 and (has_tabs or (has_parts and has_long_sentence))


def announces(rows: Sequence[str]) -> bool:
    """Whether the first row names the delimiter: `sep=;`."""
    return bool(rows) and announced_delimiter(rows[0]) != ""


def is_fasttext(rows: Sequence[str]) -> bool:
    """Whether the first row begins or ends with a label as fastText writes it."""
    words = rows[0].split() if rows else []
    return any(word.startswith(FASTTEXT_PREFIX) and word != FASTTEXT_PREFIX for word in words[:1] + words[-1:])


def are_tabbed(rows: Sequence[str]) -> bool:
    """Whether every row has a tab; False without rows."""
    return bool(rows) and all("\t" in row for row in rows)


def begin_with_labels(rows: Sequence[str], known: Collection[str] | None = None) -> bool:
    """Whether the first words may be labels: `known` ones, or few."""
    words = [row.split(" ")[0] for row in rows if row.find(" ") > 0]
    return len(words) == len(rows) > 0 and (are_few(words) if known is None else set(words) <= set(known))


def are_few(cells: Sequence[str]) -> bool:
    """Whether these may be labels: short, and at most a quarter of them differ (two may, if one comes twice)."""
    distinct = set(cells)
    return (
        any(distinct)
        and len(distinct) < len(cells)
        and len(distinct) <= max(2, len(cells) // 4)
        and max(map(len, distinct)) <= _LONGEST_LABEL
    )


def have_texts(rows: Sequence[str]) -> bool:
    """Whether most cells of a column between tabs hold several words."""
    cells = [row.split("\t") for row in rows if "\t" in row]
    width = min(map(len, cells), default=0)
    return any(sum(" " in row[place].strip() for row in cells) > len(cells) / 2 for place in range(width))


def are_prose(rows: Sequence[str]) -> bool:
    """Whether the first words are not labels: most of many occur once, or most lines begin with one that comes inside
    of lines at least half as often as before them.
    """
    words = [row.casefold().split() for row in rows]
    first = Counter(line[0] for line in words)
    inside = Counter(word for line in words for word in line[1:])
    if len(first) > _FEW and sum(count == 1 for count in first.values()) > len(first) / 2:
        return True
    return sum(count for word, count in first.items() if 2 * inside[word] >= count) > len(rows) / 2


def is_parted(head: Sequence[str]) -> bool:
    """Whether a blank line stands between two rows, and not all rows stand alone."""
    blanks = [is_blank(line) for line in "".join(head).strip().split("\n")]
    return any(blanks) and any(not before and not behind for before, behind in pairwise(blanks))


def cmudict_entry(line: str) -> tuple[str, str] | None:
    """The word of a line and its phonemes, without their number; None for another line."""
    word, *phonemes = line.partition(" #")[0].split() or [""]
    if phonemes and phonemes[0].isdecimal():
        del phonemes[0]
    if not phonemes or not all(map(_PHONEME.fullmatch, phonemes)):
        return None
    return _ALTERNATIVE.sub("", word), " ".join(phonemes)


def scan_sides(line: str) -> tuple[str, str] | None:
    """The texts after `IN:` and after `OUT:`; None for another line."""
    before, mark, target = line.strip(" \t").removeprefix("IN:").partition(" OUT:")
    return (before.strip(" \t"), target.strip(" \t")) if mark and line.lstrip(" \t").startswith("IN:") else None


def is_scan(rows: Sequence[str]) -> bool:
    """Whether every row is `IN: ... OUT: ...`."""
    return bool(rows) and all(map(scan_sides, rows))


def is_cmudict(rows: Sequence[str]) -> bool:
    """Whether every row that is no comment is a word with phonemes of the ARPAbet, and some have a stress."""
    entries = [cmudict_entry(row) for row in rows if not row.startswith(CMUDICT_COMMENT)]
    phonemes = {phoneme for entry in entries if entry for phoneme in entry[1].split()}
    has_stress = any(phoneme[-1].isdigit() for phoneme in phonemes)
    return all(entries) and has_stress and {phoneme.rstrip("012") for phoneme in phonemes} <= _ARPABET


def is_sigmorphon(rows: Sequence[str]) -> bool:
    """Whether three columns are words, or short texts, and features such as `V;PST;PL` (most of them several)."""
    cells = [row.split("\t") for row in rows]
    if not cells or any(len(row) != 3 or not _FEATURES.fullmatch(row[2].strip()) for row in cells):
        return False
    return sum(";" in row[2] for row in cells) >= _MOST * len(cells)


def mostly_tabbed(rows: Sequence[str]) -> bool:
    """Whether most rows have a tab; one of the others is then the first wrong line."""
    return are_tabbed(rows) or (bool(rows) and sum("\t" in row for row in rows) >= _MOST * len(rows))
