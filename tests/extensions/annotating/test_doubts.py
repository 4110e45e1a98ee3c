"""Labels that are likely wrong: planted mistakes are found, and the file is as it was but for what is accepted."""

import json
from pathlib import Path
from random import Random

import pytest

from ensue.data.examples import DocumentSource
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, EnsueError
from ensue.extensions.annotating.doubts import Doubts, doubt, ranked
from ensue.extensions.annotating.examples import Doubt, TaggedExamples, edit_between
from ensue.library import load
from ensue.recipe import read_recipe
from ensue.tasks.labeling.pipeline import LabelingPipeline
from inspection.browser import browsing
from kept_runs.make import unpacked

WORDS = {"pos": ["good", "great", "fine", "lovely", "nice"], "neg": ["bad", "awful", "poor", "ugly", "sad"]}
SMALL = ["head.ngram_buckets=500", "train.epochs=3"]
QUICK = [
    "features.d_words=16",
    "encoder.d_model=16",
    "train.epochs=12",
    "train.batch_tokens=80",
    "train.learning_rate=0.01",
    "train.validations=1",
    "features.affixes=0",
]
WRONG = {7, 50, 120}


def texts(path: Path) -> None:
    """A table with `WRONG` rows, and with a title, blank lines and line ends of another system."""
    draw, rows = Random(0), ["label\ttext\r\n"]
    for number in range(200):
        label = draw.choice(["pos", "neg"])
        words = " ".join(draw.choices(WORDS[label], k=5))
        said = {"pos": "neg", "neg": "pos"}[label] if number in WRONG else label
        rows.append(f"{said}\t{words} {number} 😀\r\n" + "\r\n" * (number % 50 == 0))
    path.write_text("".join(rows), encoding="utf-8", newline="")


def sentences(path: Path, form: str) -> None:
    draw, parts = Random(0), []
    for number in range(160):
        words = [draw.choice(["Anna", "Bo", "Cid"]), "sees", draw.choice(["Lima", "Rome", "Bonn"]), str(number)]
        labels = ["B-LOC" if number in WRONG else "B-PER", "O", "B-LOC", "O"]
        if form == "columns":
            parts.append("".join(f"{word} X {label}\n" for word, label in zip(words, labels, strict=True)) + "\n")
        else:
            parts.append(json.dumps({"words": words, "tags": labels, "id": number}, separators=(",", ":")) + "\n")
    path.write_text("".join(parts))


def check_repaired(found: Doubts, path: Path) -> None:
    """Nothing accepted is the file; all accepted changes the doubted labels and nothing else."""
    before = path.read_bytes().decode()
    assert found.repaired([False] * len(found.ranked)).replace('": ', '":').replace('", "', '","') == before
    after = found.repaired([True] * len(found.ranked))
    path.write_text(after, encoding="utf-8", newline="")
    changed = [(a, b) for a, b in zip(before.split("\n"), after.split("\n"), strict=True) if a != b]
    of_words = sum(len(each.given) for each in found.ranked)
    assert len(changed) == (of_words if path.suffix == ".conll" else len({each.line for each in found.ranked}))


@pytest.mark.slow
def test_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    texts(path)
    found = doubt(path, settings=SMALL, folds=2, threads=1)
    assert {int(each.text.split()[5]) for each in found.ranked[:3]} == WRONG
    assert found.num_labels == 200
    assert all(each.given != each.proposed for each in found.ranked)
    rows = [line.rstrip("\n").split("\t") for line in found.table_lines()]
    assert rows[0] == ["place", "probability", "given", "proposed", "text"]
    assert [row["probability"] for row in map(json.loads, found.json_lines())] == sorted(
        round(each.probability, 6) for each in found.ranked
    )
    again = doubt(path, settings=SMALL, folds=2, threads=1)
    assert again == found
    check_repaired(found, path)
    now = {int(d.texts[0].split()[5]): d.labels[0] for d in DocumentSource(str(path))}
    assert all(now[int(each.text.split()[5])] == each.proposed[0] for each in found.ranked)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "name"), [("columns", "a.conll"), ("json", "a.jsonl")])
