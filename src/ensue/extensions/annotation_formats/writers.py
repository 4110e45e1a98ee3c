"""Writers of a tagger's or classifier's predictions, in the formats of annotation tools and of tables.

Sources: brat, "Standoff format"; Label Studio, "Import pre-annotated data"; doccano, "Import and export"; Prodigy,
"Annotation interfaces"; spaCy, "DocBin".
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from os.path import commonpath
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ensue.data.decoding import BOM, load_text
from ensue.data.examples import DocumentSource
from ensue.data.lines import opens_document
from ensue.data.records.record import json_records, sample
from ensue.data.records.tables import TABLES
from ensue.data.sentences.conllu import Conllu
from ensue.data.sentences.sentence import Sentence, SourceText
from ensue.data.sources import is_stream, stream_lines
from ensue.errors import EnsueError, quote, to_one_line
from ensue.extension import run_name
from ensue.outputs import atomic_output, check_outputs, delimited_line, row_lines
from ensue.parsing import EXACT, to_json
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.labeling.cutter import CutterPipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline, LabelsOfSentence
from ensue.text.label_columns import LabelColumns

Row = dict[str, Any]
UNITS: Mapping[str, Callable[[str], int]] = {
    "characters": len,
    "utf-16": lambda text: len(text.encode("utf-16-le", "surrogatepass")) // 2,
    "bytes": lambda text: len(text.encode("utf-8", "surrogatepass")),
}
"""Functions that return the length of a text in a unit of offsets: characters, code units of UTF-16, bytes of UTF-8."""
_SPAN_KEYS = ("start", "end", "label")
_SEPARATOR = re.compile(r"[\t\r\n]")
_REPLACED = ("text", "label", "labels", "spans")
"""The keys of a record whose values a prediction replaces."""
_RESERVED = ("document", "line", "start", "end", "probability", "probabilities")
"""The other keys of the output. A record's key of the same name is written with the prefix "record_"."""


class Prediction(NamedTuple):
    """A text or a pair of texts, with its predicted labels or spans."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """The labels of a classifier; empty for spans."""
    spans: Sequence[tuple[int, int, Any, float | None]] | None
    """Start, end, label and probability of each span, with offsets in characters; None for a classifier."""
    probability: float
    """For a tagger the geometric mean over the labels of words; for a classifier the minimum over `labels`, or the
    highest probability of a label if `labels` is empty.
    """
    origin: Row = {}  # noqa: RUF012 (never changed)
    """The document, the line, and the metadata of the record, such as its id."""
    start: int = 0
    """The offset of the text in its document, in `unit`."""
    label_probabilities: Mapping[str, float] = {}
    """The probability of each label of a classifier."""
    answer: LabelsOfSentence | None = None
    record: str = ""
    """The record of the source with the labels of a classifier."""
    model: str = ""
    unit: Callable[[str], int] = len
    """A value of `UNITS`."""

    @property
    def text_fields(self) -> Row:
        """The texts under the keys of JSON: "text", or "text1" and "text2"."""
        keys = ["text"] if len(self.texts) == 1 else [f"text{number}" for number, _ in enumerate(self.texts, 1)]
        return dict(zip(keys, self.texts, strict=True))

    def rows(self, start: int = 0, keys: Sequence[str] = ("start", "end", "text", "label", "probability")) -> list[Row]:
        """Return the spans as rows with these keys. Offsets are in `unit`; `start` is added to them."""
        text, rows = self.texts[0], []
        for a, b, label, probability in self.spans or ():
            row = {"start": start + self.unit(text[:a]), "end": start + self.unit(text[:b]), "text": text[a:b]}
            row |= {"label": label} | ({} if probability is None else {"probability": round(probability, 6)})
            rows.append({key: row[key] for key in keys if key in row})
        return rows


def label_studio_task(prediction: Prediction, names: Sequence[str]) -> Row:
    """Return a task with its prediction. The names of the labeling interface's tags are "label" and "text"."""
    shared = {"from_name": "label", "to_name": "text"}
    result: list[Row] = [{**shared, "type": "choices", "value": {"choices": [*prediction.labels]}}]
    if prediction.spans is not None:
        result = []
        for value in prediction.rows():
            score = {"score": value.pop("probability")} if "probability" in value else {}
            value["labels"] = [value.pop("label")]
            result.append({**shared, "type": "labels", "value": value, **score})
    version = {"model_version": prediction.model} if prediction.model else {}
    predicted = {**version, "score": round(prediction.probability, 6), "result": result}
    return {"data": {**prediction.text_fields, **prediction.origin}, "predictions": [predicted]}


