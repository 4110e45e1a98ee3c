"""Runs of word vectors: training, queries, scores, exports and refusals."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.data.vectors import read_vectors, write_word2vec
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.extensions.word_vectors import task
from ensue.extensions.word_vectors.pipeline import WordTable
from ensue.notices import Notice
from ensue.recipe import Recipe, validate_recipe
from training.tiny import assert_refused, run_tiny

TOPICS = {
    "cooking": ["salt", "oven", "butter", "onion", "recipe"],
    "music": ["piano", "choir", "rhythm", "violin", "chord"],
}
KINDS: dict[str, dict[str, Any]] = {
    "cbow": {"kind": "cbow", "subsample": 0.0},
    "skip-gram": {"kind": "skip-gram", "subsample": 0.0},
    "fasttext": {"kind": "skip-gram", "subsample": 0.0, "longest_ngram": 4, "ngram_buckets": 500},
    "glove": {"kind": "glove", "largest_count": 10.0},
}
PAIRS = "salt\toven\t9\npiano choir 8\nonion\tchord\t1\nbutter\tviolin\t0.5\nBUTTER\tnowhere\t3\n"
PAIRS = PAIRS.replace(" ", "\t")
ANALOGIES = ": topics\nsalt oven piano choir\nsalt oven piano nowhere\n: gram\noven salt choir piano\n"


FULL = Path("/dev/full")
"""A device without space, if the system has one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text whose lines have one topic each, with questions about its words."""
    path, choose = tmp_path_factory.mktemp("vectors"), random.Random(0)
    topics = list(TOPICS.values())
    lines = [" ".join(choose.choices(topics[n % 2], k=6)) + " once" * (n == 3) + " .\n" for n in range(250)]
    (path / "text.txt").write_text("".join(lines), encoding="utf-8")
    (path / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    (path / "analogies.txt").write_text(ANALOGIES, encoding="utf-8")
    return path


def recipe(folder: Path, kind: str, *, data: dict[str, Any] | None = None, **train: Any) -> Recipe:
    document = {
        "task": "word-vectors",
        "data": {"train": str(folder / "text.txt"), **(data or {})},
        "tokenizer": {"min_count": 2},
        "vectors": {"d_words": 8, "window": 2, **KINDS[kind]},
        "train": {"epochs": 6, "batch_size": 150, "learning_rate": 0.2, "validations": 2, **train},
    }
    return validate_recipe(document, where="tiny")


@pytest.fixture(scope="module")
def runs(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, new_cache: Callable[[], Path]
) -> Iterator[dict[str, Path]]:
    """A run of each kind of word vectors."""
    path = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENSUE_CACHE", str(new_cache()))
        patch.setattr("ensue.training.run.make_optional", lambda *arguments: None)
        for kind in KINDS:
            run_tiny(recipe(folder, kind, schedule="constant"), path / kind)
        yield {kind: path / kind for kind in KINDS}


@pytest.fixture
def fasttext(runs: dict[str, Path]) -> Any:
    return ensue.load(runs["fasttext"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_words_of_a_topic_are_near_each_other(kind: str, runs: dict[str, Path]) -> None:
    model = ensue.load(runs[kind])
    assert set(model.words) == {"."}.union(*TOPICS.values())
    right = [model.neighbors(word, 4) for words in TOPICS.values() for word in words]
    topics = [words for words in TOPICS.values() for _ in words]
    shares = [len({word.word for word in near} & set(topic)) / 4 for near, topic in zip(right, topics, strict=True)]
    assert np.mean(shares) > 0.85


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["skip-gram", "glove"])
def test_without_a_compiler_the_vectors_are_the_same(
    kind: str, runs: dict[str, Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ensue.training.run.make_optional", lambda *arguments: None)
    monkeypatch.setattr(task, "compiled_functions", lambda *arguments: None)
    ours = {"epochs": 0.2, "batch_size": 60}
    with pytest.warns(Notice, match="no C compiler") as notices:
        run_tiny(recipe(folder, kind, **ours), tmp_path / "plain")
    assert len(notices) == 1
    monkeypatch.undo()
    monkeypatch.setattr("ensue.training.run.make_optional", lambda *arguments: None)
    run_tiny(recipe(folder, kind, **ours), tmp_path / "compiled")
    plain, compiled = (ensue.load(tmp_path / name).table.vectors for name in ("plain", "compiled"))
    assert np.abs(plain - compiled).max() < 1e-6


def test_texts_become_the_pooled_vectors_of_their_words(runs: dict[str, Path]) -> None:
    model = ensue.load(runs["cbow"])
    salt, oven = model.vector("salt"), model.vector("oven")
    texts = ["salt oven", "salt Nowhere\toven", "nowhere", ""]
    expected = {"mean": (salt + oven) / 2, "max": np.maximum(salt, oven), "first": salt, "last": oven}
    for pooling, vector in expected.items():
        vectors = model.embed(texts, pooling=pooling)
        assert vectors.shape == (4, 8)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, [vector, vector, np.zeros(8), np.zeros(8)], rtol=1e-6)
    words = model.embed_words([["salt", "nowhere"], [], ["oven"]])
    assert [part.shape for part in words] == [(2, 8), (0, 8), (1, 8)]
    assert (words[0] == [salt, np.zeros(8)]).all()
    assert model.embed([]).shape == (0, 8)
    assert model.similarity("salt", "salt") == pytest.approx(1)
    assert model.analogy("salt", "oven", "piano")[0].word not in ("salt", "oven", "piano")
    assert "cbow 8, 11 words" in repr(model)


def test_ngrams_give_vectors_to_unseen_words(fasttext: Any) -> None:
    seen, unseen = fasttext.vector("butter"), fasttext.vector("buttery")
    assert unseen @ seen / np.linalg.norm(seen) / np.linalg.norm(unseen) > 0.6
    assert fasttext.neighbors("buttery", 1)[0].word == "butter"
    subwords = fasttext.model.subwords
    place = fasttext.tokenizer.vocabulary.ids["butter"]
    rows = [place, *subwords.values[subwords.starts[place] : subwords.starts[place + 1]]]
    np.testing.assert_allclose(seen, fasttext.model.vectors[rows].detach().numpy().mean(0), rtol=1e-5, atol=1e-6)


def test_answers_to_analogies_are_words_of_the_table(fasttext: Any, tmp_path: Path) -> None:
    """N-grams give a vector to each word of the question, but its answer is a word of the table."""
    (tmp_path / "unseen.txt").write_text(": none\nbuttery oveny saltier pianos\n", encoding="utf-8")
    with pytest.raises(DataError, match="no question has vectors for all its words"):
        fasttext.evaluate(tmp_path / "unseen.txt")


def test_scores_say_how_many_pairs_and_questions_they_cover(runs: dict[str, Path], folder: Path) -> None:
    model = ensue.load(runs["skip-gram"])
    pairs = model.evaluate(folder / "pairs.tsv").as_json()
    for name, score in (("pairs.tsv", "spearman"), ("analogies.txt", "accuracy")):
        expected = model.evaluate(folder / name).as_json()[score]
        items = model.scored_items(folder / name)
        assert items is not None
        assert items.compute() == pytest.approx({score: expected})
        assert len(items.samples()[score])
    assert (pairs["covered"], pairs["pairs"]) == (4, 5)
    assert pairs["spearman"] > 0.7
    analogies = model.evaluate(folder / "analogies.txt").as_json()
    assert (analogies["covered"], analogies["questions"]) == (2, 3)
    assert set(analogies["sections"]) == {"topics", "gram"}
    with pytest.raises(DataError, match=r"pairs\.tsv has pairs, analogies\.txt has analogies"):
        model.evaluate(str(folder / "[ap]*s.t*"))


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary", "fasttext"])
def test_exported_vectors_are_read_back(format: str, runs: dict[str, Path], tmp_path: Path) -> None:
    model = ensue.load(runs["cbow"])
    model.export(tmp_path / "out", format)
    words, vectors = read_vectors(tmp_path / "out")
    assert tuple(words) == model.words
    assert (vectors == model.table.vectors).all()


@pytest.mark.slow
def test_gensim_reads_exported_vectors(runs: dict[str, Path], tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim.models")
    model = ensue.load(runs["cbow"])
    for format in ("word2vec", "word2vec-binary"):
        model.export(tmp_path / "out", format)
        loaded = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / "out"), binary=format == "word2vec-binary")
        assert loaded.index_to_key == list(model.words)
        assert (loaded.vectors == model.table.vectors).all()


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        ("sea sea sea sea", {}, "learn: 1 word that occurs 2 times or more"),
        ("the sea was calm", {}, "learn: 0 words that occur 2 times or more"),
        ("sea\ncalm\nsea\ncalm\n", {}, "no line has two known words; try data.across_lines"),
        ("", {}, "the text is empty"),
    ],
)
def test_a_text_from_which_nothing_can_be_learned_is_refused(
    text: str, change: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    for kind in ("cbow", "glove"):
        assert_refused(
            recipe(folder, kind, data={"train": str(tmp_path / "text.txt"), **change}), tmp_path / "run", message
        )


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"clip": 5.0}, "has train.clip, which the training of this table of word vectors does not use"),
        ({"average": 0.9}, "has train.average"),
        ({"optimizer": "sgd"}, "has train.optimizer"),
    ],
)
def test_a_key_that_would_do_nothing_is_refused(train: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(folder, "cbow", **train)
    with pytest.raises(RecipeError, match="longest_ngram of 2 below shortest_ngram 3"):
        validate_recipe(
            {"task": "word-vectors", "vectors": {"kind": "cbow", "longest_ngram": 2}, "train": {"steps": 1}}, where="x"
        )


def test_unknown_words_options_and_paths_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    model = ensue.load(runs["cbow"])
    with pytest.raises(EnsueError, match='no vector for the word "slat"; did you mean "salt"'):
        model.neighbors("slat")
    with pytest.raises(EnsueError, match='no vector for any word of "Xylo fon"'):
        model.neighbors("Xylo fon")
    with pytest.raises(EnsueError, match='no pooling "maen"; did you mean "mean"'):
        model.embed(["salt"], pooling="maen")
    with pytest.raises(EnsueError, match='no format "word2vek"; did you mean "word2vec"'):
        model.export(tmp_path / "x", "word2vek")
    with pytest.raises(EnsueError, match="no folder"):
        model.export(tmp_path / "nowhere" / "x")
    if FULL.exists():
        with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
            model.export(FULL)
    (tmp_path / "other.tsv").write_text("sun\tmoon\t1\n", encoding="utf-8")
    with pytest.raises(DataError, match="no question has vectors for all its words"):
        model.evaluate(tmp_path / "other.tsv")


def test_questions_without_known_words_are_refused_before_training(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.tsv").write_text("sun\tmoon\t1\n", encoding="utf-8")
    parsed = recipe(folder, "cbow", data={"valid": str(tmp_path / "other.tsv")})
    assert_refused(parsed, tmp_path / "run", "no question has vectors for all its words")


def test_words_with_odd_white_space_are_exported(folder: Path, tmp_path: Path) -> None:
    words, vectors = ["a\u00a0b", "\u2028", "\x85c"], np.eye(3, dtype=np.float32)
    for binary in (False, True):
        write_word2vec(tmp_path / "x", words, vectors, binary=binary)
        assert read_vectors(tmp_path / "x")[0] == words
    with pytest.raises(DataError, match="for words, found 'a b'"):
        write_word2vec(tmp_path / "x", ["a b"], vectors[:1], binary=False)


def test_a_map_of_neighbors(runs: dict[str, Path], fasttext: Any) -> None:
    model = ensue.load(runs["cbow"])
    inspection = model.inspect("salt", count=5)
    view, near = inspection.view, model.neighbors("salt", 5)
    assert view.words == ("salt", *(neighbor.word for neighbor in near))
    assert view.similarities.tolist() == pytest.approx([1.0, *(neighbor.similarity for neighbor in near)], abs=1e-5)
    assert view.num_known == 1
    assert all(neighbor.word in inspection.page for neighbor in near)
    view = model.inspect("Salt and OVEN, nowhere").view
    assert (view.num_known, len(view.words)) == (2, len(model.words))
    with pytest.raises(EnsueError, match='no vector for the word "nowhere"'):
        model.inspect("nowhere")
    assert fasttext.inspect("buttery", count=3).view.words[0] == "buttery"


def test_an_analogy_adds_and_subtracts_unit_vectors() -> None:
    vectors = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1], [1, 1, -1]], np.float32)
    assert WordTable("abcde", vectors).answers(np.array([[0, 1, 2]])).tolist() == [3]
