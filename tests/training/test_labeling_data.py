"""Training taggers on various data: unknown labels, empty sentences, useless files."""

from pathlib import Path

import pytest

from ensue.errors import RecipeError
from ensue.tasks.labeling.job import LabelingJob
from training.taggers import TAGGED, load
from training.tiny import assert_refused, run_tiny
from training.tiny_texts import Listener, Tagged, columns, conllu, json_tokens, sentences, tagging
from written_files import write_file


@pytest.mark.parametrize(("fraction", "trained"), [(0.0, 20), (0.01, 20), (0.25, 15), (0.99, 2)])
def test_the_last_part_is_for_validation(fraction: float, trained: int, tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    rows = [f"word{number} {'A' if number % 2 else 'B'}\nend C\n" for number in range(20)]
    path.write_text("\n".join(rows))
    job = LabelingJob(tagging(path, data={"valid_fraction": fraction}))
    assert job.split.train.texts.words.values == [
        *dict.fromkeys(w for n in range(trained) for w in (f"word{n}", "end"))
    ]
    if trained == 20:
        assert job.split.valid is None
        assert job.notes == ["no validation data: the last weights are kept, and no score is measured"]
    else:
        assert job.split.valid is not None
        assert job.split.valid.texts.words.values == [
            *dict.fromkeys(w for n in range(trained, 20) for w in (f"word{n}", "end"))
        ]
        assert list(job.split.valid.labels) == [["A" if n % 2 else "B", "C"] for n in range(trained, 20)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("label", ["B-ORG", "I-ORG", "NEW"])
def test_a_label_unknown_to_training_is_scored_as_wrong_and_reported(label: str, tmp_path: Path) -> None:
    plain = label == "NEW"
    path, valid, test = (tmp_path / name for name in ("train.txt", "valid.txt", "test.txt"))
    others = [Tagged(s.words, s.pos, []) for s in sentences(30, seed=4)]
    path.write_text(columns(TAGGED))
    lines = columns(others).splitlines()
    places = [n for n, line in enumerate(lines) if line][::10]
    for place in places:
        word, pos, _ = lines[place].split()
        lines[place] = f"{word} {label} O" if plain else f"{word} {pos} {label}"
    for file in (valid, test):
        file.write_text("\n".join(lines) + "\n")
    listener = Listener()
    data = {"valid": str(valid), "test": str(test), "labels": "2" if plain else "3"}
    recipe = tagging(path, encoder="none", data=data, steps=15)
    outcome = run_tiny(recipe, tmp_path / "run", reporter=listener)
    name, count = "NEW" if plain else "ORG", len(places)
    for scores in (outcome.valid, outcome.test, load(tmp_path / "run").evaluate(test).as_json()):
        assert scores is not None
        assert scores["unknown_labels"] == {name: count}
        assert (scores["per_label"][name]["support"], scores["per_label"][name]["recall"]) == (count, 0.0)
        assert 0.3 < scores["accuracy"] <= 1 - count / scores["tokens"]
    assert listener.facts is not None
    for what in ("validation", "test"):
        assert f"training has no {label}, the label of {count} items of the {what} data" in listener.facts.notes


def test_empty_sentences_are_ignored_in_training_and_scores(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = json_tokens(TAGGED[:20]).splitlines(keepends=True)
    path.write_text("".join(line + '{"tokens": [], "labels": []}\n' for line in lines))
    job = LabelingJob(tagging(path, data={"valid_fraction": 0.0}))
    assert len(job.split.train) == 20
    run_tiny(tagging(path, steps=2), tmp_path / "run")
    scores = load(tmp_path / "run").evaluate(path)
    assert scores.tokens == sum(len(s.words) for s in TAGGED[:20])


ROWS = "the DET O\nold ADJ O\n\nAnna PROPN B-PER\nNovak PROPN I-PER\n\n"
USELESS: dict[str, tuple[str, str, dict[str, str], str]] = {
    "only O": ("a.txt", "the O\nold O\n\nhouse O\n" * 9, {},
               r'a.txt: nothing to learn: all \d+ words have the label "O" \(column "last"\); data.labels names'),
    "one class": ("a.conllu", conllu(TAGGED).replace("PROPN", "X"), {"labels": "lemma.x"}, 'no "lemma.x"'),
    "one label": ("a.txt", "the DET\nold DET\n\nhouse DET\n", {}, 'all 3 words have the label "DET"'),
    "no label": ("a.conll", "the\nold\n\nhouse\n" * 3, {}, "a.conll:1: no labels: the only column of the file"),
    "no label in json": ("a.jsonl", '{"tokens": ["the", "house"]}\n', {}, r'a.jsonl:1: no "labels"'),
    "running text": ("a.txt", "The old house.\nAnna sees it.\n", {}, r"a.txt: .*no labels; with data.format=columns"),
    "mixed schemes": ("a.txt", "A B-X\nB I-X\n\nC S-X\n\nD L-X\n\nE M-X\n", {}, r"a.txt:\d+: mixed schemes"),
    "a label without prefix": ("a.txt", "A B-X\nB I-X\n\nC B-X\nD Y\n", {}, 'a.txt:4: the label "Y" has no prefix'),
    "ragged columns": ("a.txt", ROWS + "the DET\n", {"format": "columns"}, r"a.txt:7: expected 3 columns.*found 2"),
    "no such column": ("a.txt", ROWS, {"labels": "4"}, r'a.txt:1: no "4"; there are "1", "2", "3"'),
    "empty": ("a.txt", "", {}, "a.txt: the text is empty"),
    "only empty sentences": ("a.jsonl", '{"tokens": [], "labels": []}\n' * 3, {}, "a.jsonl: no sentences"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(USELESS))
def test_useless_data_are_errors_of_one_line_with_their_place(name: str, tmp_path: Path) -> None:
    file, content, data, expected = USELESS[name]
    (tmp_path / file).write_text(content)
    assert_refused(tagging(tmp_path / file, data=data), tmp_path / "run", expected)


@pytest.mark.parametrize("part", ["valid", "test"])
def test_useless_validation_and_test_data_are_refused(part: str, names: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text(ROWS + "the DET\n")
    recipe = tagging(names, data={part: str(tmp_path / "bad.txt"), "format": "columns"})
    assert_refused(recipe, tmp_path / "run", r"bad.txt:7: expected 3 columns.*found 2")


def test_missing_columns_and_features_are_refused(names: Path, tmp_path: Path) -> None:
    recipe = tagging(names, features={"columns": ["9"]})
    assert_refused(recipe, tmp_path / "run", r'names.txt:1: no "9"; there are "1", "2", "3"')
    with pytest.raises(RecipeError, match="all features are switched off"):
        run_tiny(tagging(names, features={"d_words": 0}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_words_may_have_nul_characters(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", columns(TAGGED[:30]).replace("the", "t\0he"))
    run_tiny(
        tagging(path, encoder="none", data={"labels": "2"}, features={"characters": "cnn"}, steps=4), tmp_path / "run"
    )
    pipeline = load(tmp_path / "run")
    assert any(word == "t\0he" for s in pipeline.source(path) for word in s.words)
    assert pipeline.predict([["t\0he", "\0"]])[0].words[0].text == "t\0he"


def test_a_single_sentence_is_for_training(tmp_path: Path) -> None:
    path = write_file(tmp_path / "one.txt", "word A\nend B\n")
    job = LabelingJob(tagging(path, data={"valid_fraction": 0.9, "format": "columns"}))
    assert (len(job.split.train), job.split.valid) == (1, None)
    assert job.notes == ["no validation data: the last weights are kept, and no score is measured"]


def test_validation_has_rare_labels(tmp_path: Path) -> None:
    """The rare labels are at the beginning. A note names a label of one sentence. Older runs have `classes`."""
    path = tmp_path / "names.txt"
    path.write_text("\n".join(f"word{n} {'X' if n < 2 else 'Y' if n == 39 else 'A'}\nend C\n" for n in range(40)))
    job = LabelingJob(tagging(path, data={"valid_fraction": 0.1}))
    assert job.split.valid is not None
    assert [*job.split.valid.labels] == [["X", "C"], ["A", "C"], ["A", "C"], ["A", "C"]]
    assert job.split.valid_from == f"the last 10% of {path} by label"
    assert job.notes == ["validation has no Y (1 in training): no score measures these labels"]
    older = LabelingJob(tagging(path, data={"valid_fraction": 0.1, "division": "classes"}))
    assert older.split.valid is not None
    assert [*older.split.valid.labels] == [["A", "C"]] * 3 + [["Y", "C"]]
