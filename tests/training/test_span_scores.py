"""Gold spans in a file change neither words nor predictions, and scores of spans are those of characters.

All forms of files with spans of characters are tested. The oracle compares characters, not words.
"""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ensue.console.tables import show_scores
from ensue.data.row_files import PARQUET
from ensue.data.row_formats import ROW_SUFFIXES
from ensue.data.sentences import json_sentences
from ensue.data.sentences.json_sentences import PlacedSpan
from ensue.data.sentences.sentence import Format
from ensue.data.sentences.source import FORMATS, format_class
from ensue.library import load
from ensue.tasks.labeling.job import LabelingJob
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.text.schemes import convert
from ensue.text.tokens import SPLITTERS, Token
from training.tiny import run_tiny
from training.tiny_texts import json_spans, sentences, tagging

Place = tuple[int, int, str]
KEYS = {"spans": "LOC", "entities": "PER"}
"""The classes of two columns of spans."""


class Gold(NamedTuple):
    """A text and its gold spans."""

    text: str
    spans: list[Place]


def gold(count: int, *, seed: int = 0) -> list[Gold]:
    """Return texts with names; some names have a suffix, and some touch another name inside of a word."""
    texts = []
    for number, line in enumerate(json_spans(sentences(count, seed=seed)).splitlines()):
        row = json.loads(line)
        text, spans = row["text"], [(span["start"], span["end"], span["label"]) for span in row["spans"]]
        if spans and number % 3 == 1:  # a suffix of the first name
            start, end, label = spans[0]
            text = f"{text[:end]}'da{text[end:]}"
            spans = [(start, end, label), *((a + 3, b + 3, name) for a, b, name in spans[1:])]
        if number % 5 == 2:  # a word of two names
            spans += [(len(text) + 1, len(text) + 5, "LOC"), (len(text) + 5, len(text) + 9, "PER")]
            text += " LimaAnna"
        texts.append(Gold(text, spans))
    return texts


def json_rows(rows: Sequence[Gold], write: Callable[[Place], Any], key: str) -> str:
    return "".join(json.dumps({"text": one.text, key: [write(span) for span in one.spans]}) + "\n" for one in rows)


def as_object(span: Place) -> dict[str, Any]:
    return dict(zip(("start", "end", "label"), span, strict=True))


def as_brat(rows: Sequence[Gold], folder: Path) -> Path:
    """Write the texts in the format of brat; the last span of some lines continues in the next line."""
    text, spans = "", []
    for number, one in enumerate(rows):
        spans += [(len(text) + a, len(text) + b, label) for a, b, label in one.spans]
        if spans and number % 3 == 0 and number + 1 < len(rows) and not (rows[number + 1].spans or [(9,)])[0][0] < 4:
            a, _, label = spans.pop()
            spans.append((a, len(text) + len(one.text) + 3, label))
        text += one.text + "\n"
    folder.mkdir()
    (folder / "a.txt").write_text(text)
    lines = (f"T{n}\t{label} {a} {b}\t{text[a:b]!r}\n" for n, (a, b, label) in enumerate(spans))
    (folder / "a.ann").write_text("".join(lines))
    return folder / "a.ann"


def as_task(one: Gold) -> dict[str, Any]:
    values = [{"start": a, "end": b, "text": one.text[a:b], "labels": [label]} for a, b, label in one.spans]
    result = [{"type": "labels", "from_name": "label", "to_name": "text", "value": value} for value in values]
    return {"data": {"text": one.text}, "annotations": [{"result": result}]}


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


FORMS: dict[str, Callable[[Sequence[Gold], Path], Path]] = {
    "objects": lambda rows, path: _written(path / "a.jsonl", json_rows(rows, as_object, "spans")),
    "lists": lambda rows, path: _written(path / "a.jsonl", json_rows(rows, list, "label")),
    "entities": lambda rows, path: _written(path / "a.jsonl", json_rows(rows, list, "entities")),
    "array": lambda rows, path: _written(path / "a.json", json.dumps(rows_of(json_rows(rows, list, "label")))),
    "brat": lambda rows, path: as_brat(rows, path / "brat"),
    "Label Studio": lambda rows, path: _written(path / "a.json", json.dumps(list(map(as_task, rows)))),
}


def test_forms_has_all_formats_with_spans() -> None:
    """spaCy's documents, which have tokens, are no such format."""
    assert {name for name in FORMATS if format_class(name).text_spans is not Format.text_spans} == {"json"}
    assert {".ann"} == {*ROW_SUFFIXES} - {*PARQUET}


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> LabelingPipeline:
    folder = tmp_path_factory.mktemp("spans")
    (folder / "train.jsonl").write_text(json_rows(gold(150, seed=1), as_object, "spans"))
    recipe = tagging(folder / "train.jsonl", head={"kind": "crf"}, features={"affixes": 3}, steps=40)
    run_tiny(recipe, folder / "run")
    return load(folder / "run", device="cpu", kind=LabelingPipeline)


