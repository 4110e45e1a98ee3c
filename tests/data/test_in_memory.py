"""Data of a program in place of a file, and predictions as tables."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.cache import cached_files
from ensue.data.corpus.prepared import is_prepared
from ensue.data.examples import DocumentSource, PairSource
from ensue.data.files import as_location
from ensue.data.sentences.source import SentenceSource
from ensue.data.sources import TextSource
from ensue.errors import DataError, EnsueError, check_text_list, check_texts
from ensue.inspection.notebook import Answers, ShownScores
from ensue.notices import Notice
from ensue.recipe import read_recipe
from ensue.tasks.classification.pipeline import Classified

ROWS = [("a good day", "good"), ("a bad day", "bad")] * 3
DICTS = [{"text": text, "label": label} for text, label in ROWS]


class PandasTable:
    """The used interface of `pandas.DataFrame`."""

    columns, iloc = ("text", "label"), None

    def to_dict(self) -> dict[str, Any]:
        raise AssertionError

    def itertuples(self, *, index: bool, name: None) -> Iterator[tuple[str, str]]:
        return iter(ROWS)


class PolarsTable:
    """The used interface of `polars.DataFrame`."""

    columns = ("text", "label")

    def to_dicts(self) -> list[dict[str, str]]:
        return DICTS


class DataSet:
    """The used interface of `datasets.Dataset`, with a column of class numbers."""

    column_names = ("text", "label")
    features = SimpleNamespace(to_dict=lambda: {"label": {"_type": "ClassLabel", "names": ["bad", "good"]}})

    def to_dict(self) -> dict[str, Any]:
        raise AssertionError

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({"text": text, "label": int(label == "good")} for text, label in ROWS)


class NumpyDataSet(DataSet):
    """A data set in the format of numpy, whose numbers are not Python's."""

    def with_format(self, format: None) -> DataSet:
        return DataSet()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({**row, "label": np.int64(row["label"])} for row in super().__iter__())


@pytest.mark.parametrize(
    "data",
    [ROWS, DICTS, iter(ROWS), PandasTable(), PolarsTable(), DataSet(), NumpyDataSet()],
    ids=lambda data: type(data).__name__,
)
def test_labeled_texts_of_any_form_are_read(data: Any) -> None:
    assert [(*d.texts, *d.labels) for d in DocumentSource(as_location(data))] == ROWS


def test_pairs_and_sentences_of_a_program_are_read() -> None:
    assert [(*pair.sources, *pair.targets) for pair in PairSource(as_location(ROWS))] == ROWS
    words = (["Anna", "sees"], ["B-PER", "O"])
    source = SentenceSource(as_location([words] * 2))
    assert [(list(sentence.words), list(source.format.labels(sentence))) for sentence in source] == [words] * 2
    paired = SentenceSource(as_location([[*zip(*words, strict=True)]] * 2))
    assert [(list(sentence.words), list(paired.format.labels(sentence))) for sentence in paired] == [words] * 2
    two = DocumentSource(as_location([("a premise", "a hypothesis", "yes"), ("one more", "and one", "no")]))
    assert [(*d.texts, *d.labels) for d in two] == [("a premise", "a hypothesis", "yes"), ("one more", "and one", "no")]