def doccano_row(prediction: Prediction, names: Sequence[str]) -> Row:
    """Return a text with a list of labels or of spans [start, end, label]. A pair is written as a text of two lines."""
    labels = (
        [*prediction.labels]
        if prediction.spans is None
        else [[*row.values()] for row in prediction.rows(keys=_SPAN_KEYS)]
    )
    return {"text": "\n".join(prediction.texts), "label": labels, **prediction.origin}


def prodigy_task(prediction: Prediction, names: Sequence[str]) -> Row:
    """Return a task with spans for `ner.manual`, or with all labels and the predicted labels for `choice`."""
    meta = {"meta": {"probability": round(prediction.probability, 3), **prediction.origin}}
    if prediction.spans is not None:
        return {"text": prediction.texts[0], "spans": prediction.rows(keys=_SPAN_KEYS), **meta}
    options = [{"id": name, "text": name} for name in names]
    return {"text": "\n".join(prediction.texts), "options": options, "accept": [*prediction.labels], **meta}


def prediction_row(prediction: Prediction, names: Sequence[str]) -> Row:
    """Return a text with the predicted labels or spans under the key "prediction"."""
    predicted = [*prediction.labels] if prediction.spans is None else prediction.rows(keys=_SPAN_KEYS)
    return {**prediction.text_fields, "prediction": predicted, "probability": round(prediction.probability, 6)}


def table_row(prediction: Prediction, names: Sequence[str]) -> Row:
    """Return the row of `prediction_row` for a table, with commas between labels."""
    labels = {} if prediction.spans is not None else {"prediction": ",".join(prediction.labels)}
    return prediction_row(prediction, names) | labels


def json_row(prediction: Prediction, names: Sequence[str]) -> Row:
    """Return a text with its document and line. All offsets, including the offsets of spans, are in the document."""
    start, end = prediction.start, prediction.start + prediction.unit(prediction.texts[0])
    row = {**prediction.origin, **prediction.text_fields, "start": start, "end": end}
    row["probability"] = round(prediction.probability, 6)
    if prediction.spans is not None:
        return {**row, "spans": prediction.rows(start)}
    probabilities = {name: round(probability, 6) for name, probability in prediction.label_probabilities.items()}
    return {**row, "labels": [*prediction.labels], "probabilities": probabilities}


FORMATS: Mapping[str, Callable[[Prediction, Sequence[str]], Row]] = {
    "jsonl": prediction_row, "label-studio": label_studio_task, "doccano": doccano_row, "prodigy": prodigy_task,
}  # fmt: skip
"""Functions that convert a prediction to a row of a file for annotators. `names` are the names of all labels."""


def check_suffix(out: Path | None, option: str, format: str) -> None:
    """Raise EnsueError if the file `out` has the suffix of another format than `format`, the value of `option`."""
    suffix = out.suffix.lower()[1:] if out else ""
    are_json_lines = suffix == "jsonl" and format in FORMATS and format != "label-studio"  # which is a JSON array
    if suffix in ("csv", "tsv", "jsonl", "conll", "conllu") and suffix != format and not are_json_lines:
        raise EnsueError(f"{out}: {option} {format} does not write .{suffix}; expected another suffix")


def as_json_text(rows: Iterable[Row], *, is_array: bool) -> Iterator[str]:
    """Yield the rows as a JSON array, or as JSON lines."""
    separator = "[\n "
    for row in rows:
        if is_array:
            yield separator + to_json(row, ensure_ascii=False, indent=1).replace("\n", "\n ")
        else:
            yield to_json(row, ensure_ascii=False) + "\n"
        separator = ",\n "
    if is_array:
        yield "[]\n" if separator == "[\n " else "\n]\n"


