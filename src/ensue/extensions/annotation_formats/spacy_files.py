"""Readers of data of spaCy: DocBin, and JSON of [text, {"entities": [[0, 3, "PER"]]}], as NER Annotator writes it."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ensue.data.json_layouts import JsonLayout, Row
from ensue.errors import DataError, EnsueError, to_one_line


class SpacyTuple(JsonLayout):
    """A text with spans ("entities"), or with scores of labels ("cats"); labels with scores of at least 0.5 count."""

    what = 'a text and an object with "entities" or "cats"'

    def rows(self, value: Any) -> Iterable[Row] | None:
        text, annotations = value
        if not isinstance(text, str) or not isinstance(annotations, dict):
            return None
        if "entities" in annotations:
            spans = [dict(zip(("start", "end", "label"), entity, strict=False)) for entity in annotations["entities"]]
            return [{"text": text, "spans": spans}]
        labels = [label for label, score in annotations["cats"].items() if score >= 0.5]
        return [{"text": text, "label": labels[0] if len(labels) == 1 else labels}]


def docbin_rows(path: Path) -> Iterator[Row]:
    """Yield documents with span groups and no entities, others with categories, and the sentences of all others."""
    if find_spec("spacy") is None:
        raise EnsueError(f"{path}: reading .spacy needs the package spacy: pip install spacy")
    import spacy  # noqa: PLC0415 (not a dependency)
    from spacy.tokens import DocBin  # noqa: PLC0415

    try:
        for doc in DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab):
            labels = [label for label, score in doc.cats.items() if score >= 0.5]
            if not labels and doc.cats and abs(sum(doc.cats.values()) - 1) < 0.01:  # exclusive classes
                labels = [max(doc.cats, key=lambda label: doc.cats[label])]
            if doc.spans and not doc.ents:
                spans = [span for group in doc.spans.values() for span in group]
                offsets = [{"start": span.start_char, "end": span.end_char, "label": span.label_} for span in spans]
                yield {"text": doc.text, "spans": offsets}
                continue
            if doc.cats:
                yield {"text": doc.text, "label": labels[0] if len(labels) == 1 else labels}
                continue
            for sentence in doc.sents if doc.has_annotation("SENT_START") else (doc[:],):
                words = [word for word in sentence if not word.is_space]
                row: Row = {"tokens": [word.text for word in words]}
                if doc.has_annotation("ENT_IOB"):
                    names = [(word.ent_iob_, word.ent_type_) for word in words]
                    row["ner_tags"] = [f"{prefix}-{name}" if prefix in ("B", "I") else "O" for prefix, name in names]
                if doc.has_annotation("TAG") or doc.has_annotation("POS"):
                    row["pos_tags"] = [word.tag_ or word.pos_ for word in words]
                if words:
                    yield row
    except Exception as error:
        raise DataError(f"cannot be read by spacy: {to_one_line(str(error))}", path) from None