def test_sentences(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / name
    sentences(path, form)
    found = doubt(path, settings=QUICK, recipe="tag-lstm-crf", folds=2, threads=1)
    first = found.ranked[:3]
    assert {int(each.text.split()[3]) for each in first} == WRONG
    assert {(each.given, each.proposed, each.start) for each in first} == {(("B-LOC",), ("B-PER",), 0)}
    check_repaired(found, path)
    source = SentenceSource(path)
    assert {source.format.labels(sentence)[0] for sentence in source} == {"B-PER"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("form", "name"), [("columns", "a.conll"), ("json", "a.jsonl")])
def test_a_file_is_repaired(tmp_path: Path, form: str, name: str) -> None:
    """A model that knows nothing of these data differs in many words: all its changes fit together."""
    unpacked("tag-lstm-crf", tmp_path)
    path = tmp_path / name
    sentences(path, form)
    pipeline = load(tmp_path / "tag-lstm-crf", kind=LabelingPipeline)
    examples = TaggedExamples(read_recipe("tag-lstm-crf", train=str(path)))
    found = ranked(str(path), examples, list(examples.doubts(pipeline, range(160))))
    assert len(found.ranked) > 100
    probabilities = [each.probability for each in found.ranked]
    assert probabilities == sorted(probabilities), "the least probable label is the first"
    check_repaired(found, path)
    source = SentenceSource(path)
    assert [source.format.labels(sentence) for sentence in source] == [
        tuple(labels) for _, labels, *_ in pipeline.label(source)
    ]


def test_changes_of_texts() -> None:
    for old, new in [("a B-LOC\n", "a B-PER\n"), ("x", "x"), ("aa", "aaa"), ("O", "B-O-O"), ("", "ab")]:
        start, end, put = edit_between(old, new)
        assert old[:start] + put + old[end:] == new


def test_what_cannot_be_doubted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("It rains in Spain today.\nAnd so on and on.\n")
    with pytest.raises(EnsueError, match="read as text; labels of sentences or of texts are doubted"):
        doubt(tmp_path / "a.txt")
    with pytest.raises(
        EnsueError, match="doubt is for classifiers and taggers; the recipe is that of a language model"
    ):
        doubt(tmp_path / "a.txt", recipe="char-lstm")
    (tmp_path / "a.tsv").write_text("label\ttext\np\ta\np\ta\nn\tb\n")
    with pytest.raises(DataError, match="2 different examples for 4 folds"):
        doubt(tmp_path / "a.tsv")
    with pytest.raises(EnsueError, match="folds is 1; expected a whole number from 2"):
        doubt(tmp_path / "a.tsv", folds=1)


def test_a_page_shows_what_is_near_in_a_long_sentence() -> None:
    """A page of a thousand doubts in one sentence would have it a thousand times."""
    text, edit = "left " * 20_000 + "Anna" + " right" * 20_000, edit_between("O", "B-PER")
    found = Doubt("a.txt", 1, text, 100_000, 100_004, ("O",), ("B-PER",), 0.1, edit)
    page = Doubts("a.txt", "words", 1, [found], ["", ""], [0], ["O"]).page()
    assert "left <mark>Anna</mark> right" in page
    assert page.count("left ") < 200 > page.count(" right")


@pytest.mark.slow
def test_the_page_saves_the_repaired_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    texts(path)
    found = doubt(path, settings=SMALL, folds=2, threads=1)
    (tmp_path / "a.html").write_text(found.page(), encoding="utf-8")
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
        assert browser.run(script, [0, 2]) == found.repaired([place in (0, 2) for place in range(len(found.ranked))])
        assert browser.run("return window.name_of_file") == "a.tsv"
        assert browser.text(".state") == "2 accepted, 1 kept"