class _TextLocator:
    """A locator of texts in their documents, which are files of running text, or text files with brat's annotations."""

    def __init__(self, encoding: str, unit: Callable[[str], int], *, is_running_text: bool) -> None:
        self._encoding, self._unit, self._is_plain = encoding, unit, is_running_text
        self._name, self._offset, self._lines = "", 0, list[tuple[int, int]]()

    def locate(self, name: str, line: int, before: str, source: str, text: str) -> tuple[str, int, int]:
        """Return the document, the line, and the start of `text`; a record of a table or of JSON starts at 0.

        `source` is the part of the file with the text, `line` its line, `before` the text since the previous part.
        """
        if name != self._name:
            self._name, self._offset, self._lines = name, 0, []
        if not name.endswith(".ann"):
            start = self._offset + self._unit(before + source[: max(0, source.find(text))])
            self._offset += self._unit(before + source) if self._is_plain else 0
            return name or "-", line, start if self._is_plain else 0
        path, offset = str(Path(name).with_suffix(".txt")), 0
        if not self._lines:
            for number, content in enumerate(load_text(Path(path), self._encoding).split("\n"), 1):
                self._lines += [(number, offset)] if content.strip() else []
                offset += self._unit(content + "\n")
        return path, *self._lines[line - 1]


def predict_texts(pipeline: Any, source: Any, encoding: str, unit: Callable[[str], int] = len) -> Iterator[Prediction]:
    """Yield the predictions of a tagger or classifier for the texts of `source`, with offsets in `unit`."""
    shared = {"model": run_name(pipeline.run) if pipeline.run else "", "unit": unit}
    is_classifier = isinstance(pipeline, ClassificationPipeline)
    is_running_text = source.layout.format == "plain" if is_classifier else source.format.name == "text"
    locator = _TextLocator(encoding, unit, is_running_text=is_running_text)
    yield from (_predict_classes if is_classifier else _predict_tags)(pipeline, source, locator, shared)


def _predict_tags(pipeline: LabelingPipeline, source: Any, locator: _TextLocator, shared: Row) -> Iterator[Prediction]:
    for answer in pipeline.label(source, confidence=True):
        tagged, lines = pipeline.tagged(answer, source.format), answer.sentence.source
        name, line, start = locator.locate(lines.name, answer.sentence.line, "", lines.text, tagged.text)
        spans: list[Any] = [(span.start, span.end, span.label, span.probability) for span in tagged.spans]
        if not pipeline.labels.has_spans:
            for word in tagged:
                confidence = min(word.confidence.values(), default=None) if word.columns else word.confidence
                if word.columns or confidence is not None:
                    spans.append((word.start, word.end, word.columns or word.label, confidence))
        meta = _read_meta(lines.sentence_text) if source.format.name == "json" else {}
        origin = {"document": name, "line": line, **meta}
        confidences = [] if answer.confidence is None else answer.confidence.labels
        values = [value for item in confidences for value in (item.values() if isinstance(item, dict) else [item])]
        probability = float(np.exp(np.mean(np.log(np.maximum(values or [1.0], 1e-9)))))
        yield Prediction((tagged.text,), (), spans, probability, origin, start, answer=answer, **shared)


def _predict_classes(
    pipeline: ClassificationPipeline, source: Any, locator: _TextLocator, shared: Row
) -> Iterator[Prediction]:
    for document, labels, probabilities, _ in pipeline.classify(source):
        by_label = pipeline.labels.by_name(probabilities)
        predicted = [by_label[label] for label in labels] or [max(by_label.values())]
        text = document.source
        name, line, start = locator.locate(document.path, document.line, document.before, text, document.texts[0])
        origin = {"document": name, "line": line}
        origin |= _read_meta(text) if source.layout.format == "json" else _select_values(source.other_values(document))
        record = source.write(document, labels, predicted)
        yield Prediction(document.texts, labels, None, min(predicted), origin, start, by_label, record=record, **shared)


def _read_meta(record: str) -> Row:
    """Return the strings, booleans and numbers (as texts) of a JSON record, under the keys of `_select_values`."""
    values: Row = {}
    with suppress(ValueError, RecursionError):
        values, _ = EXACT.raw_decode(record, record.index("{"))
    return _select_values({key: value for key, value in values.items() if isinstance(value, str | int | float)})


