"""`ensue train --from RUN`: training starts from all weights of a run, with new words and labels."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ensue
from command_fixtures import Ensue
from ensue.errors import EnsueError
from ensue.recipe import read_recipe
from ensue.runs.directory import continuing_recipe
from ensue.tasks import task_entry
from training.tiny import run_tiny
from training.tiny_pairs import pair_recipe
from training.tiny_texts import classifying, documents, tsv

NEW = "text\tlabel\n" + "".join(
    f"{word}{n % 4} eta{n}\t{label}\n" for n in range(12) for word, label in (("zeta", "greek"), ("rot", "colors"))
)
Refused = Callable[..., str]
pytestmark = pytest.mark.filterwarnings("ignore::ensue.notices.Notice")


@pytest.fixture
def command_line(ensue: Ensue) -> Ensue:
    """Rename the fixture `ensue`, since the module imports the package."""
    return ensue


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier of n-grams, and data with new words and labels."""
    folder = tmp_path_factory.mktemp("continuing")
    (folder / "old.tsv").write_text(tsv(documents(60)))
    (folder / "new.tsv").write_text(NEW)
    head = {"ngrams": 2, "ngram_buckets": 512, "pooling": []}
    run_tiny(classifying(folder / "old.tsv", encoder="none", head=head, steps=10), folder / "old")
    return folder


def job_of(recipe: Any) -> Any:
    job = task_entry(recipe.task).job_class(recipe)
    return job, job.build_model()


def test_new_labels_do_not_change_scores_of_old_labels(folder: Path) -> None:
    old = ensue.load(folder / "old", device="cpu")
    recipe = continuing_recipe(folder / "old", None, ["tuning.rehearse=false"], train=folder / "new.tsv")
    job, model = job_of(recipe)
    assert set(job.parts.labels.names) == {*old.labels.names, "greek", "colors"}
    words = old.reader.lexicon.words
    assert job.parts.lexicon.words.symbols[: len(words.symbols)] == words.symbols
    ids = torch.arange(1, min(9, len(words.symbols)))[None]
    model.eval()
    columns = [job.parts.labels.names.index(name) for name in old.labels.names]
    with torch.no_grad():
        before, after = old.model.bag(ids), model.bag(ids)
    torch.testing.assert_close(after[:, columns], before)
    mask = job.inherited["bag.weight"]
    assert 0 < int(mask.sum()) < len(mask)


@pytest.mark.parametrize(
    ("run", "rehearses"), [("names", True), ("upos", False), ("topics", False), ("several", False)]
)
def test_a_run_is_continued_with_its_own_recipe(runs: Path, tmp_path: Path, run: str, *, rehearses: bool) -> None:
    data = next(path for path in runs.glob(f"{run}.*") if path.is_file())
    new = tmp_path / f"new{data.suffix}"
    new.write_text(data.read_text())
    recipe: Any = continuing_recipe(runs / run, train=new)
    assert (recipe.encoder.origin, recipe.tuning.keep_labels, recipe.tuning.rehearse) == (
        str(runs / run),
        True,
        rehearses,
    )
    assert recipe.data.train == (str(new) if rehearses else json.dumps([str(data), str(new)]))
    assert recipe.data.valid == ""
    job, model = job_of(recipe)
    old = ensue.load(runs / run, device="cpu")
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert names <= job.inherited.keys() | {"bag.ratio"}
    for ours, theirs in zip(model.layers.parameters(), old.model.layers.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("settings", "train", "reads"),
    [
        ([], "new.tsv", ["old.tsv", "new.tsv"]),
        (["tuning.rehearse=false"], "new.tsv", ["new.tsv"]),
        ([], "old.tsv", ["old.tsv"]),
        ([], "new.csv", ["new.csv"]),
        (["train.steps=7"], ["old.tsv", "new.tsv"], ["old.tsv", "new.tsv"]),
    ],
)
def test_old_data_are_read_again(folder: Path, settings: list[str], train: str | list[str], reads: list[str]) -> None:
    (folder / "new.csv").write_text(NEW.replace("\t", ","))
    paths = [str(folder / name) for name in ([train] if isinstance(train, str) else train)]
    recipe: Any = continuing_recipe(folder / "old", None, settings, train=paths)
    expected = [str(folder / name) for name in reads]
    assert recipe.data.train == (expected[0] if len(expected) == 1 else json.dumps(expected))


