"""The layers of other runs as features of taggers and classifiers: kept or worked out, read alone or together."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue import cache
from ensue.data.compact_texts import Ragged, Texts
from ensue.errors import EnsueError, RecipeError, RunError
from ensue.notices import Notice
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for, origins_in
from ensue.tasks.contextual import pooled_words
from ensue.tasks.poolings import POOLINGS
from ensue.tasks.words import contextual, kept_vectors
from ensue.tasks.words.contextual import ContextualFeatures, rounded
from ensue.tasks.words.recipe import WordsRecipe
from ensue.training.run import begin_job
from training.classifiers import TEXTS
from training.resuming import assert_resumes
from training.taggers import TAGGED
from training.tiny import run_tiny, seal, some_slow, tiny_recipe
from training.tiny import words as running_text
from training.tiny_masked import masked_recipe
from training.tiny_pairs import pair_recipe
from training.tiny_pairs import pairs as source_and_target
from training.tiny_texts import ENCODERS, classifying, pairs, tagging, without_pictures

CPU = torch.device("cpu")


def silent(what: str, share: float) -> None:
    pass


WORDS = [["the", "old", "bird"], [], ["\x00", "house", ""], ["the", "old", "bird"], ["Anna", "sees"] * 20]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contextual")
    sentences = [" ".join(sentence.words) for sentence in TAGGED] + [document.text for document in TEXTS]
    (folder / "text.txt").write_text("\n".join(sentences) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        without_pictures(patch)
        recipe = masked_recipe(folder / "text.txt", train={"steps": 2, "validations": 1}, encoder={"d_model": 8})
        run_tiny(recipe, folder / "masked")
    return folder / "masked"


def features(recipe: WordsRecipe, run: Path | None = None) -> ContextualFeatures:
    origins = origins_for(recipe.origins, None if run is None else RunDirectory(run))
    return ContextualFeatures.of(recipe.features, origins, CPU)


def of(origin: Path, **changes: Any) -> dict[str, Any]:
    return {"contextual": [str(origin)], "dropout_words": 0.0} | {f"contextual_{k}": v for k, v in changes.items()}


def texts_of(sentences: list[list[str]]) -> Texts:
    texts = Texts()
    for words in sentences:
        texts.append(words)
    return texts


PLACES = {
    "input": of(Path(), at="input"),
    "behind the only layer": of(Path(), at="first-layer"),
    "both": of(Path(), at="both", layers=[0, -1], pooling="first"),
    "side by side": of(Path(), mix="concatenate", pooling="last"),
    "alone": of(Path()) | {"d_words": 0},
}


@pytest.mark.parametrize("place", some_slow(PLACES, "both"))
def test_a_tagger_is_whole_without_its_origin(place: str, origin: Path, names: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(origin, tmp_path / "origin"))
    recipe = tagging(names, features=PLACES[place] | {"contextual": [str(run)]})
    run_tiny(recipe, tmp_path / "run")
    sentences = [sentence.words for sentence in TAGGED[:20]]
    before = [found.labels for found in ensue.load(tmp_path / "run", device="cpu").predict(sentences)]
    shutil.rmtree(run)
    model = ensue.load(tmp_path / "run", device="cpu")
    assert [found.labels for found in model.predict(sentences)] == before
    assert [model.predict([words])[0].labels for words in sentences] == before
    assert model.evaluate(names).as_json() == ensue.load(tmp_path / "run", device="cpu").evaluate(names).as_json()
    (found,) = origins_in(RunDirectory(tmp_path / "run"))
    assert found.path == str(run)
    assert found.sha256[:12] in (tmp_path / "run" / "README.md").read_text()
    page = model.inspect(sentences[0]).page
    assert f"run {run}" in page


def test_training_and_prediction_read_the_same(origin: Path, names: Path, tmp_path: Path) -> None:
    """So the scores of the validation are those of `evaluate`, to the bit, although one is kept and one worked out."""
    recipe = tagging(names, features=of(origin), data={"valid": str(names), "context_words": 30})
    outcome = run_tiny(recipe, tmp_path / "run")
    assert ensue.load(tmp_path / "run", device="cpu").evaluate(names).as_json() == outcome.valid


def test_kept_is_worked_out(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_vectors, "WINDOW_WORDS", 4)
    (one,) = features(tagging(origin, features=of(origin, layers=[-1, 0]))).origins
    texts = texts_of(WORDS)
    words = Ragged(texts.words.ids, texts.starts)
    kept = one.kept(words, texts.words.values, silent)
    (computed,) = ContextualFeatures([one]).computed(WORDS)
    for rows in ([0, 1, 2, 3, 4], [4, 1], [1], [2, 0]):
        found, expected = kept.rows(np.array(rows)), computed.rows(np.array(rows))
        assert found.shape == expected.shape == (len(rows), max(len(WORDS[row]) for row in rows), 2, 8)
        np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=2e-3)
    (layers,) = one.pipeline.layers_of_words([WORDS[0]])
    np.testing.assert_allclose(kept.rows(np.array([0]))[0], layers[[2, 0]].transpose(1, 0, 2), atol=2e-3)
    assert isinstance(kept, kept_vectors.KeptVectors)
    assert len(kept.file) == 1 + 3 + 3 + 40  # a text that comes again is kept once
    part = one.kept(Ragged(texts.words.ids, texts.starts[2:]), texts.words.values, silent)
    np.testing.assert_array_equal(part.rows(np.array([0, 2])), kept.rows(np.array([2, 4])))


def test_what_is_kept_is_read_again_unless_it_is_damaged(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    (one,) = features(tagging(names, features=of(origin))).origins
    texts = texts_of(WORDS)
    words, row = Ragged(texts.words.ids, texts.starts), np.array([0])
    before = one.kept(words, texts.words.values, silent).rows(row)
    (entry,) = [found for found in cache.entries() if "vectors" in found.kind.noun]
    stamp = entry.path.stat().st_ino
    assert np.array_equal(one.kept(words, texts.words.values, silent).rows(row), before)
    assert entry.path.stat().st_ino == stamp
    entry.path.write_bytes(entry.path.read_bytes()[:-1])
    assert np.array_equal(one.kept(words, texts.words.values, silent).rows(row), before)
    assert entry.path.stat().st_size == entry.size
    (other,) = features(tagging(names, features=of(origin, pooling="last"))).origins
    other.kept(words, texts.words.values, silent)
    assert len([found for found in cache.entries() if "vectors" in found.kind.noun]) == 2


def test_it_is_told_how_much_is_worked_out(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_vectors, "WINDOW_WORDS", 4)
    (one,), texts = features(tagging(names, features=of(origin))).origins, texts_of(WORDS)
    told: list[tuple[str, float]] = []
    for _ in range(2):  # the second time it is there
        one.kept(Ragged(texts.words.ids, texts.starts), texts.words.values, lambda *what: told.append(what))
    assert [what for what, _ in told] == [f"layers of {origin}"] * 2
    assert [share for _, share in told] == [6 / 46, 1.0]


def test_a_config_without_the_origin_is_one_line(origin: Path, names: Path, tmp_path: Path) -> None:
    run_tiny(tagging(names, features=of(origin), steps=2), tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"origins": []}))
    seal(tmp_path / "run")
    with pytest.raises(RunError, match=r"config.json: damaged: no origin .*masked.*, which recipe.toml names"):
        ensue.load(tmp_path / "run", device="cpu")


def test_what_the_cache_cannot_hold_is_worked_out_again(
    origin: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, and a line that says what is faster."""
    (one,), texts = features(tagging(names, features=of(origin))).origins, texts_of(WORDS)
    words, forms, rows = Ragged(texts.words.ids, texts.starts), texts.words.values, np.array([0, 3])
    kept = one.kept(words, forms, silent)
    monkeypatch.setattr(kept_vectors, "bound", lambda: 1_000)
    with pytest.warns(
        Notice, match=r"the layers of .*masked at 49 words are more than the cache holds, and are worked"
    ):
        again = one.kept(words, forms, silent)
    assert isinstance(again, contextual.ComputedVectors)
    np.testing.assert_allclose(again.rows(rows).astype(float), kept.rows(rows).astype(float), atol=2e-3)


