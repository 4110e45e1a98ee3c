"""Files of annotation tools as rows with tokens, spans or labels: brat, Label Studio, and spaCy's DocBin.

Sources: brat, "Standoff format"; Label Studio, "Label Studio JSON format of annotated tasks"; spaCy, "DocBin".
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ensue.data.decoding import whole_text
from ensue.data.json_array import array_parts, begins_array, parted
from ensue.errors import DataError, EnsueError, in_one_line
from ensue.notices import say_once
from ensue.parsing import ParseError, parse_json

Row = dict[str, Any]
CLIPPED = "clipped"
"""The key of a span that ends behind the text of its row."""

_BRAT_SPAN = re.compile(r"T\S*\t(\S+) (\d{1,9} \d{1,9}(?:;\d{1,9} \d{1,9})*)(?:\t.*)?")
_WIDE = re.compile("[\U00010000-\U0010ffff]")


def brat_rows(path: Path, encoding: str, *, nested: bool = False) -> Iterator[Row]:
    """The lines of the `.txt` beside an `.ann`, with their spans; a span of several lines is clipped to its first one.

    Relations, events, attributes and notes are left out. Raises DataError (file:line) for a span that is not in the
    text, has gaps, or overlaps another one, if they are not `nested`.
    """
    text = whole_text(path.with_suffix(".txt"), encoding)
    spans: list[_BratSpan] = []
    for number, line in enumerate(whole_text(path, encoding).split("\n"), 1):
        if line.startswith("T"):
            span = _brat_span(line.rstrip("\r\n"), text, str(path), number)
            said = text[span.start : span.end]
            spans.append(span._replace(start=span.end - len(said.lstrip() or said)))  # words of the next line are there
    spans.sort()
    for before, behind in pairwise(spans):
        if behind.start < before.end and not nested:
            what = f"the span overlaps that of line {before.line}; the recipe tag-nested learns such spans"
            raise DataError(what, path, behind.line)
    words = [*(match.start() for match in re.finditer(r"\S+", text)), len(text)]
    for span in spans:
        for start, end in span.gaps:
            if start < end and not (text[start].isspace() and words[bisect_left(words, start)] >= end):
                raise DataError("a span with gaps; expected spans in one piece", path, span.line)
    start = place = inside = 0
    for end in [*(match.end() for match in re.finditer("\n", text)), len(text)]:
        while inside < len(spans) and spans[inside].start < end:
            inside += 1
        line = text[start:end].rstrip("\r\n")
        if line.strip():
            yield {"text": line, "spans": [span.within(start, len(line)) for span in spans[place:inside]]}
        start, place = end, inside


def spacy_rows(path: Path, encoding: str) -> Iterator[Row]:
    """The sentences of a `.spacy` file with the labels of their words, or its documents with their categories."""
    if find_spec("spacy") is None:
        raise EnsueError(f"{path}: reading .spacy needs the package spacy: pip install spacy")
    import spacy  # noqa: PLC0415 (not a dependency)
    from spacy.tokens import DocBin  # noqa: PLC0415

    try:
        for doc in DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab):
            labels = [label for label, score in doc.cats.items() if score >= 0.5]
            if doc.cats:
                yield {"text": doc.text, "label": labels[0] if len(labels) == 1 else labels}
                continue
            for part in doc.sents if doc.has_annotation("SENT_START") else (doc[:],):
                words = [word for word in part if not word.is_space]
                row: Row = {"tokens": [word.text for word in words]}
                if doc.has_annotation("ENT_IOB"):
                    names = [(word.ent_iob_, word.ent_type_) for word in words]
                    row["ner_tags"] = [f"{prefix}-{name}" if prefix in ("B", "I") else "O" for prefix, name in names]
                if doc.has_annotation("TAG") or doc.has_annotation("POS"):
                    row["pos_tags"] = [word.tag_ or word.pos_ for word in words]
                if words:
                    yield row
    except EnsueError:
        raise
    except Exception as error:
        raise DataError(f"cannot be read by spacy: {in_one_line(str(error))}", path) from None


def are_tasks(block: str, name: str) -> bool:
    """Whether a text begins like Label Studio's export: an array of objects with data and annotations."""
    is_array, chunks = begins_array(iter([block]))
    with suppress(DataError, ParseError):  # which reading will raise
        for _, part in array_parts(chunks, name) if is_array and '"annotations"' in block else ():
            task = parse_json(parted(part)[1])
            return isinstance(task.get("data"), dict) and isinstance(task.get("annotations"), list)
    return False


