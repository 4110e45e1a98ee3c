"""Training taggers: schemes, heads, the context of a document, and files of the run."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from ensue.errors import RecipeError
from ensue.runs import pictures
from ensue.tasks.labeling.job import LabelingJob
from ensue.text.schemes import encode, spans
from training import tiny_texts
from training.taggers import load
from training.tiny import run_tiny
from written_files import write_file


@pytest.mark.parametrize(("scheme", "tags"), [("iobes", 9), ("bio", 5), ("file", 5)])
def test_tags_have_the_scheme_of_the_recipe(scheme: str, tags: int, names: Path) -> None:
    job = LabelingJob(tiny_texts.tagging(names, head={"scheme": scheme}))
    assert len(job.parts.labels) == tags
    assert job.parts.labels.names == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    assert job.build_model().head.num_tags == tags


def test_heads_with_transitions_predict_no_illegal_paths(names: Path, tmp_path: Path) -> None:
    """The tags are tested before conversion. A softmax head of few steps predicts illegal paths."""
    broken = {}
    for kind in ("softmax", "viterbi", "crf"):
        run_tiny(tiny_texts.tagging(names, encoder="none", head={"kind": kind}, steps=3), tmp_path / kind)
        pipeline = load(tmp_path / kind)
        tags = pipeline.labels.tags
        generator = torch.Generator().manual_seed(0)
        emissions = 3 * torch.randn(40, 7, len(tags), generator=generator)
        paths = [[tags.symbols[tag] for tag in path] for path in pipeline.model.head.best(emissions, None).tolist()]
        broken[kind] = sum(path != encode(spans(path), len(path), "iobes") for path in paths)
    assert broken["viterbi"] == broken["crf"] == 0 < broken["softmax"]


def test_a_run_has_files_and_scores_of_a_tagger(names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.training.run.draw_curve", pictures.draw_curve)
    test = write_file(tmp_path / "test.txt", tiny_texts.columns(tiny_texts.sentences(20, seed=7)))
    listener = tiny_texts.Listener()
    outcome = run_tiny(tiny_texts.tagging(names, data={"test": str(test)}), tmp_path / "my run", reporter=listener)
    run = tmp_path / "my run"
    assert {p.name for p in run.iterdir()} == {
        "recipe.toml", "config.json", "model.safetensors", "tokenizer.json", "labels.json", "metrics.jsonl",
        "README.md", "curve.png", "checkpoints", "manifest.json", ".lock",
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
    assert outcome.test["tokens"] == sum(len(s.words) for s in tiny_texts.sentences(20, seed=7))
    assert "of 5 labels (B-LOC, B-PER, I-LOC, I-PER, O)" in card
    assert f"ensue predict '{run}'" in card
    assert "- validation: the last 20% of " in card
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert records[-1]["kind"] == "test"
    assert records[-1]["scores"] == outcome.test
    assert [r["scores"] for r in records if r["kind"] == "valid"] == [v.scores for v in listener.validations]


@pytest.mark.slow
def test_averaged_weights_of_illegal_transitions_stay_minus_infinity(names: Path, tmp_path: Path) -> None:
    """A Viterbi head counts transitions; those of illegal ones are -inf, whose difference would be NaN."""
    run_tiny(tiny_texts.tagging(names, head={"kind": "viterbi"}, average=0.9), tmp_path / "run")
    weights = load(tmp_path / "run").model.state_dict()
    assert not any(tensor.isnan().any() for tensor in weights.values())
    assert weights["head.transitions"].isneginf().any()


def documents(count: int, *, seed: int) -> str:
    """Return documents of two sentences: the first reveals the kind of a new name, the second has only the name."""
    choose = random.Random(seed)
    texts = []
    for _ in range(count):
        kind, name = choose.choice(["red", "blue"]), "".join(choose.choices("abcdefgh", k=6))
        texts.append(f"-DOCSTART- O\n\n{name} {kind}\nis O\n{kind} O\n\n{name} {kind}\n\n")
    return "".join(texts)


@pytest.mark.slow
def test_context_words_make_earlier_sentences_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training, prediction and scores agree, whatever the chunks of words, and other documents do not matter."""
    paths = []
    for seed in (0, 1):
        paths.append(tmp_path / f"{seed}.txt")
        paths[-1].write_text(documents(60, seed=seed))
    for words, repeats in ((0, False), (20, True)):
        recipe = tiny_texts.tagging(
            paths[0], encoder=tiny_texts.ENCODERS["lstm"], data={"context_words": words, "test": str(paths[1])},
            steps=60,
            head={"kind": "softmax", "repeats": repeats}, features={"d_words": 8}, learning_rate=0.05,
        )  # fmt: skip
        outcome = run_tiny(recipe, tmp_path / str(words))
        assert outcome.test is not None
        assert (outcome.test["accuracy"] > 0.97) == bool(words)
        assert load(tmp_path / str(words)).evaluate(paths[1]).accuracy == outcome.test["accuracy"]
    pipeline = load(tmp_path / "20")
    expected = [answer.labels for answer in pipeline.label(pipeline.source(paths[1]))]
    monkeypatch.setattr("ensue.tasks.labeling.pipeline.CHUNK_WORDS", 3)
    parts = [answer.labels for answer in pipeline.label(pipeline.source(paths[1]), confidence=True)]
    assert parts == expected
    assert (
        pipeline.protocol(pipeline.evaluate(paths[1]))
        == "the sentences of a document are read together, up to 20 words"
    )
    document = paths[1].read_text().split("-DOCSTART- O\n\n")[1]
    (tmp_path / "one.txt").write_text(document)
    assert [answer.labels for answer in pipeline.label(pipeline.source(tmp_path / "one.txt"))] == expected[:2]


def test_validation_sentences_have_no_context_from_training(names: Path) -> None:
    job = LabelingJob(tiny_texts.tagging(names, data={"context_words": 1_000, "valid_fraction": 0.25}))
    assert job.task.passages.firsts.tolist() == [0, len(job.split.train)]
    assert job.split.valid is not None
    assert job.split.train.passage_sizes == [len(job.split.train)]
    assert job.split.valid.passage_sizes == [len(job.split.valid)]


def test_a_context_longer_than_the_encoder_reads_is_refused(names: Path, tmp_path: Path) -> None:
    encoder = tiny_texts.ENCODERS["transformer"] | {"positions": "learned", "context": 64}
    with pytest.raises(RecipeError, match=r"data.context_words is 65; this model \(transformer\) reads up to 64 words"):
        run_tiny(tiny_texts.tagging(names, encoder=encoder, data={"context_words": 65}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_confusion_matrix_of_the_best_weights_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("ensue.tasks.contract.data_set.draw_confusion", lambda *args, **kwargs: drawn.append(args))
    (tmp_path / "names.txt").write_text(tiny_texts.columns(tiny_texts.sentences(60)))
    outcome = run_tiny(tiny_texts.tagging(tmp_path / "names.txt", steps=4), tmp_path / "run")
    assert outcome.valid is not None
    ((labels, matrix, path),) = drawn
    assert path == tmp_path / "run" / "confusion.png"
    counts = {(a, b): matrix[i][j] for i, a in enumerate(labels) for j, b in enumerate(labels)}
    assert sum(counts.values()) == outcome.valid["tokens"]
    wrong = {(record["gold"], record["predicted"]): record["count"] for record in outcome.valid["confusion"]}
    assert wrong == {pair: count for pair, count in counts.items() if count and pair[0] != pair[1]}