def test_lists_of_texts_are_distinguished_from_lists_of_paths(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("x\n")
    texts = ["one text\nof two lines", "another text."]
    assert Path(as_location(texts)).read_text() == "one text\nof two lines\nanother text.\n"
    for paths in (["my data.csv", "more data.csv"], ["train", "test"], [str(tmp_path / "a b")], ["hf:a b", "*.txt"]):
        assert as_location(paths) == (paths[0] if len(paths) == 1 else '["{}", "{}"]'.format(*paths))


PLACES = ["old data of me", "data of me/train", "my data/part one", "a b.csv", "*.txt of b", "~/my data", "../my data"]
TEXTS = ["a good day", "Is it so?", "it costs 1.5", "~5 of them", "so. And\nso", "his/her own day", ".net is old stuff"]


def test_few_texts_are_distinguished_from_paths(tmp_path: Path, in_tmp_path: None) -> None:
    """Names that look like paths, or that exist, are paths. A notice says that few short lines are texts."""
    (tmp_path / "my data").mkdir()
    (tmp_path / "data of me").mkdir()
    for path in PLACES[1:]:
        assert as_location([path, path + "x"]) == json.dumps([path, path + "x"])
    with pytest.warns(Notice, match=r"^train: read as 2 texts, since no file has such a name$"):
        as_location(["old data of me", "new data of me"], "train")
    with pytest.warns(Notice, match=r"^the data: read as 2 texts, since no file has such a name$"):
        read = {text: as_location([text, text + " x"]) for text in TEXTS}
    assert [text for text, path in read.items() if not path.endswith(".txt")] == []
    for data in (iter(["my data"]), np.array(["my data", "x y"]), {"my data"}):
        with pytest.raises(TypeError, match=r"^train: my data is a file or folder; expected a list or tuple of paths"):
            as_location(data, "train")


@pytest.mark.filterwarnings("ignore:.*read as")
def test_rows_are_in_a_private_complete_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has a kind of the cache, so that it can be removed. A damaged file is written again."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path))
    for data, is_cached in ((ROWS, True), (ROWS, False), (["a text", "of two"], True)):
        path = Path(as_location(data, is_cached=is_cached))
        assert path.stat().st_mode & 0o777 == 0o600
        content = path.read_bytes()
        path.write_text("damaged")
        assert Path(as_location(data, is_cached=is_cached)).read_bytes() == content
    assert [entry.kind.noun for entry in cached_files()].count("data in memory") == 2


def test_the_data_of_a_run_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal rows are stored in one file, so that a run can be resumed."""
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path))
    paths = {Path(read_recipe("classify-bag", train=data).data.train) for data in (DICTS, PandasTable())}
    (path,) = tmp_path.glob("data/*.jsonl")
    assert paths == {path}
    assert "data" not in as_location(ROWS).split("/")


DEEP: list[Any] = []
for _ in range(10_000):
    DEEP = [DEEP]
ENDLESS: dict[str, Any] = {}
ENDLESS["a"] = ENDLESS
WRONG: list[tuple[Any, type[Exception], str]] = [
    (
        (["a", "b", "c", "d"], ["x", "y", "x", "y"]),
        TypeError,
        r"^the data is a tuple of two lists; expected a path, .* as in zip\(texts, labels\)",
    ),
    *[
        (([text for text, _ in ROWS[:count]], [label for _, label in ROWS[:count]]), TypeError, "a tuple of two lists")
        for count in (1, 2, 3)
    ],
    ((np.array(["a b", "c d"]), np.array(["x", "y"])), TypeError, "^the data is a tuple of two lists"),
    (5, TypeError, r'^the data is 5; expected a path, rows such as \("a text", "label"\)'),
    ([ROWS[0], 5], TypeError, r"^the data, row 2 \(\[1\]\): found 5; expected"),
    ({"text": "a"}, TypeError, "^the data is {'text': 'a'}; expected"),
    ([{"text": "a", "label": 10**5000}], EnsueError, r"^the data: a row with .* a number of more than 4,300 digits"),
    ([{"text": "a", "label": DEEP}], EnsueError, "^the data: a row with values nested more than 64 deep"),
    ([{"text": "a", "label": ENDLESS}], EnsueError, "^the data: a row with values nested more than 64 deep"),
    ({"text": ["a"], "label": []}, EnsueError, "^the data: columns of different lengths"),
    (iter(()), EnsueError, "^the data: no rows"),
    (SimpleNamespace(collect=None, columns=["text"]), TypeError, r"expected its rows by \.collect\(\)"),
]


MISSING = [
    ([*DICTS, {"text": "a", "label": None}], r"^valid, row 7 \(\[6\]\): no label"),
    ([*ROWS, (float("nan"), "good")], r'^valid, row 7 \(\[6\]\): "text" is null'),
    ([*ROWS, (None, "good")], r'^valid, row 7 \(\[6\]\): "text" is null'),
    (["a text of one", "a text of two"] * 9, r"^valid: texts without labels; expected rows such as"),
]


@pytest.mark.parametrize(("data", "message"), MISSING)
def test_messages_name_the_row(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        [*DocumentSource(as_location(data, "valid"))]


def test_arrays_and_columns_are_read_as_rows() -> None:
    for data in (np.array(ROWS), {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}):
        assert [(*d.texts, *d.labels) for d in DocumentSource(as_location(data))] == ROWS
    numbers = [(text, np.int64(label == "good")) for text, label in ROWS]
    assert [d.labels for d in DocumentSource(as_location(numbers))] == [("1",), ("0",)] * 3


def test_tables_of_pandas_and_polars_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors name rows by `.iloc`, whatever their index. A missing value is None."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(DICTS, index=range(7, 13))
    assert [(*d.texts, *d.labels) for d in DocumentSource(as_location(table))] == ROWS
    table.loc[8, "label"] = float("nan")
    with pytest.raises(DataError, match=r"^train, row 2 \(\.iloc\[1\]\): no label"):
        [*DocumentSource(as_location(table, "train"))]
    with pytest.raises(EnsueError, match=r"^train: two columns have the same name"):
        as_location(table.set_axis(["text", "text"], axis=1), "train")


@pytest.mark.parametrize(("data", "kind", "message"), WRONG)
def test_other_values_are_refused(data: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        as_location(data)


NAME_THE_COLUMN = r"found a table; expected the column of its texts, predict\(table\[COLUMN\]\); columns: text"


def test_a_table_is_refused_as_a_list_of_texts() -> None:
    with pytest.raises(TypeError, match=r"predict takes a list of texts; found \{'a': 'b'\}"):
        check_texts({"a": "b"}, "texts")
    with pytest.raises(TypeError, match=r"predict takes a list of texts; found namespace\(collect"):  # a LazyFrame
        check_texts(SimpleNamespace(collect=None, columns=["text"]), "texts")
    for table in (PandasTable(), PolarsTable()):
        with pytest.raises(TypeError, match=NAME_THE_COLUMN):
            check_texts(table, "texts")


@dataclass
class Scored(ShownScores):
    def as_json(self) -> dict[str, Any]:
        return {"accuracy": 0.5, "per_label": {"good": {"f1": 0.25}}}


def test_answers_and_scores_can_become_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Classified(("a day", "a night"), ("good", "long"), {"good": 0.75, "long": 0.5})
    sentence = SimpleNamespace(table_rows=lambda: [{"label": "A"}, {"label": "B"}])
    answers = Answers[Any]([SimpleNamespace(as_json=lambda: {"label": "good"}), text, sentence])
    monkeypatch.setattr("ensue.inspection.notebook.find_spec", lambda name: None)
    with pytest.raises(EnsueError, match="needs the package pandas: pip install pandas"):
        answers.to_frame()
    monkeypatch.undo()
    monkeypatch.setattr("ensue.inspection.notebook.find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows, index: (rows, index)))  # type: ignore[arg-type]
    pair = {"text1": "a day", "text2": "a night", "label": "good,long", "probability": 0.75}
    assert answers.to_frame() == ([{"label": "good"}, pair, {"label": "A"}, {"label": "B"}], [0, 1, 2, 2])
    assert Scored().to_frame() == ([{"accuracy": 0.5}, {"f1": 0.25}], ["all", "good"])


def test_a_classifier_can_be_trained_on_lists(tmp_path: Path) -> None:
    settings = {"train.steps": 2, "features.d_words": 4}
    rows = [(f"{text} {number}", label) for number, (text, label) in enumerate(ROWS * 4)]
    model = ensue.train("classify-bag", train=rows, out=tmp_path / "run", settings=settings, threads=1)
    assert model.evaluate(ROWS).as_json() == model.evaluate(DICTS).as_json()


def test_a_table_is_refused_as_running_text() -> None:
    """Language models would otherwise learn JSON."""
    with pytest.raises(DataError, match=r"^text: rows with several columns; expected one column"):
        TextSource(as_location(DICTS, "text"))
    assert not is_prepared("a text " * 99)  # a name that is too long for the system


@pytest.mark.parametrize("text", [None, float("nan"), 5, ["a", None], {"text": "a"}, np.array([1.5])])
def test_texts_of_other_types_are_named(text: Any) -> None:
    with pytest.raises(EnsueError, match=r"predict takes a list of texts; text 2 \(\[1\]\) is "):
        check_text_list(["a", text], "texts")
    assert check_text_list([np.array(["a", "b"]), ("c",)], "texts") == [["a", "b"], ("c",)]


MANY = [(f"a {label} day {number}", label) for number in range(6) for label in ("good", "bad")]
WORDS = [(["Anna", "sees", str(number)], ["B-PER", "O", "O"]) for number in range(6)]
SPACY = [(" ".join(words), {"entities": [(0, 4, "PER")]}) for words, _ in WORDS]
CATS = [(text, {"cats": {"good": float(label == "good"), "bad": float(label == "bad")}}) for text, label in MANY]
PAIRS = [(f"the cat {number}", f"le chat {number}") for number in range(6)]
JUDGED = [(f"the cat {number}", f"a cat {number}", ("yes", "no")[number % 2]) for number in range(6)]
SMALL = {f"{table}.{key}": 8 for table in ("encoder", "decoder") for key in ("d_model", "num_heads")}
SMALL |= {"encoder.num_layers": 1, "decoder.num_layers": 1}
UNNAMED: dict[str, tuple[dict[str, Any], tuple[str, ...], list[Any]]] = {
    "classify-linear": ({"data.labels": "kind"}, ("headline", "kind"), [MANY, [*map(list, MANY)], CATS]),
    "tag-linear": (
        {"data.words": "mots", "data.labels": "noms"}, ("mots", "noms"),
        [WORDS, [[*zip(*row, strict=True)] for row in WORDS], SPACY],
    ),
    "translate-transformer": (
        {"data.sources": ["frage"], "data.targets": ["antwort"], "train.steps": 1} | SMALL, ("frage", "antwort"),
        [PAIRS, [*map(list, PAIRS)]],
    ),
    "classify-pairs": (
        {"data.texts": ["frage", "antwort"], "data.labels": "kind", "train.steps": 1},
        ("frage", "antwort", "kind"), [JUDGED],
    ),
}  # fmt: skip
"""For each recipe: settings for named columns, the names, and forms of the same rows without names."""
USUAL = {
    "classify-linear": ("review", "sentiment"), "tag-linear": ("words", "ner_tags"),
    "translate-transformer": ("en", "fr"), "classify-pairs": ("premise", "hypothesis", "label"),
}  # fmt: skip


@pytest.mark.parametrize(
    "recipe", ["classify-linear", "tag-linear", *(pytest.param(r, marks=pytest.mark.slow) for r in [*UNNAMED][2:])]
)
def test_rows_without_names_are_read_by_position(recipe: str, tmp_path: Path) -> None:
    """A model of named columns reads rows without names, in training and later, and the other way round."""
    settings, names, forms = UNNAMED[recipe]
    table = [dict(zip(names, row, strict=True)) for row in forms[0]]
    named = ensue.train(recipe, train=table, valid=forms[0], out=tmp_path / "named", settings=settings)
    scores = [named.evaluate(data).as_json() for data in (*forms, table)]
    assert all(score == scores[0] for score in scores)
    with pytest.raises(DataError, match=r"other"):
        named.evaluate([{f"other {name}": value for name, value in row.items()} for row in table])
    rest = {key: value for key, value in settings.items() if not key.startswith("data.")}
    model = ensue.train(recipe, train=forms[0], valid=forms[0], out=tmp_path / "rows", settings=rest)
    for data in (*forms, [dict(zip(USUAL[recipe], row, strict=True)) for row in forms[0]]):
        model.evaluate(data)
