"""Texts with what a model says of them, as annotation tools read them.

Sources: Label Studio, "Import pre-annotated data"; doccano, "Import and export"; Prodigy, "Annotation interfaces".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ensue.tasks.contract.choice import Candidate

Row = dict[str, Any]


def as_lines(rows: Iterable[Row]) -> str:
    """The rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def plain(chosen: Sequence[Candidate], names: Sequence[str]) -> str:
    """Texts alone, and under "prediction" what the model says."""
    rows = []
    for each in chosen:
        said = list(each.labels) if each.spans is None else _spans(each)
        rows.append({**_texts(each), "prediction": said, "probability": round(each.probability, 6)})
    return as_lines(rows)


def doccano(chosen: Sequence[Candidate], names: Sequence[str]) -> str:
    """Lines with a list of labels, or of spans [start, end, label]. Two texts are one below the other."""
    labels = ([*each.labels] if each.spans is None else [[*span] for span in each.spans] for each in chosen)
    return as_lines({"text": "\n".join(each.texts), "label": said} for each, said in zip(chosen, labels, strict=True))


def prodigy(chosen: Sequence[Candidate], names: Sequence[str]) -> str:
    """Lines for `ner.manual` with spans, or for the interface `choice` with all labels and those accepted."""
    rows: list[Row] = []
    for each in chosen:
        meta = {"meta": {"probability": round(each.probability, 3)}}
        if each.spans is None:
            options = [{"id": name, "text": name} for name in names]
            rows.append({"text": "\n".join(each.texts), "options": options, "accept": [*each.labels], **meta})
        else:
            rows.append({"text": each.texts[0], "spans": _spans(each), **meta})
    return as_lines(rows)


def label_studio(chosen: Sequence[Candidate], names: Sequence[str]) -> str:
    """An array of tasks with predictions. The labeling interface calls its tags "label" and "text"."""
    tasks = []
    for each in chosen:
        shared = {"from_name": "label", "to_name": "text"}
        if each.spans is None:
            result = [{**shared, "type": "choices", "value": {"choices": [*each.labels]}}]
        else:
            values = ({"start": a, "end": b, "text": each.texts[0][a:b], "labels": [name]} for a, b, name in each.spans)
            result = [{**shared, "type": "labels", "value": value} for value in values]
        tasks.append({"data": _texts(each), "predictions": [{"score": round(each.probability, 6), "result": result}]})
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


FORMATS: Mapping[str, Callable[[Sequence[Candidate], Sequence[str]], str]] = {
    "jsonl": plain, "label-studio": label_studio, "doccano": doccano, "prodigy": prodigy,
}  # fmt: skip
"""From what is chosen, and the names of all labels, to the text of a file."""


def _texts(each: Candidate) -> Row:
    if len(each.texts) == 1:
        return {"text": each.texts[0]}
    return {f"text{place}": text for place, text in enumerate(each.texts, 1)}


def _spans(each: Candidate) -> list[Row]:
    return [{"start": start, "end": end, "label": label} for start, end, label in each.spans or ()]
