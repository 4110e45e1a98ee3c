"""Language models that start from the weights of another run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ensue.errors import EnsueError, RecipeError, RunError
from ensue.recipe import Recipe, read_recipe
from ensue.runs.directory import continuing_recipe
from ensue.runs.reporter import Facts, Reporter
from ensue.runs.weights import read_tensors
from ensue.training.run import begin_job
from training.tiny import run_tiny, tiny_recipe, words
from training.tiny_masked import masked_recipe, paragraphs

LSTM = {"kind": "lstm", "d_embedding": 6, "d_model": 8, "num_layers": 2}


class NotesReporter(Reporter):
    """Records the notes at the beginning."""

    def started(self, facts: Facts) -> None:
        self.notes = facts.notes


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "first.txt").write_text(words(300))
    (folder / "second.txt").write_text(words(300, seed=1).replace("mat", "box").replace("z", ""))
    (folder / "documents.txt").write_text(paragraphs(40))
    return folder


def first_recipe(texts: Path, kind: str) -> Recipe:
    if kind == "masked":
        return masked_recipe(texts / "documents.txt", train={"steps": 4})
    return tiny_recipe(texts / "first.txt", model=LSTM, steps=4)


@pytest.fixture(scope="module")
def origins(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("origins")
    for kind in ("causal", "masked"):
        run_tiny(first_recipe(texts, kind), folder / kind)
    return {kind: folder / kind for kind in ("causal", "masked")}


def second_recipe(origin: Path, texts: Path, **settings: Any) -> Recipe:
    """Return the recipe of a run for another text, starting from its weights."""
    name = "documents" if origin.name == "masked" else "second"
    changes = {"encoder.from": str(origin), "data.train": str(texts / f"{name}.txt")}
    return read_recipe(str(origin / "recipe.toml"), changes | settings)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_run_starts_from_weights_of_another(kind: str, origins: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    origin, noted = origins[kind], NotesReporter()
    recipe = second_recipe(origin, texts, **{"train.steps": 1, "train.learning_rate": 1e-30})
    run_tiny(recipe, tmp_path / "run", reporter=noted)
    before, after = (read_tensors(run / "model.safetensors") for run in (origin, tmp_path / "run"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (origin / "tokenizer.json").read_bytes()
    (note,) = [note for note in noted.notes if "begins" in note]
    size = len(before["features.weight"])
    assert note == f"begins from {origin}: {size:,} of {size:,} symbols have vectors of that run"


def test_symbols_keep_rows_and_new_symbols_get_the_mean(origins: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    recipe = second_recipe(origins["causal"], texts, **{"tuning.vocabulary": "own"})
    job: Any = begin_job(recipe, None)
    model = job.build_model()
    theirs, old = job.origins[0].run.parts.symbols, read_tensors(origins["causal"] / "model.safetensors")
    ours = job.parts.symbols
    assert "x" in set(ours) - set(theirs)
    for name in ("features.weight", "head.weight", "head.bias"):
        table = model.get_parameter(name)
        for row, symbol in enumerate(ours):
            expected = old[name][theirs.index(symbol)] if symbol in theirs else old[name].mean(0)
            torch.testing.assert_close(table[row], expected)
        assert job.inherited[name].tolist() == [symbol in theirs for symbol in ours]
    assert job.inherited["layers.layers.0.weight_input"] is None
    shared = len(set(ours) & set(theirs))
    assert f"{shared} of {len(ours)} symbols have vectors of that run, other symbols" in " ".join(job.notes)


def test_dropout_may_differ_from_the_origin(origins: dict[str, Path], texts: Path) -> None:
    settings = {"encoder.dropout": 0.2, "encoder.dropout_recurrent": 0.5, "encoder.dropout_input": 0.1}
    job = begin_job(second_recipe(origins["causal"], texts, **settings), None)
    model: Any = job.build_model()
    old = read_tensors(origins["causal"] / "model.safetensors")
    assert {name: None for name, _ in model.named_parameters()} == dict(job.inherited)
    weights = [p for name, p in model.named_parameters() if name.endswith("weight_hidden")]
    expected = [value for name, value in sorted(old.items()) if name.endswith("weight_hidden")]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(weights, expected, strict=True))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"encoder.d_model": 16}, RecipeError, r"encoder.d_model is 16; it is 8 in .*causal, from which"),
        ({"tokens.tied": True}, RecipeError, "tokens.tied is True; it is False in"),
        ({"encoder.kind": "peephole"}, RecipeError, "encoder.kind is 'peephole'; it is 'lstm'"),
        ({"encoder.from": "masked"}, RecipeError, "masked is a masked language model; a language model begins from a"),
        ({"encoder.from": "missing"}, RunError, "missing: no such run directory"),
    ],
)
def test_settings_that_do_not_match_the_origin_are_errors_of_one_line(
    settings: dict[str, Any], error: type[Exception], message: str, origins: dict[str, Path], texts: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    if "encoder.from" in settings:
        settings = {"encoder.from": str(origins["causal"].parent / settings["encoder.from"])}
    recipe = second_recipe(origins["causal"], texts, **settings)
    with pytest.raises(error, match=message) as caught:
        run_tiny(recipe, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_vocabularies_of_different_kinds_are_not_merged(origins: dict[str, Path], texts: Path) -> None:
    recipe = second_recipe(origins["causal"], texts, **{"tuning.vocabulary": "both", "tokenizer.kind": "words"})
    with pytest.raises(RecipeError, match="both is for tokens of one kind; found characters and words "):
        begin_job(recipe, None)


@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")
def test_a_masked_model_gets_pieces_for_unknown_words(origins: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text((texts / "documents.txt").read_text().replace("e", "ж"))
    job: Any = begin_job(continuing_recipe(origins["masked"], train=tmp_path / "new.txt"), None)
    old, symbols = job.origins[0].run.parts.symbols, job.parts.symbols
    assert symbols[: len(old)] == old
    assert "ж" in symbols[len(old) :]
    assert not job.corpus.train.unknown
    table = read_tensors(origins["masked"] / "model.safetensors")["features.weight"]
    assert torch.equal(job.build_model().features.weight[: len(old)], table)


def test_a_run_cannot_overwrite_its_origin(texts: Path, tmp_path: Path) -> None:
    recipe = first_recipe(texts, "causal")
    run_tiny(recipe, tmp_path / "run")
    again = read_recipe(recipe, {"encoder.from": str(tmp_path / "run")})
    with pytest.raises(EnsueError, match="is the same as"):
        run_tiny(again, tmp_path / "run", overwrite=True)


def test_other_tasks_refuse_encoder_from(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"\S: has encoder\.from, which a .* does not support"):
        read_recipe("translate-transformer", {"encoder.from": str(tmp_path)})
