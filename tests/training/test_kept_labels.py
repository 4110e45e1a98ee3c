"""Taggers and classifiers that start from all weights of another one, with new labels."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import ensue
from ensue.errors import RecipeError
from ensue.recipe import validate_recipe
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.job import ClassificationJob
from ensue.tasks.labeling.job import LabelingJob
from ensue.text.schemes import Span, encode, spans
from ensue.training.run import begin_job
from training.tiny import run_tiny
from training.tiny_texts import Tagged, classifying, columns, documents, sentences, tagging, tsv


def only(tagged: list[Tagged], label: str) -> str:
    """Return sentences with only the spans of one class."""
    return columns([one._replace(spans=[span for span in one.spans if span.label == label]) for one in tagged])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger of persons, and data in which only places are annotated."""
    path = tmp_path_factory.mktemp("labels")
    (path / "persons.txt").write_text(only(sentences(60), "PER"))
    places = sentences(60, seed=1)
    places[0] = Tagged(["Unseen", "Lima"], ["X", "X"], [Span("LOC", 1, 2)])
    places[1] = Tagged(["Anna", "Novak", "sees"], ["X", "X", "X"], [Span("LOC", 0, 2)])  # the tagger finds a person
    (path / "places.txt").write_text(only(places, "LOC"))
    run_tiny(tagging(path / "persons.txt", head={"kind": "crf"}, steps=30), path / "persons")
    return path


def more(folder: Path, **changes: Any) -> Any:
    """Return a recipe for places that starts from the tagger of persons."""
    document = tagging(folder / "places.txt", head={"kind": "crf"}, steps=20).model_dump()
    document["encoder"]["from"] = str(folder / "persons")
    document["tuning"] = {"keep_labels": True, "rehearse": True}
    for key, value in changes.items():
        table, _, name = key.partition("__")
        document[table][name] = value
    return validate_recipe(document, where="tiny")


def test_weights_of_old_labels_and_words_are_kept(folder: Path) -> None:
    old, job = ensue.load(folder / "persons", device="cpu"), LabelingJob(more(folder))
    model, theirs, tags = job.build_model(), old.model, job.parts.labels.tags
    assert job.parts.labels.names == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    for symbol, row in old.labels.tags.ids.items():
        assert torch.equal(model.head.projection.weight[tags.ids[symbol]], theirs.head.projection.weight[row])
        assert model.head.crf.end[tags.ids[symbol]] == theirs.head.crf.end[row]
        for other, column in old.labels.tags.ids.items():
            pair = tags.ids[symbol], tags.ids[other]
            assert model.head.crf.transitions[pair] == theirs.head.crf.transitions[row, column]
    assert not model.head.crf.transitions[tags.ids["S-LOC"]].any()
    known = job.inherited["head.projection.weight"]
    assert known is not None
    assert [tag for tag, is_old in zip(tags.symbols, known.tolist(), strict=True) if is_old] == list(
        old.labels.tags.symbols
    )
    words = old.reader.lexicon.words.symbols
    assert job.parts.lexicon.words.symbols[: len(words)] == words
    assert "unseen" in job.parts.lexicon.words.ids
    table = theirs.features.words.weight
    assert torch.equal(model.features.words.weight[: len(words)], table)
    torch.testing.assert_close(model.features.words.weight[-1], table.mean(0))
    for ours, of_origin in zip(model.layers.parameters(), theirs.layers.parameters(), strict=True):
        assert torch.equal(ours, of_origin)


def test_spans_of_the_old_model_are_added_to_new_texts_where_they_do_not_overlap(folder: Path) -> None:
    plain, job = LabelingJob(more(folder, tuning__rehearse=False)), LabelingJob(more(folder))
    old = ensue.load(folder / "persons", device="cpu")
    for part, unchanged in ((job.split.train, plain.split.train), (job.split.valid, plain.split.valid)):
        assert part is not None
        assert unchanged is not None
        answers = old.predict([unchanged.texts[row] for row in range(len(unchanged))])
        for labels, before, answer in zip(part.labels, unchanged.labels, answers, strict=True):
            gold = spans(before)
            taken = {place for span in gold for place in range(span.start, span.end)}
            added = [s for s in spans(answer.labels) if not taken & set(range(s.start, s.end))]
            assert labels == encode([*gold, *added], len(labels), "bio")
    assert "PER" in {span.label for labels in job.split.train.labels for span in spans(labels)}
    assert any("put into the training and validation data" in note for note in job.notes)


@pytest.mark.slow
def test_a_run_with_new_labels_needs_no_origin(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "persons", tmp_path / "persons")
    recipe = more(folder, encoder__from=str(tmp_path / "persons"), train__steps=3)
    run_tiny(recipe, tmp_path / "both")
    shutil.rmtree(tmp_path / "persons")
    tagger = ensue.load(tmp_path / "both", device="cpu")
    assert tagger.labels.names == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    assert (tmp_path / "both" / "origins" / "0" / "model.safetensors").exists()
    (answer,) = tagger.predict([["Anna", "Novak", "sees"]])
    assert len(answer.labels) == 3
    assert len(LabelingJob(recipe, RunDirectory(tmp_path / "both")).parts.labels.names) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder__d_model": 9}, "encoder.d_model is 9; it is 8"),
        ({"head__kind": "softmax"}, "head.kind is 'softmax'"),
        ({"encoder__from": ""}, "has tuning.keep_labels, but no encoder.from"),
        ({"tuning__keep_labels": False}, "has tuning.rehearse, which requires tuning.keep_labels"),
        ({"features__vectors": "glove.txt"}, "excludes features.vectors"),
        ({"head__scheme": "bio"}, "head.scheme is 'bio'"),
        ({"data__labels": "2"}, "tuning.rehearse requires labels that encode spans"),
    ],
)
def test_settings_that_contradict_kept_labels_are_refused(changes: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(RecipeError, match=message) as refused:
        LabelingJob(more(folder, **changes))
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_classifier_keeps_weights_of_old_classes(tmp_path: Path) -> None:
    for name, labels in (("a", {"cooking", "sports"}), ("b", {"cooking", "music"})):
        (tmp_path / f"{name}.tsv").write_text(tsv([text for text in documents(60) if labels.issuperset(text.labels)]))
    run_tiny(classifying(tmp_path / "a.tsv", steps=2), tmp_path / "a")
    document = classifying(tmp_path / "b.tsv").model_dump()
    document["encoder"]["from"], document["tuning"] = str(tmp_path / "a"), {"keep_labels": True}
    old, job = ensue.load(tmp_path / "a", device="cpu"), ClassificationJob(validate_recipe(document, where="tiny"))
    model = job.build_model()
    assert job.parts.labels.names == ("cooking", "music", "sports")
    assert torch.equal(model.head[-1].weight[[0, 2]], old.model.head[-1].weight)
    document["tuning"]["rehearse"] = True
    with pytest.raises(RecipeError, match=r"tuning\.rehearse of a classifier needs from_run=\"RUN\""):
        begin_job(validate_recipe(document, where="tiny"), None)