def spans_of(spans: Sequence[Any]) -> set[Place]:
    """Return the spans in the value of a row's key."""
    return {tuple(span) if isinstance(span, list | tuple) else tuple(span.values())[:3] for span in spans}


def places(rows: Sequence[dict[str, Any]]) -> list[set[Place]]:
    """Return the spans in each row that a tagger has written."""
    return [spans_of(next(row[key] for key in ("spans", "label", "entities") if key in row)) for row in rows]


def rows_of(lines: str) -> list[dict[str, Any]]:
    content = json.loads(lines) if lines.startswith("[") else [json.loads(line) for line in lines.splitlines()]
    return list(content)


class Predicted(NamedTuple):
    """Texts with gold spans, and the words and spans that the tagger predicts without these."""

    rows: list[Gold]
    words: list[set[tuple[int, int]]]
    bare: list[set[Place]]


@pytest.fixture(scope="module")
def known(tagger: LabelingPipeline) -> Predicted:
    rows = gold(60, seed=2)
    sentences_of_tagger = list(tagger.predict([row.text for row in rows]))
    spans = [{(s.start, s.end, s.label) for s in one.spans} for one in sentences_of_tagger]
    return Predicted(rows, [{(w.start, w.end) for w in one} for one in sentences_of_tagger], spans)


def test_predictions_of_files_equal_those_of_lists(tagger: LabelingPipeline, known: Predicted, tmp_path: Path) -> None:
    (tmp_path / "bare.jsonl").write_text("".join(json.dumps({"text": one.text}) + "\n" for one in known.rows))
    assert places(rows_of("".join(tagger.prediction_lines(str(tmp_path / "bare.jsonl"))))) == known.bare