@pytest.mark.slow
def test_training_that_keeps_nothing_is_the_same(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tagging(names, features=of(origin), data={"valid": str(names), "context_words": 30})
    kept = run_tiny(recipe, tmp_path / "kept")
    monkeypatch.setattr(kept_vectors, "bound", lambda: 10_000)
    with pytest.warns(Notice, match="are more than the cache holds"):
        outcome = run_tiny(recipe, tmp_path / "run")
    assert outcome.valid == kept.valid


def test_layers_are_worked_out_on_the_device_of_the_run(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[torch.device] = []
    monkeypatch.setattr(contextual.OriginVectors, "move", lambda self, device: devices.append(device))
    run_tiny(tagging(names, features=of(origin), steps=1), tmp_path / "run")
    assert devices == [CPU]
    with pytest.raises(EnsueError, match='no device "meta"'):
        run_tiny(tagging(names, features=of(origin), steps=1), tmp_path / "other", device="meta")


def test_resumed_is_undisturbed_without_cache_and_origin(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(origin, tmp_path / "origin"))
    changes = of(run, at="both") | {"dropout": 0.2}
    recipe = tagging(names, features=changes, checkpoint_every=4, data={"context_words": 40})
    assert_resumes(recipe, tmp_path)
    run_tiny(
        tagging(names, features=changes, steps=6, checkpoint_every=6, data={"context_words": 40}), tmp_path / "six"
    )
    shutil.rmtree(run)
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "another cache"))
    longer = ensue.recipe.read_recipe(RunDirectory(tmp_path / "six").recipe, {"train.steps": 9})
    assert run_tiny(longer, tmp_path / "six", resume=True).step == 9