def _select_values(values: Row) -> Row:
    """Return the values of a record without the keys `_REPLACED`. Keys in `_RESERVED` are prefixed by "record_"."""
    return {f"record_{key}" if key in _RESERVED else key: values[key] for key in values if key not in _REPLACED}


def _read_meta_keys(source: Any) -> list[str]:
    """Return the keys of `_read_meta` in the first records of each file."""
    keys: dict[str, None] = {}
    for lines in source.files:
        lines.split_array()
        for record in json_records(sample(lines), is_array=lines.is_array):
            keys |= dict.fromkeys(_read_meta(record.text))
        source.files.store_for_next(lines)
    return [*keys]


def _to_json(
    pipeline: Any, source: Any, predicted: Iterable[Prediction], *, row: Callable[..., Row], is_array: bool = False
) -> Iterator[str]:
    """Yield JSON. Formats of annotation tools leave out blank texts."""
    predicted = (item for item in predicted if row is json_row or any(map(str.strip, item.texts)))
    return as_json_text((row(item, pipeline.labels.names) for item in predicted), is_array=is_array)


def _to_csv(pipeline: Any, source: Any, predicted: Iterable[Prediction]) -> Iterator[str]:
    """Yield the records of a table with predicted labels; for other formats, a row for each text, span or word."""
    if isinstance(source, DocumentSource) and source.layout.format in TABLES:
        dialect = TABLES[source.layout.format]
        for text in source.as_one(prediction.record for prediction in predicted):
            rows = dialect.rows(enumerate(re.findall(r".*\n|.+", text)), "") if dialect.delimiter == "\t" else ()
            yield "".join(delimited_line("csv", map(dialect.value, row.values)) for row in rows) or text
        return
    format = source.layout.format if isinstance(source, DocumentSource) else source.format.name
    keys = _read_meta_keys(source) if format == "json" else []
    columns = ("document", "line", *keys, "start", "end", "text", "label", "probability")
    yield from row_lines("csv", _table_rows(predicted, keys), columns)