ODD = ["\ufeff", "\n", "\r\n", "\r", "\u2028", "\u200b", "\x00", "\u0301", "\u200d", "\t", "\u00a0", "\U0001f468", " "]
"""Characters that files, lines, splitters or alphabets treat specially."""


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_offsets_refer_to_the_text_of_the_caller(splitter: str, tagger: LabelingPipeline, tmp_path: Path) -> None:
    """Texts are strings, or rows of a file, and may begin with a byte order mark."""
    tagger = tagger.with_splitter(splitter)
    texts = [
        text for odd in ODD for text in (f"{odd}Anna sees Lima", f"Anna{odd}sees {odd}Lima", f"Anna sees Lima{odd}")
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    rows = places(rows_of("".join(tagger.prediction_lines(str(tmp_path / "a.jsonl")))))
    for text, answer, row in zip(texts, tagger.predict(texts), rows, strict=True):
        assert [text[word.start : word.end] for word in answer] == [word.text for word in answer], text
        assert {(span.start, span.end, span.label) for span in answer.spans} == row, text
        assert answer.text == text.replace("\n", " ").removesuffix("\r"), text


@pytest.mark.parametrize("form", FORMS)
def test_gold_spans_change_no_prediction_and_scores_are_those_of_characters(
    form: str, tagger: LabelingPipeline, known: Predicted, tmp_path: Path
) -> None:
    rows, bare = known.rows, known.bare
    path = FORMS[form](rows, tmp_path)
    assert places(rows_of("".join(tagger.prediction_lines(str(path))))) == bare
    right = [{*one.spans} for one in rows]
    if form == "brat":  # some spans continue in the next line
        right = [{*spans} for spans in _brat_lines(path, rows)]
    scores = tagger.evaluate(path)
    correct = sum(len(a & b) for a, b in zip(right, bare, strict=True))
    num_gold, num_predicted = sum(map(len, right)), sum(map(len, bare))
    assert scores.f1 == pytest.approx(2 * correct / (num_gold + num_predicted))
    assert 0.3 < scores.f1 < 0.95
    misses = sum(
        not ({a for a, _ in words} >= {start} and {b for _, b in words} >= {end})
        for words, spans in zip(known.words, right, strict=True)
        for start, end, _ in spans
    )
    assert scores.misaligned == misses > 10


def _brat_lines(path: Path, rows: Sequence[Gold]) -> list[list[Place]]:
    """Return the spans of the file for the line in which each begins."""
    spans = [line.split("\t")[1].split() for line in path.read_text().splitlines()]
    spans_of_lines: list[list[Place]] = [[] for _ in rows]
    starts = [sum(len(one.text) + 1 for one in rows[:number]) for number in range(len(rows))]
    for label, a, b in spans:
        number = max(number for number, start in enumerate(starts) if start <= int(a))
        spans_of_lines[number].append((int(a) - starts[number], int(b) - starts[number], label))
    return spans_of_lines


def test_scores_of_training_equal_those_of_evaluate(tagger: LabelingPipeline, tmp_path: Path) -> None:
    """Spans inside of words count as misses in validation and test data, too, with a note."""
    rows = gold(60, seed=2)
    path = FORMS["objects"](rows, tmp_path)
    recipe = tagging(path, head={"kind": "crf"}, data={"test": str(path), "valid": str(path)})
    job = LabelingJob(recipe)
    model = job.build_model()
    scores = job.test(model)
    assert scores is not None
    assert scores.misaligned == tagger.evaluate(path).misaligned
    assert sum(label.support for label in scores.per_label.values()) == sum(len(one.spans) for one in rows)
    (note,) = [note for note in job.notes if "inside of a word" in note]
    assert "learned as the words that they touch, and count as misses" in note


def test_the_message_about_misaligned_spans_names_a_command(
    tagger: LabelingPipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = FORMS["objects"](gold(60, seed=2), tmp_path)
    show_scores(tagger.evaluate(path))
    assert f": they count as misses; ensue data {path} shows the likely reason\n" in capsys.readouterr().out


def test_words_split_at_gold_spans_are_detected(
    tagger: LabelingPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug is the behavior before 2026-11-28."""
    original = json_sentences.JsonSentences._spans

    def cut(self: Any, record: Any, key: str) -> tuple[list[Token], dict[str, list[PlacedSpan]]]:
        words, spans_by_name = original(self, record, key)
        borders = {place for spans in spans_by_name.values() for one in spans for place in one.source[:2]}
        pieces = []
        for word in words:
            ends = [word.start, *sorted(b for b in borders if word.start < b < word.end), word.end]
            pieces += [Token(record[key][a:b], a, b) for a, b in pairwise(ends)]
        sources = {name: [one.source for one in spans] for name, spans in spans_by_name.items()}
        return pieces, {name: json_sentences.place_spans(one, pieces, nested=False) for name, one in sources.items()}

    monkeypatch.setattr(json_sentences.JsonSentences, "_spans", cut)
    path = FORMS["objects"](gold(60, seed=2), tmp_path)
    assert tagger.evaluate(path).misaligned == 0


@pytest.mark.parametrize("scheme", ["bio", "iobes", "iob1", "bilou", "ioe2"])
def test_accuracy_compares_labels_in_one_scheme(scheme: Any, tagger: LabelingPipeline, tmp_path: Path) -> None:
    """The model predicts bio. A file with these predictions in another scheme has perfect scores."""
    texts = [one.text for one in gold(40, seed=3)]
    lines = []
    for answer in tagger.predict(texts):
        labels = convert(answer.labels, scheme)
        lines.append("".join(f"{word.text}\t{label}\n" for word, label in zip(answer, labels, strict=True)) + "\n")
    (tmp_path / "a.txt").write_text("".join(lines))
    scores = tagger.evaluate(tmp_path / "a.txt", format="columns")
    assert (scores.accuracy, scores.f1) == (1.0, 1.0)
    assert tagger.scored_items(tmp_path / "a.txt", format="columns").compute() == {"accuracy": 1.0, "f1": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("data", [{"nested": 2}, {"labels": ["spans", "entities"]}], ids=["nested", "columns"])
def test_overlapping_gold_spans_or_several_columns_change_no_prediction(data: dict[str, Any], tmp_path: Path) -> None:
    lines = []
    for one in gold(120, seed=4):
        more = [(a, max(b, c), "PAIR") for (a, b, _), (_, c, _) in pairwise(one.spans)]
        if "nested" in data:
            lines.append({"text": one.text, "spans": sorted({*one.spans, *more})})
        else:
            parts = {key: [span for span in one.spans if span[2] == name] for key, name in KEYS.items()}
            lines.append({"text": one.text, **parts})
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "bare.jsonl").write_text("".join(json.dumps({"text": line["text"]}) + "\n" for line in lines))
    run_tiny(tagging(tmp_path / "a.jsonl", head={"kind": "crf"}, data=data, steps=60), tmp_path / "run")
    tagger = load(tmp_path / "run", device="cpu")
    labeled, bare = (
        rows_of("".join(tagger.prediction_lines(str(tmp_path / f"{name}.jsonl")))) for name in ("a", "bare")
    )
    scores = tagger.evaluate(tmp_path / "a.jsonl")
    for key in KEYS if "labels" in data else ["spans"]:
        predicted, gold_spans = ([spans_of(row[key]) for row in rows] for rows in (bare, lines))
        assert [spans_of(row[key]) for row in labeled] == predicted
        correct = sum(len(a & b) for a, b in zip(gold_spans, predicted, strict=True))
        total = sum(map(len, (*gold_spans, *predicted)))
        f1 = scores.per_label[key].f1 if "labels" in data else scores.f1
        assert 0.1 < f1 == pytest.approx(2 * correct / total)