def test_old_data_that_have_changed_are_not_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Another machine may have other data of the same name."""
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    run_tiny(classifying(Path("old.tsv"), encoder="none", steps=1), tmp_path / "relative")
    recipe: Any = continuing_recipe(tmp_path / "relative", train="new.tsv")
    assert recipe.data.train == json.dumps(["old.tsv", "new.tsv"])
    Path("old.tsv").write_text(NEW)
    recipe = continuing_recipe(tmp_path / "relative", train="new.tsv")
    assert recipe.data.train == "new.tsv"
    assert "may be forgotten (the content of the file has changed)" in str(recwarn.list[-1].message)


def test_command_and_function_give_the_same_labels(command_line: Ensue, folder: Path, tmp_path: Path) -> None:
    command = (
        "train", "--from", folder / "old", "--train", folder / "new.tsv", "--threads", 1, "--set", "train.steps=9",
    )  # fmt: skip
    assert command_line(*command, "--out", tmp_path / "more").status == 0
    more = ensue.train(from_run=folder / "old", train=folder / "new.tsv", out=tmp_path / "same", threads=1,
                       settings={"train.steps": 9})  # fmt: skip
    assert ensue.load(tmp_path / "more").labels.names == more.labels.names
    assert len(more.labels.names) == len(ensue.load(folder / "old").labels.names) + 2


def test_runs_that_cannot_be_continued_are_refused(
    refused: Refused, folder: Path, vectors: Path, translators: Path, trained: Path, tmp_path: Path
) -> None:
    wrong = refused("train", "--from", vectors, "--train", folder / "new.tsv", "--out", tmp_path / "x")
    assert "expected a tagger, a classifier, a translator or a language model" in wrong
    both = refused("train", "--from", folder / "old", "--resume", "--out", folder / "old")
    assert "choose one" in both
    assert "no such run directory" in refused(
        "train", "--from", folder / "none", "--train", "a", "--out", tmp_path / "x"
    )
    assert "no training data" in refused("train", "--from", folder / "old", "--out", tmp_path / "x")
    (tmp_path / "new.txt").write_text("on a mat\n" * 400)
    data = folder / "new.tsv", translators / "other.tsv", tmp_path / "new.txt"
    for run, new in zip((folder / "old", translators / "one", trained / "lstm"), data, strict=True):
        assert f"--from {run} begins a new run" in refused("train", "--resume", "--train", new, "--out", run)
    with pytest.raises(EnsueError, match="expected the name of a recipe"):
        ensue.train(train=folder / "new.tsv", out=tmp_path / "x")


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_a_language_model_is_continued(trained: Path, model: str) -> None:
    recipe: Any = continuing_recipe(trained / model, train=trained / "text.txt")
    _, ours = job_of(recipe)
    theirs = ensue.load(trained / model, device="cpu").model
    for name, parameter in theirs.named_parameters():
        assert torch.equal(dict(ours.named_parameters())[name], parameter), name
    assert read_recipe(recipe).data.train == str(trained / "text.txt")


def test_a_translator_is_continued(translators: Path, trained: Path, tmp_path: Path) -> None:
    recipe: Any = continuing_recipe(translators / "one", train=translators / "other.tsv")
    assert recipe.data.train == json.dumps([str(translators / f"{name}.tsv") for name in ("train", "other")])
    job, model = job_of(recipe)
    old = ensue.load(translators / "one", device="cpu")
    before, after = (parts.source.tokenizer.symbols for parts in (old.coder, job.parts.coder))
    assert {*"bcdefgh"} <= {*after[len(before) :]}
    assert after[: len(before)] == before
    special = slice(len(before), old.coder.source.vocabulary_size), slice(len(after), None)
    for name, parameter in old.model.named_parameters():
        ours, known = dict(model.named_parameters())[name], job.inherited[name]
        assert torch.equal(ours if known is None else ours[known], parameter), name
        assert (known is None) == (ours.shape == parameter.shape), name
        if known is not None:
            assert torch.equal(ours[special[1]], parameter[special[0]]), name
            torch.testing.assert_close(ours[~known][0], parameter.mean(0))
    assert job.inherited.keys() == dict(model.named_parameters()).keys()
    run_tiny(read_recipe(recipe, {"train.steps": 1}), tmp_path / "more")
    run_tiny(read_recipe(recipe, {"train.steps": 2}), tmp_path / "more", resume=True)
    for changes in ({"decoder.d_model": 12}, {"decoder.num_heads": 1}):  # the second change keeps all sizes of weights
        with pytest.raises(EnsueError, match=r"\(decoder\.from\); a recipe that fits is .*one/recipe\.toml"):
            job_of(read_recipe(recipe, changes))
    with pytest.raises(EnsueError, match=r"has another head\..*; expected the sizes in its recipe"):
        job_of(read_recipe(recipe, {"head.copying": True, "tokenizer.kind": "words"}))
    with pytest.raises(EnsueError, match=r"decoder\.from: .* is a language model; a sequence-to-sequence model begins"):
        job_of(read_recipe(recipe, {"decoder.from": str(trained / "lstm")}))


def test_aligned_files_are_read_again(in_tmp_path: None) -> None:
    for name, word in {"a.en": "one", "a.de": "eins", "b.en": "three", "b.fr": "trois"}.items():
        Path(name).write_text("".join(f"{word} {number}\n" for number in range(9)))
    run_tiny(pair_recipe(Path("a.en,a.de"), train={"steps": 1, "samples": 0}), Path("run"))
    recipe = continuing_recipe("run", train="b.en,b.fr")
    assert recipe.data.train == '["a.en,a.de", "b.en,b.fr"]'
    assert {"three", "trois"} <= {*job_of(recipe)[0].parts.coder.target.tokenizer.symbols}
    Path("a.de").write_text("zwei\n" * 9)
    assert continuing_recipe("run", train="b.en,b.fr").data.train == "b.en,b.fr"


def test_new_characters_of_a_language_model_follow_the_old_ones(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("Äß Öß " * 60 + (trained / "text.txt").read_text())
    recipe: Any = continuing_recipe(trained / "lstm", train=tmp_path / "new.txt")
    assert recipe.data.train == json.dumps([str(trained / "text.txt"), str(tmp_path / "new.txt")])
    job, model = job_of(recipe)
    assert job.corpus.valid.characters == len((tmp_path / "new.txt").read_text()) // 10 + 1
    assert job.corpus.split == f"the last 10% of {tmp_path / 'new.txt'}"
    old = ensue.load(trained / "lstm", device="cpu")
    symbols = old.tokenizer.symbols
    assert job.parts.tokenizer.symbols[: len(symbols)] == symbols
    assert "ß" in job.parts.tokenizer.symbols[len(symbols) :]
    assert torch.equal(model.features.weight[: len(symbols)], old.model.features.weight)


def test_a_linear_tagger_learns_from_the_old_and_the_new_data(tmp_path: Path) -> None:
    """Its weights do not depend on initial weights, so without the old data old labels are forgotten."""
    for name, city in (("old", "LOC"), ("new", "CITY")):
        rows = "".join(f"Anna B-PER\nsees O\nOslo B-{city}\n{name}{number} O\n\n" for number in range(8))
        (tmp_path / f"{name}.conll").write_text(rows)
    ensue.train("tag-linear", train=tmp_path / "old.conll", out=tmp_path / "old", threads=1)
    for settings, classes in ({}, {"PER", "LOC", "CITY"}), ({"tuning.rehearse": False}, {"PER", "CITY"}):
        options: dict[str, Any] = {"settings": settings, "train": tmp_path / "new.conll", "threads": 1}
        model = ensue.train(from_run=tmp_path / "old", out=tmp_path / "all", overwrite=True, **options)
        assert {label.partition("-")[2] for label in model.labels.names} - {""} == classes  # type: ignore[attr-defined]
