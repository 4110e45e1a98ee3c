"""Notes on labels that look wrong, on texts that stand for missing values, and on very long texts."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from ensue.errors import distinct_names
from ensue.extensions.surveying.counts import FileLine, Lengths

NULLS = frozenset({"nan", "null", "none", "<na>", "n/a", "#n/a", "nat", "nil"})
"""The words that programs write for a missing value, in lower case."""
_MIN_COUNT_RATIO = 10
"""The smallest ratio of the counts of two labels that are compared by letters."""
_MIN_COMPARED_CHARACTERS, _MAX_COMPARED_CHARACTERS = 5, 60
_MIN_COUNT, _MIN_ITEMS = 5, 100
"""A label with 2 to `_MIN_COUNT` - 1 examples is reported, if there are at least `_MIN_ITEMS` examples."""
_MAX_SHOWN_LABELS = 4
_OUTLIER_RATIO, _MIN_OUTLIER_WORDS = 10, 20
"""An outlier is longer than the ratio times the 95 % quantile, and than the ratio times the minimum."""
_EXPANDED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe", "æ": "ae", "ß": "ss"})


def is_null(text: str) -> bool:
    """Return whether a text or label stands for a missing value. "none" in lower case may be a real label."""
    return text.strip() != "none" and text.strip().casefold() in NULLS


def find_similar_labels(counts: Counter[str]) -> dict[str, str]:
    """Return the labels that look misspelled, mapped to similar labels that are more frequent.

    Two labels are similar if they are equal except for case, accents (ä may be ae), whitespace, "_", "-" and a final
    ".", ":", "," or ";". Two words are also similar if one letter differs (by deletion neighborhoods) and the ratio of
    their counts is at least `_MIN_COUNT_RATIO`. Labels in capitals, and very short or long labels, are not words.
    """
    label_of: dict[str, str] = {}  # keys: normalized forms; after "letter ", also forms without one letter
    similar = {}
    max_count, min_count = max(counts.values(), default=0), min(counts.values(), default=0)
    for label, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        folded = re.sub(r"[\s_-]|[.:,;]$", "", label.casefold())
        unaccented = "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))
        forms = dict.fromkeys([folded, unaccented, folded.translate(_EXPANDED)])
        is_word = _MIN_COMPARED_CHARACTERS <= len(label) <= _MAX_COMPARED_CHARACTERS and not label.isupper()
        is_frequent, is_rare = count >= _MIN_COUNT_RATIO * min_count, _MIN_COUNT_RATIO * count <= max_count
        shortened = (form[:index] + form[index + 1 :] for form in forms for index in range(len(form)))
        keys = {f"letter {x}" for x in [*forms, *shortened]} if is_word and (is_frequent or is_rare) else set()
        near = (label_of[key] for key in sorted(keys & label_of.keys()))
        frequent = (other for other in near if counts[other] >= _MIN_COUNT_RATIO * count)
        equal = next((label_of[form] for form in forms if form in label_of), "")
        if other := equal or next((other for other in frequent if _digits(other) == _digits(label)), ""):
            similar[label] = other
        for key in {*forms, *keys} if is_frequent else forms:
            label_of.setdefault(key, label)
    return similar


def _digits(label: str) -> list[str]:
    return re.findall(r"\d", label)


def label_notes(
    counts: Counter[str], first_lines: Mapping[str, FileLine], unit: str, *, separator_remedy: str, are_words: bool
) -> Iterator[str]:
    """Yield notes on suspicious labels, with the line where a label occurs first.

    `unit` is the plural noun for labeled items, which are words if `are_words` is true. `separator_remedy` is the
    remedy for labels that contain a separator.
    """

    def describe(labels: Sequence[str], predicate: str, detail: Callable[[str], str] = lambda label: "") -> str:
        names = dict(zip(labels[:_MAX_SHOWN_LABELS], distinct_names(labels[:_MAX_SHOWN_LABELS]), strict=True))
        examples = ", ".join(f"{names[label]} {counts[label]:,}{detail(label)}" for label in names)
        place = f"; the first at {first_lines[labels[0]]}" if labels[0] in first_lines else ""
        verb, _, rest = predicate.partition(" ")
        verb = verb if len(labels) > 1 else {"have": "has"}.get(verb, f"{verb}s")
        more = ", ..." if len(labels) > _MAX_SHOWN_LABELS else ""
        return f"{len(labels):,} label{'s' if len(labels) > 1 else ''} {verb} {rest}: {examples}{more}{place}"

    if similar := find_similar_labels(counts):
        yield describe([*similar], "look misspelled", lambda x: f", similar to {distinct_names([similar[x]])[0]}")
    if joined := [label for label in counts if re.search(r"\w[,;|#]\s*\w", label)]:
        yield f"{describe(joined, 'have a comma or another separator inside')}; {separator_remedy}"
    blanks = [label for label in counts if " " in label.strip()]
    if blanks and (are_words or 2 * len(blanks) < len(counts)):
        yield describe(blanks, "have a blank inside")
    if nulls := [label for label in counts if is_null(label)]:
        yield describe(nulls, "stand for a missing value")
    if counts.total() >= _MIN_ITEMS and (rare := [label for label, count in counts.items() if 1 < count < _MIN_COUNT]):
        yield describe(rare, f"have fewer than {_MIN_COUNT} {unit}")


def outlier_note(lengths: Lengths, unit: str, remedy: str) -> str:
    """Return a note on the longest text if it is an outlier, else "". "{}" in `remedy` becomes the limit in words."""
    (length, place), most = lengths.longest, lengths.quantile(0.95)
    limit = _OUTLIER_RATIO * max(most, _MIN_OUTLIER_WORDS)
    note = f"the longest {unit} has {length:,} words ({place}), and 95 % have at most {most:,}; {remedy.format(limit)}"
    return note if length > limit else ""
