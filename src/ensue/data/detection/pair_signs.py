"""The signs of formats that hold pairs, in the first lines of a file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ensue.data.detection import line_signs

CMUDICT_COMMENT = ";;;"
_PHONEME = re.compile(r"[A-Z]{1,3}[0-9]?", re.ASCII)
_ALTERNATIVE = re.compile(r"(?<=.)\(\d{1,9}\)$")
_PHONEMES = """
AA AE AH AO AW AX AXR AY B CH D DH DX EH ER EY F G HH IH IX IY JH K L M N NG OW OY P R S SH T TH UH UW UX V W Y Z ZH
"""
_ARPABET = frozenset(_PHONEMES.split())
_FEATURES = re.compile(r"[A-Z0-9][\w.+/*{}()-]*(?:;[\w.+/*{}()-]+)*", re.ASCII)
_TMX = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!DOCTYPE\s+tmx\b[^>]*>\s*)?<tmx\b", re.DOTALL)
_LONGEST_OPENING = 1 << 12
_MOST = 0.75


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


def is_tmx(text: str) -> bool:
    """Whether a text begins as a TMX file does."""
    return _TMX.match(text[:_LONGEST_OPENING]) is not None


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
    return line_signs.are_tabbed(rows) or (bool(rows) and sum("\t" in row for row in rows) >= _MOST * len(rows))
