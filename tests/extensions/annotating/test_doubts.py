"""Labels that are likely wrong: planted errors rank first, and only accepted labels change in the file."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ensue.data.examples import DocumentSource
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, EnsueError
from ensue.extensions.annotating.doubts import Doubts, doubt, rank_doubts
from ensue.extensions.annotating.examples import Doubt, TaggedExamples, edit_between
from ensue.library import load
from ensue.recipe import Recipe, read_recipe
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.text.schemes import overlapping_spans
from inspection.browser import browsing
from kept_runs.make import unpacked

WORDS = {"pos": ["good", "great", "fine", "lovely", "nice"], "neg": ["bad", "awful", "poor", "ugly", "sad"]}
SMALL = ["head.ngram_buckets=500", "train.epochs=3"]
QUICK = [
    "features.d_words=16", "encoder.d_model=16", "train.epochs=12", "train.batch_tokens=80",
    "train.learning_rate=0.01", "train.validations=1", "features.affixes=0",
]  # fmt: skip
WRONG = {7, 50, 120}


def write_texts(path: Path) -> None:
    """Write a table whose rows `WRONG` have wrong labels, with a header, blank lines and Windows line ends."""
    draw, rows = Random(0), ["label\ttext\r\n"]
    for number in range(200):
        label = draw.choice(["pos", "neg"])
        words = " ".join(draw.choices(WORDS[label], k=5))
        written_label = {"pos": "neg", "neg": "pos"}[label] if number in WRONG else label
        rows.append(f"{written_label}\t{words} {number} 😀\r\n" + "\r\n" * (number % 50 == 0))
    path.write_text("".join(rows), encoding="utf-8", newline="")


def write_sentences(path: Path, form: str) -> None:
    draw, parts = Random(0), []
    for number in range(160):
        words = [draw.choice(["Anna", "Bo", "Cid"]), "sees", draw.choice(["Lima", "Rome", "Bonn"]), str(number)]
        labels = ["B-LOC" if number in WRONG else "B-PER", "O", "B-LOC", "O"]
        if form == "columns":
            parts.append("".join(f"{word} X {label}\n" for word, label in zip(words, labels, strict=True)) + "\n")
        else:
            parts.append(json.dumps({"words": words, "tags": labels, "id": number}, separators=(",", ":")) + "\n")
    path.write_text("".join(parts))


def check_repaired(doubts: Doubts, path: Path) -> None:
    """Without accepted doubts the file is unchanged; with all doubts accepted, only the doubted labels change."""
    before = path.read_bytes().decode()
    assert doubts.repaired([False] * len(doubts.ranked)).replace('": ', '":').replace('", "', '","') == before
    after = doubts.repaired([True] * len(doubts.ranked))
    path.write_text(after, encoding="utf-8", newline="")
    changed = [(a, b) for a, b in zip(before.split("\n"), after.split("\n"), strict=True) if a != b]
    of_words = sum(len(each.given) for each in doubts.ranked)
    assert len(changed) == (of_words if path.suffix == ".conll" else len({each.line for each in doubts.ranked}))


@pytest.mark.slow
def test_wrong_labels_of_texts_rank_first(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    write_texts(path)
    doubts = doubt(path, settings=SMALL, folds=2, threads=1)
    assert {int(each.text.split()[5]) for each in doubts.ranked[:3]} == WRONG
    assert doubts.num_labels == 200
    assert all(each.given != each.proposed for each in doubts.ranked)
    rows = [line.rstrip("\n").split("\t") for line in doubts.lines("tsv")]
    assert rows[0] == ["place", "probability", "given", "proposed", "text"]
    assert [row["probability"] for row in map(json.loads, doubts.lines("jsonl"))] == sorted(
        round(each.probability, 6) for each in doubts.ranked
    )
    again = doubt(path, settings=SMALL, folds=2, threads=1)
    assert again == doubts
    check_repaired(doubts, path)
    now = {int(d.texts[0].split()[5]): d.labels[0] for d in DocumentSource(str(path))}
    assert all(now[int(each.text.split()[5])] == each.proposed[0] for each in doubts.ranked)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "name"), [("columns", "a.conll"), ("json", "a.jsonl")])
def test_wrong_labels_of_sentences_rank_first(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / name
    write_sentences(path, form)
    doubts = doubt(path, settings=QUICK, recipe="tag-lstm-crf", folds=2, threads=1)
    first = doubts.ranked[:3]
    assert {int(each.text.split()[3]) for each in first} == WRONG
    assert {(each.given, each.proposed, each.start) for each in first} == {(("B-LOC",), ("B-PER",), 0)}
    check_repaired(doubts, path)
    source = SentenceSource(path)
    assert {source.format.labels(sentence)[0] for sentence in source} == {"B-PER"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("form", "name"), [("columns", "a.conll"), ("json", "a.jsonl")])
def test_accepting_all_doubts_gives_the_labels_of_the_model(tmp_path: Path, form: str, name: str) -> None:
    """A model that was trained on other data differs in many words, so many changes are made at once."""
    unpacked("tag-lstm-crf", tmp_path)
    path = tmp_path / name
    write_sentences(path, form)
    pipeline = load(tmp_path / "tag-lstm-crf", kind=LabelingPipeline)
    examples = TaggedExamples(read_recipe("tag-lstm-crf", train=str(path)))
    doubts = rank_doubts(str(path), examples, list(examples.doubts(pipeline, range(160))))
    assert len(doubts.ranked) > 100
    probabilities = [each.probability for each in doubts.ranked]
    assert probabilities == sorted(probabilities), "the least probable label is the first"
    check_repaired(doubts, path)
    source = SentenceSource(path)
    assert [source.format.labels(sentence) for sentence in source] == [
        tuple(labels) for _, labels, *_ in pipeline.label(source)
    ]


def test_accepting_all_doubts_gives_the_overlapping_spans_of_the_model(tmp_path: Path) -> None:
    """The labels of the file have another scheme than those of the model, and several tags per word."""
    unpacked("tag-nested", tmp_path)
    path = tmp_path / "a.conll"
    labels = ["B-NP|B-PER", "E-NP|E-PER", "O", "B-NP", "I-NP", "I-NP", "I-NP", "E-NP|S-NP+|S-PER"]
    rows = zip(["Anna", "Novak", "sees", "the", "old", "house", "of", "Lima"], labels, strict=True)
    path.write_text(("".join(f"{word} {label}\n" for word, label in rows) + "\n") * 3)
    pipeline = load(tmp_path / "tag-nested", kind=LabelingPipeline)
    examples = TaggedExamples(read_recipe("tag-nested", train=str(path)))
    doubts = rank_doubts(str(path), examples, list(examples.doubts(pipeline, range(3))))
    assert len(doubts.ranked) >= 3
    assert doubts.repaired([False] * len(doubts.ranked)) == path.read_text()
    path.write_text(doubts.repaired([True] * len(doubts.ranked)))
    source = pipeline.source(path)
    read = [set(overlapping_spans(source.format.labels(sentence))) for sentence in source]
    assert read == [set(overlapping_spans(labels)) for _, labels, *_ in pipeline.label(source)]
    assert {letter for each in doubts.ranked for label in each.proposed for letter in label[:1]} == set("BIES")


def test_an_edit_turns_the_old_text_into_the_new_text() -> None:
    for old, new in [("a B-LOC\n", "a B-PER\n"), ("x", "x"), ("aa", "aaa"), ("O", "B-O-O"), ("", "ab")]:
        start, end, put = edit_between(old, new)
        assert old[:start] + put + old[end:] == new


NAMES = ["Anna", "Bo", "Cid", "Dee", "Eve", "Fay"]


def document(form: str, text: str, labels: list[str]) -> str:
    """Return a document of an annotation tool, in which each name with a label is a span."""
    places = [
        (text.index(name), text.index(name) + len(name), label) for name, label in zip(NAMES, labels, strict=True)
    ]
    spans = [place for place in places if place[2] != "O"]
    if form == "doccano":
        return json.dumps({"id": 1, "text": text, "label": spans}) + "\n"
    result = [
        {"type": "labels", "from_name": "label", "to_name": "text", "value": {"start": a, "end": b, "labels": [label]}}
        for a, b, label in spans[::-1]
    ]
    return json.dumps([{"id": 1, "data": {"text": text}, "annotations": [{"id": 2, "result": result}]}])


@pytest.mark.parametrize("form", ["doccano", "label-studio"])
def test_doubts_of_a_document_are_accepted_one_by_one(form: str, tmp_path: Path) -> None:
    """Each choice of doubts changes these labels only. Words that are far apart are separate doubts."""
    text, draw, counts = " and then ".join(NAMES), Random(0), []
    path = tmp_path / ("a.jsonl" if form == "doccano" else "a.json")
    for _ in range(30):
        old_labels, new_labels = ([draw.choice(["O", "PER", "LOC"]) for _ in NAMES] for _ in range(2))
        old_labels[0] = new_labels[0] = "PER"
        path.write_text(document(form, text, old_labels))
        examples = TaggedExamples(read_recipe("tag-lstm-crf", train=str(path)))
        (sentence,) = examples.sentences
        proposed = ["O"] * len(sentence.words)
        proposed[::3] = [label if label == "O" else f"B-{label}" for label in new_labels]
        places = [place for place, label in enumerate(examples.labels[0]) if label != proposed[place]]
        doubts = rank_doubts(
            str(path), examples,
            [(0, each) for each in examples._make_doubts(sentence, 0, proposed, [0.5] * len(proposed), places)],
        )  # fmt: skip
        counts.append((len(doubts.ranked), len(places)))
        accepted = [draw.random() < 0.5 for _ in doubts.ranked]
        path.write_text(doubts.repaired(accepted))
        (read,) = TaggedExamples(read_recipe("tag-lstm-crf", train=str(path))).labels
        changed = {n for doubt, yes in zip(doubts.ranked, accepted, strict=True) if yes for n, name in enumerate(NAMES)
                   if doubt.start <= text.index(name) < doubt.end}  # fmt: skip
        mixed = [new_labels[n] if n in changed else old_labels[n] for n in range(len(NAMES))]
        assert [label[2:] or "O" for label in read[::3]] == mixed
    assert sum(doubts for doubts, _ in counts) > 0.6 * sum(places for _, places in counts)


def test_a_quick_tagger_of_few_words_has_more_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, budgets = tmp_path / "a.conll", []

    def stopped(recipe: Recipe, *_: object, **__: object) -> None:
        budgets.append((recipe.train.epochs, recipe.train.steps))
        raise DataError("stopped")

    monkeypatch.setattr("ensue.extensions.annotating.doubts.train_run", stopped)
    write_sentences(path, "columns")
    longer = path.read_text() * 20
    for content, settings in (
        (path.read_text(), {}), (longer, {}), (longer * 4, {}),
        (longer, {"train.epochs": 3}), (longer, {"train.steps": 2}),
    ):  # fmt: skip
        path.write_text(content)
        with pytest.raises(DataError, match="stopped"):
            doubt(path, settings=settings)
    assert budgets == [(25, None), (10, None), (5, None), (3, None), (None, 2)]


def test_data_and_recipes_that_cannot_be_examined_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("It rains in Spain today.\nAnd so on and on.\n")
    with pytest.raises(EnsueError, match="read as text; expected labeled sentences or texts"):
        doubt(tmp_path / "a.txt")
    with pytest.raises(
        EnsueError, match="found the recipe of a language model; expected the recipe of a classifier or tagger"
    ):
        doubt(tmp_path / "a.txt", recipe="char-lstm")
    (tmp_path / "a.tsv").write_text("label\ttext\np\ta\np\ta\nn\tb\n")
    with pytest.raises(DataError, match="2 distinct examples for 4 folds"):
        doubt(tmp_path / "a.tsv")
    with pytest.raises(DataError, match=r"^the data: fold 1 of 2: nothing to learn: all 2 texts have the label"):
        doubt([("a", "p"), ("b", "n")] * 2, folds=2)
    with pytest.raises(EnsueError, match="folds is 1; expected a whole number from 2"):
        doubt(tmp_path / "a.tsv", folds=1)


def test_a_page_shows_an_excerpt_of_a_long_sentence() -> None:
    """Otherwise a page of a thousand doubts in one sentence would repeat the sentence a thousand times."""
    text, edit = "left " * 20_000 + "Anna" + " right" * 20_000, edit_between("O", "B-PER")
    doubt_of_name = Doubt("a.txt", 1, text, 100_000, 100_004, ("O",), ("B-PER",), 0.1, edit)
    page = Doubts("a.txt", "words", 1, [doubt_of_name], ["", ""], [0], ["O"]).page()
    assert "left <mark>Anna</mark> right" in page
    assert page.count("left ") < 200 > page.count(" right")


@pytest.mark.slow
def test_the_page_saves_the_repaired_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    write_texts(path)
    doubts = doubt(path, settings=SMALL, folds=2, threads=1)
    (tmp_path / "a.html").write_text(doubts.page(), encoding="utf-8")
    script = """
        URL.createObjectURL = blob => { window.saved = blob; return "#"; };
        HTMLAnchorElement.prototype.click = function () { window.name_of_file = this.download; };
        for (const place of arguments[0]) document.querySelector(`input[name=d${place}][value=accept]`).click();
        document.querySelector("input[name=d1][value=keep]").click();
        document.querySelector("button.save").click();
        return window.saved.text();
    """
    with browsing(tmp_path / "profile") as browser:
        browser.open(tmp_path / "a.html")
        assert browser.run(script, [0, 2]) == doubts.repaired([place in (0, 2) for place in range(len(doubts.ranked))])
        assert browser.run("return window.name_of_file") == "a.tsv"
        assert browser.text(".state") == "2 accepted, 1 kept"


def test_the_quick_recipe_of_few_texts_is_linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except with settings of another recipe, with pairs of texts, and with many texts."""

    class Stopped(Exception):
        pass

    def quick_recipe(rows: list[tuple[str, ...]], **options: Any) -> str:
        with pytest.raises(Stopped) as stopped:
            doubt(rows, **options)
        return str(stopped.value)

    def stop(recipe: Any, *arguments: Any, **options: Any) -> None:
        raise Stopped("linear" if recipe.head.solver == "lbfgs" else "bag")

    monkeypatch.setattr("ensue.extensions.annotating.doubts.train_run", stop)
    rows: list[tuple[str, ...]] = [(f"a day {number}", "good" if number % 2 else "bad") for number in range(8)]
    assert quick_recipe(rows) == "linear"
    assert quick_recipe(rows, settings={"train.epochs": 2}) == quick_recipe(rows, recipe="classify-bag") == "bag"
    assert quick_recipe([("a day", *row) for row in rows]) == "bag"
    monkeypatch.setattr("ensue.extensions.annotating.doubts.MAX_LINEAR_TEXTS", 7)
    assert quick_recipe(rows) == "bag"