def task_rows(chunks: Iterator[str], name: str) -> Iterator[Row]:
    """The tasks of Label Studio's export: their data, with the choices, spans and texts of the first annotation that is
    not canceled, or of the one that is the ground truth. Tasks with canceled ones alone are left out, and counted.
    """
    canceled = 0
    _, chunks = begins_array(chunks)
    for line, part in array_parts(chunks, name):
        if not (text := parted(part)[1]).strip():
            continue
        try:
            task = parse_json(text)
            done = [made for made in task["annotations"] if not made.get("was_cancelled")]
            if done or not task["annotations"]:
                result = next((made for made in done if made.get("ground_truth")), *(done[:1] or [{}]))
                yield {**task["data"], **_annotated(task["data"], result.get("result"))}
            else:
                canceled += 1
        except (ParseError, KeyError, TypeError, AttributeError, ValueError, IndexError):
            raise DataError("expected a task of Label Studio with data and annotations", name, line) from None
    if canceled:
        say_once(f"rejected {name}", f"{name}: tasks left out: {canceled:,}, all of whose annotations are canceled")


def _annotated(data: Row, results: list[Row] | None) -> Row:
    """Labels, spans and texts of a task, by the keys that are usual in rows. Raises what a wrong form raises."""
    choices: dict[str, list[str]] = {}
    spans, texts = [], {}
    for result in results or ():
        value = result["value"]
        if result["type"] == "labels":
            spans.append(_task_span(value, data.get("text")))
        elif result["type"] == "choices" and "start" not in value:
            choices.setdefault(result["from_name"], []).extend(value["choices"])
        elif result["type"] == "textarea":
            texts[result["from_name"]] = "\n".join(value["text"])
    named = {"label" if len(choices) == 1 else key: made for key, made in choices.items()}
    found = {key: made[0] if len(made) == 1 else made for key, made in named.items()} | texts
    return found | ({"spans": spans} if spans or (results is not None and not found) else {})


def _task_span(value: Row, text: Any) -> Row:
    """A span in code points; in a browser, places may count UTF-16."""
    start, end, said = value["start"], value["end"], value.get("text")
    if isinstance(text, str) and said is not None and not _stands(said, text, start, end):
        wide = _wide_signs(text)
        one, two = (place - bisect_left(wide, place) for place in (start, end))
        if _stands(said, text, one, two):
            start, end = one, two
    return {"start": start, "end": end, "label": value["labels"][0]}


def _stands(said: str, text: str, start: int, end: int) -> bool:
    """Whether a text stands there in another one, in time with its own length."""
    return len(said) == end - start and text.startswith(said, start)


@lru_cache(maxsize=1)
def _wide_signs(text: str) -> list[int]:
    """The places in UTF-16 of the signs that take two units of it."""
    return [found.start() + before for before, found in enumerate(_WIDE.finditer(text))]


class _BratSpan(NamedTuple):
    """A span, the line that says it, and the places between its pieces."""

    start: int
    end: int
    label: str
    line: int
    gaps: list[tuple[int, int]]

    def within(self, start: int, length: int) -> Row:
        """The span in a line of that length, which begins at `start`."""
        end = min(self.end - start, length)
        clipped = {CLIPPED: True} if end < self.end - start else {}
        return {"start": self.start - start, "end": end, "label": self.label} | clipped


def _brat_span(line: str, text: str, name: str, number: int) -> _BratSpan:
    found = _BRAT_SPAN.fullmatch(line)
    if found is None:
        raise DataError("expected a span such as T1, a tab, and PER 0 5", name, number)
    places = [int(place) for piece in found[2].split(";") for place in piece.split()]
    start, end = places[0], places[-1]
    if not start < end <= len(text):
        raise DataError(f"the span {start} {end} is not in the text, which has {len(text):,} characters", name, number)
    if places != sorted(places):
        raise DataError("the pieces of the span are not in order", name, number)
    return _BratSpan(start, end, found[1], number, list(zip(places[1:-1:2], places[2::2], strict=True)))
