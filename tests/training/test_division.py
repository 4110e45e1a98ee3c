"""Validation data are disjoint from training data, by source, class or groups that the data name."""

import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.errors import DataError
from ensue.recipe import read_recipe, recipe_names, translate_former_values
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import notes_on_shared_files
from ensue.training.run import begin_job
from training.divided import check_counts_of_both_parts, job, write_table
from training.resuming import At, interrupt
from training.tiny import reproducible_state, run_tiny
from training.tiny_pairs import pair_recipe, pairs
from training.tiny_texts import columns, sentences, tagging


def words_of(data: Any) -> list[str]:
    """Return the first word of each text."""
    texts = data.texts[0] if isinstance(data.texts, tuple) else data.texts
    return [texts.words.values[texts.words.ids[start]] for start in texts.starts[:-1].tolist()]


def test_the_pronunciations_of_a_word_are_in_one_part(tmp_path: Path) -> None:
    words = [f"W{chr(65 + n // 26)}{chr(65 + n % 26)}" for n in range(100)]
    rows = [(f"{word}{which}", f"W ER1 {vowel}") for word in words for which, vowel in (("", "AA0"), ("(1)", "IY1"))]
    job_of_words = job("transduce-lstm", write_table(tmp_path / "cmu.dict", rows, "  "))
    assert len(job_of_words.valid_pairs) == 10
    assert {len(pair.targets) for pair in job_of_words.valid_pairs} == {2}
    assert len(job_of_words.task.train) == 180
    trained = {bytes(job_of_words.task.train.sources[row]) for row in range(180)}
    assert not any(
        job_of_words.parts.coder.encode(pair.sources)[0].astype(np.int32).tobytes() in trained
        for pair in job_of_words.valid_pairs
    )
    note = "200 pairs come from 100 sources: 10 with 20 pairs are for validation, no source is in both"
    assert note in job_of_words.notes
    assert job_of_words.split.valid_from.endswith(", drawn at random by source")


def test_pairs_of_a_group_are_in_one_part(tmp_path: Path) -> None:
    rows = [("source", "target", "film"), *((f"source {n}", f"target {n}", f"film {n // 10}") for n in range(100))]
    job_of_pairs = job("translate-lstm", write_table(tmp_path / "a.tsv", rows), group="film")
    numbers = {pair.group for pair in job_of_pairs.valid_pairs}
    assert (len(job_of_pairs.split.valid), len(numbers), len(job_of_pairs.task.train)) == (10, 1, 90)
    assert '100 pairs come from 10 groups ("film"): 1 with 10 pairs are for validation' in job_of_pairs.notes[0]
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"source": f"s {n}", "target": f"t {n}", "film": n // 10}) + "\n" for n in range(40))
    )
    assert len({pair.group for pair in job("translate-lstm", path, group="film").valid_pairs}) == 1
    with pytest.raises(DataError, match=r'no "flm"; did you mean "film"'):
        job("translate-lstm", path, group="flm")
    with pytest.raises(DataError, match=r"aligned files have no columns; data\.group is for one file"):
        job("translate-lstm", Path(f"{path},{path}"), group="film")


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_texts_of_a_group_are_in_one_part(form: str, tmp_path: Path) -> None:
    rows = [(f"text{n} is here", "ab"[n % 2], f"author {n % 8}") for n in range(80)]
    path = tmp_path / f"a.{form}"
    if form == "tsv":
        write_table(path, [("text", "label", "author"), *rows])
    else:
        path.write_text(
            "".join(json.dumps(dict(zip(("text", "label", "author"), row, strict=True))) + "\n" for row in rows)
        )
    division = job("classify-lstm", path, group="author")
    author = {row[0].split()[0]: row[2] for row in rows}
    train, valid = ({author[word] for word in words_of(part)} for part in (division.split.train, division.split.valid))
    assert (len(train), len(valid), train & valid) == (7, 1, set())
    assert division.split.valid_from.endswith('drawn at random by class and "author"')
    assert '80 texts come from 8 groups ("author")' in division.notes[0]
    assert "group" not in division.config()["layout"]


def test_equal_texts_are_in_one_part(tmp_path: Path) -> None:
    rows = [("text", "label"), *((f"text{n % 20} is here", "ab"[n % 2]) for n in range(60))]
    job_of_texts = job("classify-lstm", write_table(tmp_path / "a.tsv", rows))
    assert not {*words_of(job_of_texts.split.train)} & {*words_of(job_of_texts.split.valid)}
    assert len(job_of_texts.split.valid) == 6