def _table_rows(predicted: Iterable[Prediction], keys: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each text, span or word, with the metadata `keys` of records."""
    for prediction in predicted:
        start, texts = prediction.start, prediction.texts
        values = prediction.origin.items()
        origin = {key: json.dumps(value) if isinstance(value, bool) else value for key, value in values}
        if new := origin.keys() - {"document", "line", *keys}:
            expected = "is not in the first records, which set the columns; --to jsonl writes all keys"
            raise EnsueError(f'{origin["document"]}:{origin["line"]}: the key "{min(new)}" {expected}')
        text_row: Row = {"start": start, "end": start + prediction.unit(texts[0]), "text": " | ".join(texts)}
        text_row |= {"label": ",".join(prediction.labels), "probability": round(prediction.probability, 6)}
        for row in [text_row] if prediction.spans is None else prediction.rows(start):
            label = row["label"] if isinstance(row["label"], str) else " ".join(row["label"].values())
            yield {**origin, **row, "label": label}


def _to_conll(pipeline: Any, source: Any, predicted: Iterable[Prediction], *, format: str) -> Iterator[str]:
    """Yield the source with predicted labels if it has the format; for other sources, words with their labels."""
    columns = getattr(pipeline.labels, "columns", None)
    for prediction in predicted:
        answer: Any = prediction.answer
        words = answer.sentence.words
        if source.format.name == format:
            yield pipeline.written(answer, source.format)
        elif invalid := [word for word in words if not word or _SEPARATOR.search(word) or opens_document(word)]:
            place = f"{prediction.origin['document']}:{prediction.origin['line']}"
            raise EnsueError(f"{place}: the word {quote(invalid[0])} cannot be written in columns; use --to jsonl")
        elif format == "columns" and words:
            values = [[label] if isinstance(label, str) else label for label in answer.labels]
            yield "".join("\t".join([word, *row]) + "\n" for word, row in zip(words, values, strict=True)) + "\n"
        elif words:
            tagged = pipeline.tagged(answer, source.format).words
            misc = [("_", "SpaceAfter=No")[one.end == after.start] for one, after in pairwise(tagged)] + ["_"]
            cells = enumerate(zip(words, misc, strict=True), 1)
            rows = "".join(f"{number}\t{word}" + "\t_" * 7 + f"\t{space}\n" for number, (word, space) in cells)
            text = _SEPARATOR.sub(" ", prediction.texts[0])
            name, line = prediction.origin["document"], prediction.origin["line"]
            unlabeled = Sentence(words, line=line, source=SourceText(name, f"# text = {text}\n{rows}\n"))
            tags = None if pipeline.config.get("format") == format else "xpos"
            write: Callable[..., str] = Conllu().write_columns if columns else Conllu().write
            yield write(unlabeled, answer.labels, [*columns] if columns else pipeline.column(Conllu()) or tags)
    if source.format.name == format:
        yield source.rest


def _write_docbin(pipeline: Any, source: Any, predicted: Iterable[Prediction], out: Path) -> None:
    """Write documents of spaCy with entities, tags or categories to the file `out`."""
    if find_spec("spacy") is None:
        raise EnsueError("--to docbin needs the package spacy: pip install spacy")
    import spacy  # noqa: PLC0415 (not a dependency)
    from spacy.tokens import Doc, DocBin, Span  # noqa: PLC0415

    language, docs = spacy.blank("xx"), DocBin()
    for prediction in predicted:
        doc, answer = language.make_doc("\n".join(prediction.texts)), prediction.answer
        doc.cats = {**prediction.label_probabilities}
        if answer is not None:
            ends = [end for _, end in source.format.surface(answer.sentence).offsets]
            spaces = [prediction.texts[0][end : end + 1].isspace() for end in ends]
            try:
                doc = Doc(language.vocab, words=[*answer.sentence.words], spaces=spaces)
            except ValueError as error:
                place = f"{prediction.origin['document']}:{prediction.origin['line']}"
                raise EnsueError(f"{place}: not a document of spacy: {to_one_line(str(error))}") from None
            if pipeline.labels.has_spans:
                spans = [Span(doc, a, b, label=label) for label, a, b in pipeline.labels.spans(answer.labels)]
                if pipeline.nested:
                    doc.spans["sc"] = spans
                else:
                    doc.ents = spans
            else:
                for token, label in zip(doc, answer.labels, strict=True):
                    token.tag_ = label
        docs.add(doc)
    with atomic_output(out) as path:
        docs.to_disk(path)


def _write_brat(source: Any, predicted: Iterable[Prediction], out: Path | None, overwrite: bool, encoding: str) -> None:
    """Write `.ann` files in the encoding of the texts, beside the texts, or in `out` with copies of the texts."""
    texts = [path.with_suffix(".txt") if path.suffix == ".ann" else path for path in source.files.paths]
    if not texts or any(path.suffix != ".txt" for path in texts):
        raise EnsueError(f"{source.location}: --to brat annotates text files; expected .txt or .ann")
    root = Path(commonpath([path.absolute().parent for path in texts]))
    copies = [path if out is None else out / path.absolute().relative_to(root) for path in texts]
    outputs = [path.with_suffix(".ann") for path in copies] + ([] if out is None else copies)
    check_outputs(source.files.paths, files=outputs, folders=[] if out is None else [out], overwrite=overwrite)
    annotations: dict[str, list[str]] = {str(path): [] for path in texts}
    for prediction in predicted:
        lines = annotations[prediction.origin["document"]]
        for row in prediction.rows(prediction.start):
            if not isinstance(row["label"], str) or re.search(r"\s", row["label"]):
                raise EnsueError(f"--to brat: the label {row['label']!r} has a blank or several values")
            lines.append(f"T{len(lines) + 1}\t{row['label']} {row['start']} {row['end']}\t{row['text']}\n")
    for text, copy in zip(texts, copies, strict=True):
        copy.parent.mkdir(parents=True, exist_ok=True)
        if out is not None:
            with atomic_output(copy) as path:
                shutil.copyfile(text, path)
        with atomic_output(copy.with_suffix(".ann")) as path:
            path.write_text("".join(annotations[str(text)]), encoding=encoding, newline="\n")


TEXT_FORMATS: Mapping[str, Callable[[Any, Any, Iterable[Prediction]], Iterator[str]]] = {
    **{name: partial(_to_json, row=FORMATS[name]) for name in ("doccano", "prodigy")},
    "label-studio": partial(_to_json, row=label_studio_task, is_array=True), "jsonl": partial(_to_json, row=json_row),
    "csv": _to_csv, "conll": partial(_to_conll, format="columns"), "conllu": partial(_to_conll, format="conllu"),
}  # fmt: skip


def write_predictions(
    pipeline: Any, location: str, out: Path | None = None, *, to: str, format: str | None = None,
    encoding: str = "utf-8", offsets: str | None = None, overwrite: bool = False, output_encoding: str | None = None,
) -> Iterable[str]:  # fmt: skip
    """Write the predictions for texts in a format of annotation tools, and return the lines for stdout.

    Args:
        pipeline: A tagger or a classifier.
        location: The location of the texts.
        out: A file, or for brat a folder; None writes to stdout, or for brat to the folders of the texts.
        to: The format to write, one of the extension's `writers`.
        format: The format of the texts; None to detect it.
        encoding: The encoding of the texts.
        offsets: A key of `UNITS`; None is UTF-16 for Label Studio, and characters for other formats.
        overwrite: Whether existing files may be replaced.
        output_encoding: The encoding of a text file `out`; None is UTF-8.

    Raises:
        EnsueError: The model, the texts or `offsets` do not fit the format.
    """
    if output_encoding and to in ("brat", "docbin"):
        raise EnsueError(f"--to {to} cannot be combined with --output-encoding")
    if out is not None and to != "brat":
        check_outputs([location, pipeline.run or ""], files=[out], overwrite=overwrite)
        check_suffix(out, "--to", to)
    offsets = offsets or ("utf-16" if to == "label-studio" else "characters")
    if offsets not in UNITS:
        raise EnsueError(f"--offsets {offsets}: expected one of {', '.join(UNITS)}")
    if to in ("csv", "jsonl") and hasattr(pipeline, "answer_rows"):
        return _write_text(row_lines(to, pipeline.answer_rows(location, encoding)), out, output_encoding)
    if isinstance(pipeline, CutterPipeline) or not isinstance(pipeline, ClassificationPipeline | LabelingPipeline):
        raise EnsueError(
            "--to is for taggers and classifiers, --to csv or jsonl also for models of frames; other models have --json"
        )
    if to in ("brat", "conll", "conllu") and isinstance(pipeline, ClassificationPipeline):
        raise EnsueError(f"--to {to} is for taggers; expected csv, jsonl, doccano or label-studio for a classifier")
    if isinstance(pipeline.labels, LabelColumns) and to not in ("conll", "conllu", "csv", "jsonl"):
        columns = ", ".join(pipeline.labels.names)
        raise EnsueError(f"--to {to} needs one label per word; the model has {columns}; use conll, conllu, csv, jsonl")
    if (to == "brat" and offsets != "characters") or (to == "docbin" and out is None):
        raise EnsueError(f"--to {to} needs --{'offsets characters' if to == 'brat' else 'out FILE.spacy'}")
    lines = stream_lines(location, encoding) if is_stream(location) else location
    source: Any = pipeline.source(lines, format=format, encoding=encoding, is_labeled=False)
    predicted = predict_texts(pipeline, source, encoding, UNITS[offsets])
    if to == "brat":
        _write_brat(source, predicted, out, overwrite, encoding)
        return ()
    if to == "docbin" and out is not None:
        _write_docbin(pipeline, source, predicted, out)
        return ()
    return _write_text(TEXT_FORMATS[to](pipeline, source, predicted), out, output_encoding)


def _write_text(lines: Iterable[str], out: Path | None, encoding: str | None) -> Iterable[str]:
    """Write lines to the file `out`, or return them if it is None. With an `encoding`, byte order marks are removed."""
    if out is None:
        return lines
    errors = "strict" if encoding else "backslashreplace"
    with atomic_output(out) as path, path.open("w", encoding=encoding or "utf-8", errors=errors, newline="") as file:
        file.writelines(line.removeprefix(BOM) if encoding else line for line in lines)
    return ()