@pytest.mark.parametrize("kind", some_slow(["texts", "pairs", "segments"], "pairs"))
def test_classifiers_have_them_too(kind: str, origin: Path, topics: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"features": of(origin, at="both")}
    data: Any = [document.text for document in TEXTS[:10]]
    if kind == "pairs":
        topics.write_text(pairs(40))
        data = [("salt oven", "piano"), ("the goal", "team team race"), ("", "choir")]
    if kind == "segments":
        changes |= {"data": {"segment_tokens": 2}, "encoder": ENCODERS["lstm"] | {"bidirectional": False}}
    run_tiny(classifying(topics, **changes), tmp_path / "run")
    model = ensue.load(tmp_path / "run", device="cpu")
    together = [found.probabilities for found in model.predict(data)]
    alone = [model.predict([text])[0].probabilities for text in data]
    assert [list(found.values()) for found in alone] == [
        pytest.approx(list(found.values()), abs=1e-4) for found in together
    ]
    assert model.evaluate(topics).as_json()["examples"]
    assert model.inspect(data[0])


def test_two_runs_are_side_by_side(origin: Path, names: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(origin, tmp_path / "other"))
    recipe = tagging(names, features=of(origin) | {"contextual": [str(origin), str(other)]})
    run_tiny(recipe, tmp_path / "run")
    model = ensue.load(tmp_path / "run", device="cpu").model
    assert model.layers.d_in == 8 + 8 + 8
    names_of_parameters = [name for name, _ in model.named_parameters() if "contextual" in name]
    assert len(names_of_parameters) == 2 * 2  # scores and γ; the runs themselves are no parameters


def test_gradients_reach_the_weights_of_layers(origin: Path, names: Path, tmp_path: Path) -> None:
    run_tiny(tagging(names, features=of(origin, at="both")), tmp_path / "run")
    for name, weight in ensue.load(tmp_path / "run", device="cpu").model.named_parameters():
        if "contextual" in name:
            start = torch.ones(()) if name.endswith("gamma") else torch.zeros(3)
            assert not torch.equal(weight, start), name


