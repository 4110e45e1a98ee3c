"""Functions that recognize formats from the first lines of a file. Rows are lines that are not blank."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from ensue.data.lines import DOCUMENT_START, RowLayout, is_blank
from ensue.data.records.quoting import declared_delimiter, has_quoted_tabs

FASTTEXT_PREFIX = "__label__"
_MAX_LABEL_CHARACTERS = 60
_MAX_FEW_WORDS = 10
"""With at most this number of distinct first words, words that occur once do not indicate prose."""
CMUDICT_COMMENT = ";;;"
_PHONEME = re.compile(r"[A-Z]{1,3}[0-9]?", re.ASCII)
_ALTERNATIVE = re.compile(r"(?<=.)\(\d{1,9}\)$")
_PHONEMES = """
AA AE AH AO AW AX AXR AY B CH D DH DX EH ER EY F G HH IH IX IY JH K L M N NG OW OY P R S SH T TH UH UW UX V W Y Z ZH
"""
_ARPABET = frozenset(_PHONEMES.split())
_FEATURES = re.compile(r"[A-Z0-9][\w.+/*{}()-]*(?:;[\w.+/*{}()-]+)*", re.ASCII)
_MIN_FRACTION = 0.75


def is_json(rows: Sequence[str]) -> bool:
    """Return whether the first row begins with an object."""
    return bool(rows) and rows[0].lstrip().startswith("{")


def is_conllu(head: Sequence[str]) -> bool:
    """Return whether the first row, except comments, has ten columns and begins with 1, 0.1 or a range from 1."""
    fields = next((line.split("\t") for line in head if not is_blank(line) and not line.startswith("#")), [])
    return len(fields) == 10 and (fields[0] in ("1", "0.1") or fields[0].startswith("1-"))


def has_columns(head: Sequence[str], *, is_cut: bool) -> bool:
    """Return whether all rows have the same number of columns, with tabs or with blank lines between sentences.

    The result is also True for a line `-DOCSTART-`. `is_cut` is whether the file continues after `head`, so that its
    first blank line may follow later.
    """
    if any(line.startswith(DOCUMENT_START) for line in head):
        return True
    layout = RowLayout.of(list(enumerate(head, 1)))
    if layout is None:
        return False
    rows = [line for line in head if layout.is_row(line)]
    has_tabs, widths = layout.has_tabs, {len(layout.fields(line)) for line in rows}
    has_long_sentence = any(not is_blank(line) and not is_blank(following) for line, following in pairwise(head))
    has_sentences = len(rows) < len(head) or (is_cut and widths <= {2, 3, 4})
    return len(widths) == 1 and (has_tabs or (has_sentences and has_long_sentence))


def has_delimiter_line(rows: Sequence[str]) -> bool:
    """Return whether the first row names the delimiter: `sep=;`."""
    return bool(rows) and declared_delimiter(rows[0]) != ""


def is_fasttext(rows: Sequence[str]) -> bool:
    """Return whether the first row begins or ends with a label of fastText."""
    words = rows[0].split() if rows else []
    return any(word.startswith(FASTTEXT_PREFIX) and word != FASTTEXT_PREFIX for word in words[:1] + words[-1:])


def are_tabbed(rows: Sequence[str]) -> bool:
    """Return whether all rows have a tab; False without rows."""
    return bool(rows) and all("\t" in row for row in rows)


def are_quoted_and_tabbed(rows: Sequence[str]) -> bool:
    """Return whether the rows are a table with tabs, whose fields are quoted as in `has_quoted_tabs`."""
    return bool(rows) and "\t" in rows[0] and has_quoted_tabs([*enumerate(f"{row}\n" for row in rows)], "")


def begin_with_labels(rows: Sequence[str], labels: Collection[str] | None = None) -> bool:
    """Return whether the first words of all rows are in `labels`, or without `labels`, whether they may be labels."""
    words = [row.split(" ")[0] for row in rows if row.find(" ") > 0]
    if len(words) != len(rows) or not rows:
        return False
    if labels is not None:
        return set(words) <= set(labels)
    are_possible = (w[:1] not in "[(<{" and w[-1:] not in ",;" and any(map(str.isalnum, w)) for w in set(words))
    return may_be_labels(words) and all(are_possible)


def may_be_labels(cells: Sequence[str]) -> bool:
    """Return whether cells may be labels: they are short, and at most a quarter of them (or two) are distinct."""
    distinct = set(cells)
    is_repetitive = any(distinct) and len(distinct) < len(cells) and len(distinct) <= max(2, len(cells) // 4)
    return is_repetitive and max(map(len, distinct)) <= _MAX_LABEL_CHARACTERS


def have_texts(rows: Sequence[str]) -> bool:
    """Return whether rows separated by tabs have a column in which most cells have several words."""
    cells = [row.split("\t") for row in rows if "\t" in row]
    width = min(map(len, cells), default=0)
    return any(sum(" " in row[index].strip() for row in cells) > len(cells) / 2 for index in range(width))


def are_prose(rows: Sequence[str]) -> bool:
    """Return whether first words cannot be labels: most occur once, or are at least half as frequent inside lines."""
    words = [row.casefold().split() for row in rows]
    first = Counter(line[0] for line in words)
    inside = Counter(word for line in words for word in line[1:])
    if len(first) > _MAX_FEW_WORDS and sum(count == 1 for count in first.values()) > len(first) / 2:
        return True
    return sum(count for word, count in first.items() if 2 * inside[word] >= count) > len(rows) / 2


def has_sentence_breaks(head: Sequence[str]) -> bool:
    """Return whether there are blank lines between some rows, but not between all rows."""
    blanks = [is_blank(line) for line in "".join(head).strip().split("\n")]
    return any(blanks) and any(not before and not after for before, after in pairwise(blanks))


def cmudict_entry(line: str) -> tuple[str, str] | None:
    """Return the word and the phonemes of a line, without the number of the pronunciation; None for other lines."""
    word, *phonemes = line.partition(" #")[0].split() or [""]
    if phonemes and phonemes[0].isdecimal():
        del phonemes[0]
    if not phonemes or not all(map(_PHONEME.fullmatch, phonemes)):
        return None
    return _ALTERNATIVE.sub("", word), " ".join(phonemes)


def scan_sides(line: str) -> tuple[str, str] | None:
    """Return the texts after `IN:` and after `OUT:`; None for other lines."""
    before, mark, target = line.strip(" \t").removeprefix("IN:").partition(" OUT:")
    return (before.strip(" \t"), target.strip(" \t")) if mark and line.lstrip(" \t").startswith("IN:") else None


def is_scan(rows: Sequence[str]) -> bool:
    """Return whether all rows have the form `IN: ... OUT: ...`."""
    return bool(rows) and all(map(scan_sides, rows))


def is_cmudict(rows: Sequence[str]) -> bool:
    """Return whether all rows except comments have a word with phonemes of the ARPAbet, some of them with stress."""
    entries = [cmudict_entry(row) for row in rows if not row.startswith(CMUDICT_COMMENT)]
    phonemes = {phoneme for entry in entries if entry for phoneme in entry[1].split()}
    has_stress = any(phoneme[-1].isdigit() for phoneme in phonemes)
    return all(entries) and has_stress and {phoneme.rstrip("012") for phoneme in phonemes} <= _ARPABET


def is_sigmorphon(rows: Sequence[str]) -> bool:
    """Return whether all rows have three columns, and the last one has features, mostly several, such as `V;PST;PL`."""
    cells = [row.split("\t") for row in rows]
    if not cells or any(len(row) != 3 or not _FEATURES.fullmatch(row[2].strip()) for row in cells):
        return False
    return sum(";" in row[2] for row in cells) >= _MIN_FRACTION * len(cells)


def are_mostly_tabbed(rows: Sequence[str]) -> bool:
    """Return whether most rows have a tab."""
    return bool(rows) and sum("\t" in row for row in rows) >= _MIN_FRACTION * len(rows)