def test_formats_without_columns_have_no_groups(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / "texts" / folder).mkdir(parents=True)
        (tmp_path / "texts" / folder / "1.txt").write_text("a text")
    (tmp_path / "a.ft").write_text("__label__x a text\n__label__y b text\n")
    for name, what in (("texts", "folders"), ("a.ft", "fasttext")):
        with pytest.raises(DataError, match=rf"{what} has no columns; data\.group is for tables and JSON"):
            job("classify-lstm", tmp_path / name, group="author")


def test_sentences_of_a_group_are_in_one_part(tmp_path: Path) -> None:
    blocks = ["".join(f"word{n} d{n // 3} {'AB'[place]}\n" for place in range(2)) for n in range(30)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(blocks))
    job_of_sentences = job("tag-lstm", path, group="2", labels="3")
    assert words_of(job_of_sentences.split.valid) == ["word27", "word28", "word29"]
    assert job_of_sentences.split.valid_from.startswith("the last 10% of ")
    with pytest.raises(DataError, match=r'a.txt:1: no "4"; there are "1", "2", "3"'):
        job("tag-lstm", path, group="4")
    documents = tmp_path / "documents.txt"
    documents.write_text(
        "-DOCSTART- O O\n\n" + "\n-DOCSTART- O O\n\n".join("\n".join(blocks[n : n + 6]) for n in range(0, 30, 6))
    )
    assert len(job("tag-lstm", documents, group="document").split.valid) == 6
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(f'{{"tokens": ["word{n}"], "labels": ["{"AB"[n % 2]}"], "id": {n // 5}}}\n' for n in range(30))
    )
    assert len(job("tag-lstm", path, group="id", valid_fraction=0.15).split.valid) == 5


def test_one_group_leaves_nothing_for_validation(tmp_path: Path) -> None:
    rows = [("source", "target", "film"), *((f"s {n}", f"t {n}", "x") for n in range(20))]
    job_of_pairs = job("translate-lstm", write_table(tmp_path / "a.tsv", rows), group="film")
    assert job_of_pairs.split.valid is None
    assert '20 pairs come from 1 groups ("film"): nothing can be kept for validation' in job_of_pairs.notes[0]
    assert job_of_pairs.notes[1].startswith("no validation data")


def convert_to_division_by_rows(run: Path) -> None:
    """Change a run to the format of earlier versions, which divided by rows."""
    directory = RunDirectory(run)
    lines = (run / "recipe.toml").read_text().splitlines(keepends=True)
    directory.write({"recipe.toml": "".join(line for line in lines if not line.startswith(("division", "group")))})


def test_recipes_of_earlier_versions_keep_their_meaning() -> None:
    earlier = {"task": "classification", "data": {"train": "x"}}
    assert translate_former_values(earlier)["data"] == {"train": "x", "division": "rows"}
    now = {"task": "classification", "data": {"division": "sources"}}
    assert translate_former_values(now) is now
    tagger = translate_former_values({"task": "labeling", "data": {"splitter": "treebank"}})
    assert tagger["data"] == {"splitter": "treebank-1", "division": "rows"}
    of_text = {"task": "language-modeling", "data": {"train": "x"}}
    assert translate_former_values(of_text) is of_text