@pytest.mark.parametrize("kind", some_slow(["language model", "translator"], "translator"))
def test_layers_of_other_models_are_features_too(kind: str, names: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    if kind == "translator":
        path.write_text(source_and_target(20))
        run_tiny(pair_recipe(path, train={"steps": 1, "validations": 1}), tmp_path / "origin")
    else:
        path.write_text(running_text(300))
        run_tiny(tiny_recipe(path, steps=1, validations=1), tmp_path / "origin")
    outcome = run_tiny(tagging(names, features=of(tmp_path / "origin"), data={"valid": str(names)}), tmp_path / "run")
    shutil.rmtree(tmp_path / "origin")
    assert ensue.load(tmp_path / "run", device="cpu").evaluate(names).as_json() == outcome.valid


BAD = {
    "no run": ({"contextual": ["nowhere"]}, RunError, "nowhere: no such run directory; an origin in the recipe is the"),
    "a layer too many": ({"contextual_layers": [3]}, RecipeError, r"masked has the layers 0 to 2; found 3"),
    "twice": ({"contextual": ["a", "a"]}, RecipeError, "features.contextual names a run twice"),
    "no text": ({"contextual": "run"}, RecipeError, "features.contextual"),
    "behind what is no layer": (
        {"contextual_at": "first-layer", "encoder": "transformer"}, RecipeError, "needs recurrent layers one after",
    ),
    "nothing at the input": (
        {"contextual_at": "first-layer", "d_words": 0}, RecipeError, "features: all are switched off",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_recipes_are_one_line(case: str, origin: Path, names: Path, tmp_path: Path) -> None:
    changes, kind, message = BAD[case]
    changes = of(origin) | changes
    encoder = changes.pop("encoder", "lstm")
    with pytest.raises(EnsueError, match=message) as caught:
        run_tiny(tagging(names, features=changes, encoder=encoder), tmp_path / "run")
    assert isinstance(caught.value, kind)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_run_without_such_vectors_is_one_line(names: Path, tmp_path: Path) -> None:
    run_tiny(tagging(names, steps=2), tmp_path / "tagger")
    with pytest.raises(
        RecipeError, match="a run of a tagger, which gives no vectors of words in their sentences; expect"
    ):
        run_tiny(tagging(names, features=of(tmp_path / "tagger")), tmp_path / "run")
    with pytest.raises(RunError, match="cannot begin from itself"):
        run_tiny(tagging(names, features=of(tmp_path / "tagger")), tmp_path / "tagger", overwrite=True)
    assert (tmp_path / "tagger" / "config.json").exists()


def test_last_pooling_is_not_over_what_goes_past(origin: Path, topics: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r'head\.pooling = "last" does not go with'):
        run_tiny(classifying(topics, features=of(origin, at="first-layer"), head={"pooling": ["last"]}), tmp_path / "r")


@pytest.mark.parametrize("pooling", POOLINGS)
def test_words_are_pooled_one_by_one(pooling: str) -> None:
    random = np.random.default_rng(0)
    counts, pool = [2, 0, 1, 3, 0], POOLINGS[pooling]
    vectors = random.normal(size=(2, 6, 4)).astype(np.float32)
    found = pooled_words(vectors, counts, pool)
    assert found.shape == (2, 5, 4)
    for word, (begin, count) in enumerate(zip([0, 2, 2, 3, 6], counts, strict=True)):
        for layer in range(2):
            expected = pool(vectors[layer, begin : begin + count]) if count else np.zeros(4)
            np.testing.assert_array_equal(found[layer, word], expected)


def test_numbers_that_are_too_large_are_the_largest() -> None:
    found = rounded(np.array([1e9, -1e9, 1.0], np.float32))
    assert found.tolist() == [65504.0, -65504.0, 1.0]


def writes_with(origin: Path, pairs: Path, **tables: Any) -> Any:
    """A recipe of a translator whose encoder also reads the layers of a run."""
    table = {"features": {"contextual": [str(origin)]}, "search": {"beams": 1, "max_tokens": 6}}
    return pair_recipe(pairs, train={"steps": 2, "validations": 1}, **table | tables)


WRITERS: dict[str, dict[str, Any]] = {
    "words": {},
    "names": {"tokenizer": {"kind": "words", "lowercase": True}, "data": {"names": [1], "source_tokens": 4}},
    "copies": {
        "head": {"copying": True}, "encoder": {"kind": "lstm", "d_model": 8},
        "tokenizer": {"kind": "words", "min_count": 9},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", some_slow(WRITERS, "words"))
def test_the_encoder_of_a_translator_has_them_too(kind: str, origin: Path, tmp_path: Path) -> None:
    """Kept in training and worked out afterwards, alone and together, they are the same; the origin is not needed."""
    tables, columns = WRITERS[kind], 2 if kind == "names" else 1
    run = Path(shutil.copytree(origin, tmp_path / "origin"))
    rows = source_and_target(9).splitlines()
    (tmp_path / "pairs.tsv").write_text("".join("NOUN;X\t" * (columns - 1) + f"{row}\n" for row in rows))
    data = {"valid": str(tmp_path / "pairs.tsv")} | tables.get("data", {})
    if columns > 1:
        data |= {"sources": ["1", "2"], "targets": ["3"]}
    outcome = run_tiny(writes_with(run, tmp_path / "pairs.tsv", **tables | {"data": data}), tmp_path / "run")
    shutil.rmtree(run)
    model: Any = ensue.load(tmp_path / "run", device="cpu")
    scores = model.evaluate(tmp_path / "pairs.tsv").as_json()
    assert outcome.valid is not None
    assert scores["nats_per_token"] == pytest.approx(outcome.valid["nats_per_token"], abs=1e-5)
    sources = [row.split("\t")[0] if columns == 1 else ("NOUN;X", row.split("\t")[0]) for row in rows[:3]]
    together = [found.text for found in model.predict(sources)]
    assert [model.predict([source])[0].text for source in sources] == together
    assert "nan" not in model.inspect(sources[0]).page
    assert "contextual" in "".join(name for name, _ in model.model.named_parameters())
    both = model.with_others(ensue.load(tmp_path / "run", device="cpu"))
    assert [found.text for found in both.predict(sources)] == together
    with pytest.raises(EnsueError, match=r"reads features\.contextual itself"):
        model.embed_words([["the", "cat"]])


def test_words_stand_where_their_ids_do(origin: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("NOUN;X\tThe  Cat sees\tder\n" * 5)
    data = {"names": [1], "source_tokens": 5, "sources": ["1", "2"], "targets": ["3"]}
    words = {"kind": "words", "lowercase": True}
    job = begin_job(writes_with(origin, tmp_path / "pairs.tsv", data=data, tokenizer=words), None)
    coder = job.parts.coder  # type: ignore[attr-defined]
    assert coder.words(["NOUN;X", "The  Cat sees"]) == ["", "", "", "The", "Cat", ""]
    for columns in (["", ""], ["NOUN", "the"], ["X;Y;Z;X;X;Y", "a b c"], ["X", "The <UNK> cat"]):
        assert len(coder.words(columns)) == len(coder.encode(columns)[0])


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"tokenizer": {"kind": "bpe"}}, 'the tokens of the source are bpe; expected tokenizer.kind = "words"'),
        ({"encoder": None, "decoder": {"kind": "lstm", "d_model": 8}}, r"features\.contextual needs an encoder"),
        ({"features": {"contextual": ["nowhere"]}}, "nowhere: no such run directory"),
    ],
)
def test_what_no_encoder_can_read_is_one_line(
    tables: dict[str, Any], message: str, origin: Path, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text(source_and_target(9))
    with pytest.raises(EnsueError, match=message) as caught:
        run_tiny(writes_with(origin, tmp_path / "pairs.tsv", **tables), tmp_path / "run")
    assert "\n" not in str(caught.value)
