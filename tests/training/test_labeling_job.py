"""Training taggers: every format, scheme, head, encoder and feature; what a run leaves behind; data of no use."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.errors import DataError, RecipeError
from ensue.pipeline import LabelingPipeline
from ensue.text.schemes import Scheme, encode, spans
from ensue.training import curve
from ensue.training import run as run_module
from ensue.training.labeling import LabelingJob
from ensue.training.loop import Trainer
from training.resuming import assert_follows_its_seed, assert_resumes
from training.tiny import run_tiny
from training.tiny_texts import (
    ENCODERS,
    Listener,
    Tagged,
    columns,
    conllu,
    json_spans,
    json_tokens,
    sentences,
    tagging,
)

TAGGED = sentences(120)


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """Sentences in three columns; the last one has names in bio."""
    path = tmp_path / "names.txt"
    path.write_text(columns(TAGGED))
    return path


def load(run: Path, **options: Any) -> LabelingPipeline:
    pipeline = ensue.load(run, device="cpu", **options)
    assert isinstance(pipeline, LabelingPipeline)
    return pipeline


def predicted(run: Path, tagged: list[Tagged] = TAGGED) -> list[list[str]]:
    return [sentence.labels for sentence in load(run).predict([s.words for s in tagged])]


FORMATS: dict[str, tuple[str, Callable[[list[Tagged]], str], dict[str, Any], Scheme | None]] = {
    "iob1": ("a.txt", lambda s: columns(s, "iob1"), {}, "iob1"),
    "bio": ("a.conll", columns, {"labels": "3"}, "bio"),
    "iobes": ("a.txt", lambda s: columns(s, "iobes", "\t"), {}, "iobes"),
    "bmes": ("a.bmes", lambda s: columns(s, "bmes"), {}, "bmes"),
    "parts of speech": ("a.txt", columns, {"labels": "2"}, None),
    "upos": ("a.conllu", conllu, {}, None),
    "xpos": ("a.conllu", conllu, {"labels": "xpos"}, None),
    "feats": ("a.conllu", conllu, {"labels": "feats"}, None),
    "a key of feats": ("a.conllu", conllu, {"labels": "feats.Kind"}, None),
    "a key of misc": ("a.conllu", conllu, {"labels": "misc.Upper"}, None),
    "json tokens": ("a.jsonl", json_tokens, {}, "bio"),
    "json tags": ("a.jsonl", lambda s: json_tokens(s, "bmes", "ner_tags"), {}, "bmes"),
    "json spans": ("a.jsonl", json_spans, {}, "bio"),
}


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_is_learned_and_answered_in_its_own_scheme(name: str, tmp_path: Path) -> None:
    file, write, data, scheme = FORMATS[name]
    path = tmp_path / file
    path.write_text(write(TAGGED))
    if name == "a key of misc":  # every second word has it
        path.write_text(re.sub(r"(\d*[02468]\t\w+.*)\t_$", r"\1\tUpper=No", path.read_text(), flags=re.MULTILINE))
    run_tiny(tagging(path, data=data, head={"kind": "crf"}, steps=30), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    assert pipeline.labels.scheme == scheme
    assert pipeline.labels.tag_scheme == ("iobes" if scheme else None)
    scores = pipeline.evaluate(path)
    assert scores.tokens == sum(len(s.words) for s in TAGGED)
    assert scores.is_spans == (scheme is not None)
    assert scores.accuracy > (0.6 if name == "a key of misc" else 0.8)
    for answer in pipeline.label(pipeline.source(path)):
        if scheme:
            assert answer.labels == encode(spans(answer.labels), len(answer.labels), scheme)
        else:
            assert set(answer.labels) <= set(pipeline.labels.names)


def test_a_name_in_misc_is_a_span(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(conllu(TAGGED).replace("\t_\n", "\tNER=O\n"))
    run_tiny(tagging(path, data={"labels": "misc.NER"}, head={"kind": "crf"}, steps=30), tmp_path / "run")
    assert load(tmp_path / "run").labels.scheme == "bio"
    assert load(tmp_path / "run").evaluate(path).f1 > 0.7


@pytest.mark.parametrize(("wanted", "tags"), [("iobes", 9), ("bio", 5), ("file", 5)])
def test_the_scheme_of_learning_is_the_recipes(wanted: str, tags: int, names: Path) -> None:
    job = LabelingJob(tagging(names, head={"scheme": wanted}))
    assert len(job.labels) == tags
    assert job.labels.names == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    assert job.build_model().head.num_tags == tags


@pytest.mark.parametrize("scheme", ["iob1", "bio", "iobes", "bmes"])
def test_learned_in_the_files_own_scheme_paths_are_legal_in_it(scheme: Scheme, tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text(columns(TAGGED, scheme))
    run_tiny(tagging(path, head={"kind": "crf", "scheme": "file"}, steps=6), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    assert pipeline.labels.scheme == pipeline.labels.tag_scheme == scheme
    for labels in predicted(tmp_path / "run"):
        assert labels == encode(spans(labels), len(labels), scheme)


@pytest.mark.parametrize("wanted", ["iobes", "file"])
def test_a_slip_of_the_annotators_stops_nothing(wanted: str, tmp_path: Path) -> None:
    """One sentence of many breaks the scheme; its path is illegal for a CRF."""
    path = tmp_path / "names.txt"
    path.write_text("Anna PROPN I-PER\nsees VERB O\n\n" + columns(TAGGED))
    listener = Listener()
    recipe = tagging(path, head={"kind": "crf", "scheme": wanted}, epochs=1, data={"valid_fraction": 0.0})
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    assert load(tmp_path / "run").labels.scheme == "bio"
    assert all(0 < report.loss < 5 for report in listener.steps)


@pytest.mark.parametrize(
    ("kind", "encoder"),
    [
        *(("crf", encoder) for encoder in ENCODERS),
        *((kind, e) for kind in ("softmax", "viterbi") for e in ("lstm", "none")),
    ],
)
def test_every_encoder_and_head_learns(kind: str, encoder: str, names: Path, tmp_path: Path) -> None:
    """Heads and encoders know nothing of each other: a row and two columns of the table will do."""
    listener = Listener()
    recipe = tagging(names, encoder=encoder, head={"kind": kind}, steps=25)
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    losses = [report.loss for report in listener.steps]
    assert sum(losses[-3:]) < 0.6 * sum(losses[:3])
    assert listener.facts is not None
    assert listener.facts.model == ("no encoder" if encoder == "none" else f"{encoder} 1×8")
    words = [sum(len(s.words) for s in part) for part in (TAGGED[:96], TAGGED[96:])]
    assert listener.facts.data == (
        f'{words[0]} words in 96 sentences, {words[1]} for validation; 5 labels in column "last" (bio)'
    )
    for labels in predicted(tmp_path / "run"):  # legal in the file's own scheme, whatever was learned
        assert labels == encode(spans(labels), len(labels), "bio")


def test_illegal_paths_are_never_taken_by_heads_that_know_the_scheme(names: Path, tmp_path: Path) -> None:
    """In the tags of learning, before they are converted; a softmax head of so few steps does take them."""
    broken = {}
    for kind in ("softmax", "viterbi", "crf"):
        run_tiny(tagging(names, encoder="none", head={"kind": kind}, steps=3), tmp_path / kind)
        pipeline = load(tmp_path / kind)
        tags = pipeline.labels.tags
        generator = torch.Generator().manual_seed(0)
        emissions = 3 * torch.randn(40, 7, len(tags), generator=generator)
        paths = [[tags.symbols[tag] for tag in path] for path in pipeline.model.head.best(emissions, None).tolist()]
        broken[kind] = sum(path != encode(spans(path), len(path), "iobes") for path in paths)
    assert broken["viterbi"] == broken["crf"] == 0 < broken["softmax"]


def test_a_run_directory_has_all_that_a_tagger_is(names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.training.run.draw_curve", curve.draw_curve)
    test = tmp_path / "test.txt"
    test.write_text(columns(sentences(20, seed=7)))
    listener = Listener()
    outcome = run_tiny(tagging(names, data={"test": str(test)}), tmp_path / "my run", reporter=listener)
    run = tmp_path / "my run"
    assert {p.name for p in run.iterdir()} == {
        "recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "labels.json", "metrics.jsonl",
        "README.md", "curve.png", "checkpoints", ".lock",
    }  # fmt: skip
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    config = json.loads((run / "config.json").read_text())
    assert (config["task"], config["format"], config["d_vectors"]) == ("labeling", "columns", 0)
    assert json.loads((run / "labels.json").read_text())["names"] == ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    assert json.loads((run / "tokenizer.json").read_text())["kind"] == "lexicon"
    card = (run / "README.md").read_text()
    assert outcome.valid is not None
    assert outcome.test is not None
    for name, scores in (("validation", outcome.valid), ("test", outcome.test)):
        shares = " | ".join(f"{100 * scores[key]:.2f}" for key in ("accuracy", "precision", "recall", "f1"))
        assert f"| {name} | {shares} | {scores['tokens']} |" in card
    assert outcome.test["tokens"] == sum(len(s.words) for s in sentences(20, seed=7))
    assert "of 5 labels (B-LOC, B-PER, I-LOC, I-PER, O)" in card
    assert f"ensue predict '{run}'" in card
    assert "- validation: the last 20% of " in card
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["kind"] == "test"
    assert records[-1]["scores"] == outcome.test
    assert [r["scores"] for r in records if r["kind"] == "valid"] == [v.scores for v in listener.validations]


@pytest.mark.parametrize("kind", ["softmax", "viterbi", "crf"])
def test_what_is_loaded_is_what_was_trained(
    kind: str, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainers = []

    class Kept(Trainer):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            trainers.append(self)

    monkeypatch.setattr(run_module, "Trainer", Kept)
    features = {"characters": "cnn", "affixes": 2, "d_shape": 4, "columns": ["2"], "dropout": 0.2}
    recipe = tagging(names, data={"valid_fraction": 0.0}, head={"kind": kind}, features=features)
    run_tiny(recipe, tmp_path / "run")
    (trainer,) = trainers
    model = trainer.model.eval()
    loaded = load(tmp_path / "run").model
    batch = trainer.task.batch(3, torch.device("cpu"))
    with torch.no_grad():
        before, after = model(batch.words), loaded(batch.words)
        assert torch.equal(before, after)
        assert torch.equal(model.head.best(before, batch.words.mask), loaded.head.best(after, batch.words.mask))
        assert torch.equal(model.head.marginals(before, None), loaded.head.marginals(after, None))


def test_the_scores_of_the_best_weights_are_those_of_evaluate(names: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text(columns(sentences(40, seed=3)))
    outcome = run_tiny(tagging(names, data={"valid": str(valid)}), tmp_path / "run")
    assert load(tmp_path / "run").evaluate(valid).as_json() == outcome.valid


def other_column(path: Path, count: int = 60) -> list[list[tuple[str, str, str]]]:
    """Sentences whose labels the second column says, and the words do not."""
    choose = random.Random(1)
    said = {"p": "X", "q": "Y", "r": "Z"}
    rows = [
        [("same", sign, said[sign]) for sign in choose.choices(list(said), k=choose.randint(2, 6))]
        for _ in range(count)
    ]
    path.write_text("\n".join("".join(" ".join(row) + "\n" for row in sentence) for sentence in rows))
    return rows


def test_another_column_is_a_feature(tmp_path: Path) -> None:
    path = tmp_path / "signs.txt"
    other_column(path)
    accuracy = []
    for read in ([], ["2"]):
        recipe = tagging(path, encoder="none", features={"columns": read, "d_column": 4}, steps=40)
        run_tiny(recipe, tmp_path / f"run{len(read)}")
        accuracy.append(load(tmp_path / f"run{len(read)}").evaluate(path).accuracy)
    assert accuracy[0] < 0.6
    assert accuracy[1] == 1.0


def test_another_column_of_conllu_is_a_feature(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(conllu(TAGGED))
    features = {"columns": ["upos", "feats.Length"], "d_words": 0}
    run_tiny(tagging(path, encoder="none", data={"labels": "xpos"}, features=features, steps=40), tmp_path / "run")
    assert load(tmp_path / "run").evaluate(path).accuracy == 1.0


@pytest.mark.parametrize("characters", ["lstm", "cnn"])
def test_characters_affixes_and_shapes_see_words_that_were_never_read(characters: str, tmp_path: Path) -> None:
    """The label is the ending; the words of use are all new."""
    choose = random.Random(0)

    def made(count: int, letters: str) -> list[tuple[str, str]]:
        stems = ["".join(choose.choices(letters, k=5)) for _ in range(count)]
        return [(stem + ending, ending.upper()) for stem in stems for ending in ("ing", "ed", "ly")]

    rows = made(60, "abcdfg")
    choose.shuffle(rows)
    path = tmp_path / "endings.txt"
    path.write_text("".join(f"{word} {label}\n" + "\n" * (n % 4 == 3) for n, (word, label) in enumerate(rows)))
    features = {"d_words": 0, "characters": characters, "d_character": 8, "d_characters": 8, "affixes": 3, "d_shape": 2}
    run_tiny(tagging(path, encoder="none", features=features, steps=40), tmp_path / "run")
    new = made(20, "abcdgf"[::-1])
    (answer,) = load(tmp_path / "run").predict([[word for word, _ in new]])
    assert np.mean([found == label for found, (_, label) in zip(answer.labels, new, strict=True)]) > 0.9


REGULARIZED: dict[str, Any] = {
    "encoder": ENCODERS["lstm"] | {"dropout": 0.3, "dropout_kind": "variational", "dropout_input": 0.2},
    "features": {"dropout_words": 0.2, "characters": "lstm", "d_characters": 4, "columns": ["2"], "dropout": 0.1},
    "accumulate": 2, "weight_decay": 0.1,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "crf": {"head": {"kind": "crf"}, **REGULARIZED},
    "viterbi": {"head": {"kind": "viterbi"}},
    "softmax, transformer": {"encoder": ENCODERS["transformer"] | {"dropout": 0.2}},
}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_interrupted_killed_and_resumed_ends_in_the_same_bits(variant: str, names: Path, tmp_path: Path) -> None:
    recipe = tagging(names, **VARIANTS[variant], checkpoint_every=5, validations=2)
    assert_resumes(recipe, tmp_path)


def test_the_same_seed_is_the_same_run_and_another_is_another(names: Path, tmp_path: Path) -> None:
    assert_follows_its_seed(lambda seed: tagging(names, seed=seed, **REGULARIZED), tmp_path)


@pytest.mark.parametrize(("fraction", "trained"), [(0.0, 20), (0.01, 20), (0.25, 15), (0.99, 1)])
def test_the_last_part_is_for_validation(fraction: float, trained: int, tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    rows = [f"word{number} {'A' if number % 2 else 'B'}\nend C\n" for number in range(20)]
    path.write_text("\n".join(rows))
    job = LabelingJob(tagging(path, data={"valid_fraction": fraction}))
    assert job.train.texts.words.values == [*dict.fromkeys(w for n in range(trained) for w in (f"word{n}", "end"))]
    if trained == 20:
        assert job.valid is None
        assert job.notes == ["no validation data: the last weights are kept, and no score is measured"]
    else:
        assert job.valid is not None
        assert job.valid.texts.words.values == [
            *dict.fromkeys(w for n in range(trained, 20) for w in (f"word{n}", "end"))
        ]
        assert job.valid.labels == [["A" if n % 2 else "B", "C"] for n in range(trained, 20)]


@pytest.mark.parametrize("label", ["B-ORG", "I-ORG", "NEW"])
def test_a_label_that_training_never_had_is_wrong_and_reported(label: str, tmp_path: Path) -> None:
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
    recipe = tagging(path, data={"valid": str(valid), "test": str(test), "labels": "2" if plain else "3"}, steps=30)
    outcome = run_tiny(recipe, tmp_path / "run", reporter=listener)
    name, count = "NEW" if plain else "ORG", len(places)
    for scores in (outcome.valid, outcome.test, load(tmp_path / "run").evaluate(test).as_json()):
        assert scores is not None
        assert scores["unknown_labels"] == {name: count}
        assert (scores["per_label"][name]["support"], scores["per_label"][name]["recall"]) == (count, 0.0)
        assert 0.3 < scores["accuracy"] <= 1 - count / scores["tokens"]
    assert listener.facts is not None
    for what in ("validation", "test"):
        assert f"training has no {label}: wrong in {count} words of the {what} data" in listener.facts.notes


def test_empty_sentences_have_nothing_to_learn_or_score(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = json_tokens(TAGGED[:20]).splitlines(keepends=True)
    path.write_text("".join(line + '{"tokens": [], "labels": []}\n' for line in lines))
    job = LabelingJob(tagging(path, data={"valid_fraction": 0.0}))
    assert len(job.train) == 20
    run_tiny(tagging(path, steps=2), tmp_path / "run")
    scores = load(tmp_path / "run").evaluate(path)
    assert scores.tokens == sum(len(s.words) for s in TAGGED[:20])


ROWS = "the DET O\nold ADJ O\n\nAnna PROPN B-PER\nNovak PROPN I-PER\n\n"
USELESS: dict[str, tuple[str, str, dict[str, str], str]] = {
    "only O": ("a.txt", "the O\nold O\n\nhouse O\n" * 9, {},
               r'a.txt: nothing to learn: all \d+ words have the label "O" \(column "last"\); data.labels names'),
    "one class": ("a.conllu", conllu(TAGGED).replace("PROPN", "X"), {"labels": "lemma.x"}, "no column"),
    "one label": ("a.txt", "the DET\nold DET\n\nhouse DET\n", {}, 'all 3 words have the label "DET"'),
    "no label": ("a.conll", "the\nold\n\nhouse\n" * 3, {}, r"a.conll:1: no labels: the file has one column"),
    "no label in json": ("a.jsonl", '{"tokens": ["the", "house"]}\n', {}, r'a.jsonl:1: no column "labels"'),
    "running text": ("a.txt", "The old house.\nAnna sees it.\n", {}, r"a.txt: .*no labels; with data.format=columns"),
    "mixed schemes": ("a.txt", "A B-X\nB I-X\n\nC S-X\n\nD L-X\n\nE M-X\n", {}, r"a.txt:\d+: mixed schemes"),
    "mixed schemes, many": ("a.txt", "A I-X\nB B-X\n\nC B-X\nD B-Y\n\n" * 20, {}, r"a.txt:\d+: mixed schemes"),
    "a label without prefix": ("a.txt", "A B-X\nB I-X\n\nC B-X\nD Y\n", {}, 'a.txt:4: the label "Y" has no prefix'),
    "ragged columns": ("a.txt", ROWS + "the DET\n", {"format": "columns"}, r"a.txt:7: expected 3 columns.*found 2"),
    "ragged, too many": ("a.txt", ROWS * 40 + "a b c d\n", {}, r"a.txt:241: expected 3 columns.*found 4"),
    "no such column": ("a.txt", ROWS, {"labels": "4"}, r'a.txt:1: no column "4"; the file has columns 1 to 3'),
    "no such name": ("a.conllu", conllu(TAGGED), {"labels": "upso"}, 'no column "upso"; did you mean "upos"'),
    "json labels too short": ("a.jsonl", '{"tokens": ["a", "b"], "labels": ["X"]}', {}, 'a.jsonl:1: "labels" has 1'),
    "json cut": ("a.jsonl", json_tokens(TAGGED[:3]) + '{"tokens', {}, r"a.jsonl:4: not JSON"),
    "empty": ("a.txt", "", {}, "a.txt: the text is empty"),
    "blank": ("a.txt", "\n\n \n", {"format": "columns"}, "a.txt: no sentence in it"),
    "only empty sentences": ("a.jsonl", '{"tokens": [], "labels": []}\n' * 3, {}, "a.jsonl: no sentence in it"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(USELESS))
def test_data_of_no_use_are_one_line_with_their_place(name: str, tmp_path: Path) -> None:
    file, content, data, expected = USELESS[name]
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=expected) as caught:
        run_tiny(tagging(tmp_path / file, data=data), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("part", ["valid", "test"])
def test_validation_and_test_data_of_no_use_too(part: str, names: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text(ROWS + "the DET\n")
    with pytest.raises(DataError, match=r"bad.txt:7: expected 3 columns.*found 2"):
        run_tiny(tagging(names, data={part: str(tmp_path / "bad.txt"), "format": "columns"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_columns_must_be_there(names: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'names.txt:1: no column "9"; the file has columns 1 to 3'):
        run_tiny(tagging(names, features={"columns": ["9"]}), tmp_path / "run")
    with pytest.raises(RecipeError, match="features: all are switched off"):
        run_tiny(tagging(names, features={"d_words": 0}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("encoder", ["lstm", "window"])
def test_a_sentence_of_ten_thousand_words_among_short_ones(encoder: str, tmp_path: Path) -> None:
    """It is a batch alone, so that it pads nothing; predicted among others it gets the labels that it gets alone."""
    choose = random.Random(0)
    pairs = choose.choices([pair for s in TAGGED for pair in zip(s.words, s.pos, strict=True)], k=10_000)
    words = [word for word, _ in pairs]
    path = tmp_path / "long.txt"
    path.write_text(columns([*TAGGED[:40], Tagged(words, [pos for _, pos in pairs], []), *TAGGED[40:]]))
    options = {"data": {"labels": "2"}, "head": {"kind": "crf" if encoder == "window" else "softmax"}, "validations": 1}
    task = LabelingJob(tagging(path, **options)).task
    shapes = [tuple(task.batch(step, torch.device("cpu")).tags.shape) for step in range(task.steps_per_epoch)]
    assert shapes.count((1, 10_000)) == 1
    assert all(rows * length <= 80 for rows, length in shapes if length < 10_000)
    steps = shapes.index((1, 10_000)) + 1
    run_tiny(tagging(path, encoder=encoder, steps=steps, **options), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    together = pipeline.predict([["the"], words, ["old", "house"]])
    assert [len(answer) for answer in together] == [1, 10_000, 2]
    assert pipeline.predict([words])[0].labels == together[1].labels


def test_a_word_of_a_million_characters(tmp_path: Path) -> None:
    giant = "word" * 250_000
    path = tmp_path / "a.txt"
    path.write_text(columns(TAGGED[:30]) + f"\n{giant} NOUN O\nthe DET O\n")
    features = {"characters": "lstm", "d_characters": 4, "affixes": 3, "d_shape": 2}
    run_tiny(tagging(path, features=features, steps=8), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    (answer,) = pipeline.predict([f"the {giant} {giant[1:]}"])
    assert [(w.start, w.end) for w in answer] == [(0, 3), (4, 1_000_004), (1_000_005, 2_000_004)]
    assert pipeline.evaluate(path).tokens == sum(len(s.words) for s in TAGGED[:30]) + 2


def test_words_with_nul_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(columns(TAGGED[:30]).replace("the", "t\0he"))
    run_tiny(tagging(path, data={"labels": "2"}, features={"characters": "cnn"}), tmp_path / "run")
    pipeline = load(tmp_path / "run")
    assert any(word == "t\0he" for s in pipeline.source(path) for word in s.words)
    assert pipeline.predict([["t\0he", "\0"]])[0].words[0].text == "t\0he"