@pytest.mark.slow
def test_resumed_runs_of_earlier_versions_keep_their_division(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text(pairs(20) * 3)
    by_rows = pair_recipe(path, data={"division": "rows"})
    run_tiny(by_rows, tmp_path / "full")
    run_tiny(by_rows, tmp_path / "run", reporter=At(2, interrupt))
    convert_to_division_by_rows(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "by name")
    run_tiny(None, tmp_path / "run", resume=True)
    run_tiny(pair_recipe(path), tmp_path / "by name", resume=True)
    states = [reproducible_state(tmp_path / name) for name in ("run", "by name", "full")]
    assert states[0] == states[1] == states[2]
    assert RunDirectory(tmp_path / "run").recipe.data.division == "rows"
    assert begin_job(pair_recipe(path), None).split.valid_from.endswith("by source")


@pytest.mark.slow
def test_taggers_of_earlier_versions_keep_their_splitter(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(columns(sentences(20)))
    run_tiny(tagging(path, encoder="none", epochs=1), tmp_path / "run")
    decomposed = unicodedata.normalize("NFD", "résumé")
    assert [len(answer.words) for answer in ensue.load(tmp_path / "run").predict([decomposed])] == [1]
    convert_to_division_by_rows(tmp_path / "run")
    assert [len(answer.words) for answer in ensue.load(tmp_path / "run").predict([decomposed])] == [2]


def by_label(counts: dict[str, int], path: Path, *, times: int = 1) -> Path:
    """Write texts sorted by label, each `times` times."""
    numbers = iter(range(sum(counts.values())))
    rows = [(f"text{next(numbers)} is here", label) for label, count in counts.items() for _ in range(count)]
    return write_table(path, [("text", "label"), *(row for row in rows for _ in range(times))])


@pytest.mark.parametrize(
    "counts",
    [{"ok": 297, "fraud": 3}, {"a": 50, "b": 30, "c": 15, "d": 3, "e": 2}, {"x": 500, "y": 2}, {"a": 40, "b": 40}],
    ids=str,
)
@pytest.mark.parametrize("times", [1, 3])
def test_each_class_is_in_both_parts(counts: dict[str, int], times: int, tmp_path: Path) -> None:
    """The shares are similar, and equal texts are in one part."""
    job_of_texts = job("classify-bag", by_label(counts, tmp_path / "a.tsv", times=times))
    train, valid = job_of_texts.split.train, job_of_texts.split.valid
    assert not {*words_of(train)} & {*words_of(valid)}
    total = sum(counts.values())
    assert abs(len(valid) / times - total / 10) <= 1
    for label, count in counts.items():
        held = valid.label_counts[label] / times
        assert 1 <= held < count
        assert held <= max(1, count / 10 + 1)
    assert not [note for note in job_of_texts.notes if "validation has no" in note]
    assert "drawn at random by class" in job_of_texts.split.valid_from


def test_a_class_of_one_text_is_named(tmp_path: Path) -> None:
    job_of_texts = job("classify-bag", by_label({"a": 60, "b": 39, "rare": 1}, tmp_path / "a.tsv"))
    assert "validation has no rare (1 in training): no score measures these labels" in job_of_texts.notes
    assert job_of_texts.split.train.label_counts["rare"] == 1


def test_of_more_classes_than_validation_texts_the_frequent_are_validated(tmp_path: Path) -> None:
    """A note names the other classes."""
    counts = {f"c{n:02}": 4 if n < 5 else 2 for n in range(30)}
    job_of_texts = job("classify-bag", by_label(counts, tmp_path / "a.tsv"))
    assert len(job_of_texts.split.valid) == 7
    assert {f"c{n:02}" for n in range(5)} <= {*job_of_texts.split.valid.label_counts}
    (note,) = [note for note in job_of_texts.notes if "validation has no" in note]
    assert "(2 in training), ...:" in note


def test_texts_of_several_labels_are_drawn_by_the_rarest(tmp_path: Path) -> None:
    rows = [("text", "label"), *((f"text{n}", "common,rare" if n % 50 == 0 else "common") for n in range(150))]
    path = write_table(tmp_path / "a.tsv", rows)
    job_of_texts = job("classify-bag", path, separator=",")
    assert (job_of_texts.split.valid.label_counts["rare"], job_of_texts.split.train.label_counts["rare"]) == (1, 2)


def test_divisions_are_reproducible_and_rows_and_sources_have_not_changed(tmp_path: Path) -> None:
    path = by_label({"a": 60, "b": 40}, tmp_path / "a.tsv")
    parts = {
        division: [words_of(job("classify-bag", path, division=division).split.valid) for _ in range(2)]
        for division in ("classes", "sources", "rows")
    }
    assert all(first == second for first, second in parts.values())
    assert parts["sources"][0] == parts["rows"][0]
    drawn = np.sort(np.random.default_rng(0).permutation(100)[-10:])
    assert parts["sources"][0] == [f"text{n}" for n in drawn]


@pytest.mark.slow
def test_resumed_runs_keep_a_division_by_sources(tmp_path: Path) -> None:
    """The run is resumed without a recipe, or with the recipe's name, whose default has changed."""
    path = by_label({"a": 30, "b": 30, "c": 4}, tmp_path / "a.tsv")
    settings = {"data.train": str(path), "train.steps": 4, "train.validations": 2, "encoder.d_model": 4}
    recipe = read_recipe("classify-lstm", settings | {"data.division": "sources"})
    run_tiny(recipe, tmp_path / "full")
    run_tiny(recipe, tmp_path / "run", reporter=At(2, interrupt))
    shutil.copytree(tmp_path / "run", tmp_path / "by name")
    run_tiny(None, tmp_path / "run", resume=True)
    run_tiny(read_recipe("classify-lstm", settings), tmp_path / "by name", resume=True)
    states = [reproducible_state(tmp_path / name) for name in ("run", "by name", "full")]
    assert states[0] == states[1] == states[2]


def test_validation_examples_in_the_training_data_are_counted(tmp_path: Path) -> None:
    """Automatically divided data share no examples."""
    texts = [("text", "label"), *((f"text{n} is here", "ab"[n % 2]) for n in range(40))]
    couples = [("sentence1", "sentence2", "label"), *((f"a{n}", "b", "xy"[n % 2]) for n in range(40))]
    translations = [("source", "target"), *((f"a{n}", f"b{n}") for n in range(40))]
    tables = {
        "classify-bag": ("texts", texts), "classify-pairs": ("texts", couples),
        "translate-lstm": ("pairs", translations),
    }  # fmt: skip
    for name, (examples, rows) in tables.items():
        check_counts_of_both_parts(name, examples, rows, tmp_path)


def test_validation_sentences_in_the_training_data_are_counted(tmp_path: Path) -> None:
    """Equal sentences are not moved to one part."""
    blocks = [f"word{n % 25} {'AB'[n % 2]}\nends B\n" for n in range(30)]
    (tmp_path / "a.txt").write_text("\n".join(blocks))
    job_of_sentences = job("tag-lstm", tmp_path / "a.txt", valid_fraction=0.2)
    assert "5 of 6 sentences of the validation data are in the training data, too" in job_of_sentences.notes


def test_a_file_in_training_and_validation_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "tv").mkdir()
    for name in ("train", "dev"):
        (tmp_path / "tv" / f"{name}.txt").write_text("\n".join(f"{name}{n} {'AB'[n % 2]}\n" for n in range(9)))
    (tmp_path / "link.txt").symlink_to(tmp_path / "tv" / "dev.txt")
    settings = {"data.train": str(tmp_path / "tv"), "data.valid": str(tmp_path / "link.txt")}
    recipe = read_recipe("tag-lstm", settings | {"data.test": str(tmp_path / "tv" / "*.txt")})
    assert notes_on_shared_files(recipe.data) == [
        f"{tmp_path}/link.txt is in the training data, and in the validation data: the scores are too good",
        f"{tmp_path}/tv/dev.txt and 1 more are in the training data, and in the test data: the scores are too good",
    ]


def test_validation_passages_in_the_training_text_are_counted(tmp_path: Path) -> None:
    """Passages of running text are compared."""
    lines = [f"{n} the {n * 7} sea was {n % 3} calm and {n * n} boats left\n" for n in range(400)]
    (tmp_path / "a.txt").write_text("".join(lines))
    (tmp_path / "copy.txt").write_text("".join(lines[100:200]))
    (tmp_path / "other.txt").write_text("".join(f"other {n} gulls fly {n * 11} by\n" for n in range(100)))
    for name in {"char-lstm", "word-window", "bert-tiny", "elmo-small"} & {*recipe_names()}:
        notes = job(name, tmp_path / "a.txt", valid=str(tmp_path / "copy.txt"), test=str(tmp_path / "other.txt")).notes
        assert [note for note in notes if "too" in note] == [
            "16 of 16 passages of the validation data are in the training data, too"
        ]
        assert not [note for note in job(name, tmp_path / "a.txt").notes if "too" in note]


def test_judged_pairs_in_the_training_data_are_counted(tmp_path: Path) -> None:
    pairs = [(f"the sea {n}", f"calm {n} water") for n in range(30)]
    train = write_table(tmp_path / "a.tsv", [("text1", "text2"), *pairs])
    judged = [(a, b, str(n)) for n, (a, b) in enumerate([pairs[3], pairs[4][::-1], ("the sea 5", "calm 6 water")])]
    valid = str(write_table(tmp_path / "b.tsv", [("text1", "text2", "score"), *judged]))
    notes = job("sentence-vectors", train, valid=valid, test=valid).notes
    for what in ("validation", "test"):
        assert f"2 of 3 pairs of the {what} data are in the training data, too" in notes
