"""Taggers and classifiers that fine-tune the encoder of another run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.data.compact_texts import Texts
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.nn import MultiHeadAttention
from ensue.nn.draws import ElementDropout
from ensue.recipe import Recipe, read_recipe, validate_recipe
from ensue.runs.directory import origins_for
from ensue.runs.weights import read_tensors
from ensue.tasks.words.model import FineTunedEncoder
from ensue.tasks.words.subwords import SubwordTexts
from ensue.training.run import begin_job
from training.classifiers import TEXTS, write_files
from training.taggers import TAGGED
from training.tiny import run_tiny, small_recipe, some_slow
from training.tiny_masked import small_origins

CPU = torch.device("cpu")
ORIGINS = ("masked", "segments", "words", "characters", "bpe")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def origins(data: Path) -> dict[str, Path]:
    for name, recipe in small_origins(data / "text.txt").items():
        run_tiny(recipe, data / name)
    return {name: data / name for name in ORIGINS}


def recipe_of(task: str, origin: Path, path: Path, **tables: Any) -> Recipe:
    return small_recipe(
        task, path, tables, encoder={"from": str(origin)}, steps=12, batch_size=8, learning_rate=0.01, validations=2
    )


def tuned_of(origin: Path, **encoder: Any) -> FineTunedEncoder:
    table: Any = recipe_of("labeling", origin, origin, encoder=encoder)
    encoder_of_origin = FineTunedEncoder.of(table.encoder, origins_for([str(origin)], None))
    assert encoder_of_origin is not None
    return encoder_of_origin


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pooling"),
    [("masked", "first"), ("masked", "last"), ("masked", "mean"), ("words", "last"), ("bpe", "last")],
)
def test_vectors_of_words_equal_those_of_the_origin(name: str, pooling: str, origins: dict[str, Path]) -> None:
    """Sentences have any length, and some words have no subwords."""
    tuned, origin = tuned_of(origins[name], pooling=pooling), ensue.load(origins[name], device="cpu")
    encoder = tuned.build().eval()
    tuned.inherit(encoder)
    sentences = [
        ["Janet", "will"], ["a", "\x00", "b"] * 20, ["zzz"], [s for t in TAGGED[:5] for s in t.words], ["\x00"],
    ]  # fmt: skip
    subwords = tuned.reader(has_text_vector=False).texts(sentences)
    with torch.inference_mode():
        vectors_of_texts = encoder(subwords.batch(np.arange(len(sentences)), CPU)).numpy()
    expected: Any = origin.embed_words(sentences, pooling=pooling)  # type: ignore[attr-defined]
    for row, vectors in zip(vectors_of_texts, expected, strict=True):
        np.testing.assert_allclose(row[: len(vectors)], vectors, atol=2e-6)
        assert not row[len(vectors) :].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["words", "characters", "bpe"])
def test_a_causal_origin_reads_the_ids_of_the_text(name: str, origins: dict[str, Path]) -> None:
    """The ids of words with blanks are those of the text, between a start and an end symbol."""
    tuned, text = tuned_of(origins[name]), "Janet will back the bill"
    tokenizer = tuned.origin.run.parts.tokenizer
    batch = tuned.reader(has_text_vector=True).texts([text.split()]).batch(np.zeros(1, np.int64), CPU)
    expected = [tokenizer.start_id, *tokenizer.encode(text).tolist(), tokenizer.vocabulary_size + 1]
    if name != "bpe":  # the windows of bpe are shorter
        assert batch.ids[0].tolist() == expected
    assert batch.size == (1, 6)
    assert len(batch.places) == 6
    assert batch.slots.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("settings", "attention", "others"),
    [
        pytest.param({"dropout": 0.5}, 0.0, 0.5, id="layers"),
        pytest.param({"dropout_attention": 0.25}, 0.25, 0.0, id="attention"),
    ],
)
def test_attention_has_its_own_dropout(
    settings: dict[str, float], attention: float, others: float, origins: dict[str, Path]
) -> None:
    layers = list(tuned_of(origins["bpe"], kind="origin", **settings).build().layers.modules())
    assert {layer.dropout for layer in layers if isinstance(layer, MultiHeadAttention)} == {attention}
    assert {layer.p for layer in layers if isinstance(layer, ElementDropout)} == {others}


def test_slices_of_a_batch_have_the_outputs_of_the_batch(origins: dict[str, Path]) -> None:
    tuned = tuned_of(origins["masked"])
    encoder = tuned.build().eval()
    texts = [[w for s in TAGGED[n : n + 4] for w in s.words][: 3 + 9 * n] for n in range(5)]
    subwords = tuned.reader(has_text_vector=True).texts(texts)
    full = subwords.batch(np.arange(5), CPU)
    with torch.inference_mode():
        h = encoder(full)
        for rows in (slice(0, 2), slice(2, 5), slice(1, 4), slice(5, 5)):
            part = full.slice_rows(rows)
            torch.testing.assert_close(encoder(part), h[rows], rtol=0, atol=1e-6)
            assert (part.slot_mask is None) == (full.slot_mask is None)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(ORIGINS, "masked"))
def test_pairs_do_not_depend_on_the_batch(name: str, origins: dict[str, Path], data: Path, tmp_path: Path) -> None:
    encoder = {"language_loss": 0.5} if name in ("words", "characters") else {}
    short = {"max_tokens": 2} if name in ("masked", "bpe") else {}
    table = {"train": str(data / "pairs.tsv"), **short}
    recipe = recipe_of(
        "classification", origins[name], data / "pairs.tsv", encoder=encoder, train={"steps": 3}, data=table
    )
    run_tiny(recipe, tmp_path / "run")
    pipeline: Any = ensue.load(tmp_path / "run", device="cpu")
    pairs = [(TEXTS[n][0], TEXTS[n + 1][0]) for n in range(5)]
    together = pipeline.predict(pairs)
    for pair, answer in zip(pairs, together, strict=True):
        (alone,) = pipeline.predict([pair])
        assert alone.probabilities == pytest.approx(answer.probabilities, abs=1e-5)
    swapped = pipeline.predict([(b, a) for a, b in pairs])
    assert any(a.probabilities != b.probabilities for a, b in zip(together, swapped, strict=True))
    assert pipeline.inspect(pairs[0]).page


def test_a_pair_has_segments_and_special_tokens(origins: dict[str, Path]) -> None:
    tuned = tuned_of(origins["segments"])
    coder = tuned.origin.run.parts.coder
    batch = tuned.reader(has_text_vector=True).texts([["Janet"]], [["back", "the"]]).batch(np.zeros(1, np.int64), CPU)
    a, b = coder.encode("Janet"), coder.encode("back the")
    assert batch.ids[0].tolist() == coder.add_frame(a, b).tolist()
    assert batch.segments is not None
    assert batch.segments[0].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert batch.size == (1, 4)


def test_new_symbols_of_a_causal_origin_start_at_the_mean(origins: dict[str, Path], data: Path) -> None:
    job = begin_job(recipe_of("classification", origins["words"], data / "topics.tsv"), None)
    model: Any = job.build_model()
    old = read_tensors(origins["words"] / "model.safetensors")["features.weight"]
    table = model.layers.features.weight
    assert torch.equal(table[: len(old)], old)
    torch.testing.assert_close(table[len(old) :], old.mean(0).expand(2, -1))
    assert job.inherited["layers.features.weight"].tolist() == [True] * len(old) + [False] * 2  # type: ignore[union-attr]


def test_language_loss_adds_the_nats_of_next_subwords(origins: dict[str, Path], data: Path) -> None:
    """The losses of slices add up to that of the batch."""
    job = begin_job(
        recipe_of("classification", origins["words"], data / "topics.tsv", encoder={"language_loss": 2.0}), None
    )
    torch.manual_seed(0)
    model: Any = job.build_model()
    batch = job.task.batch(0, CPU)
    full, _ = job.task.loss(model, batch, None)
    parts = [job.task.loss(model, batch.slice_rows(slice(n, n + 3)), None)[0] for n in range(0, batch.rows, 3)]
    torch.testing.assert_close(sum(part.total for part in parts), full.total)
    model.language_loss = 0.0
    plain, _ = job.task.loss(model, batch, None)
    nats = float((full.total - plain.total).detach()) / 2 / batch.rows
    assert 1.0 < nats < 2 * np.log(model.layers.features.vocabulary_size)
    full.total.backward()
    assert model.layers.head.weight.grad is not None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("task", "origin", "tables", "error", "message"),
    [
        ("labeling", "", {"encoder": {"kind": "origin"}}, RecipeError, "encoder.from is missing: the directory of a"),
        ("labeling", "nowhere", {}, EnsueError, "nowhere: no such run directory"),
        (
            "labeling", "tagger", {}, RecipeError,
            "is a tagger, whose layers cannot be tuned; expected a .*, or a model that began from such a model",
        ),
        ("classification", "masked", {"encoder": {"language_loss": 0.5}}, RecipeError, "reads from left to right"),
        ("labeling", "words", {"encoder": {"language_loss": 0.5}}, RecipeError, "language_loss is for classifiers"),
        ("labeling", "words", {"encoder": {"pooling": "max"}}, RecipeError, "encoder.pooling: input should be"),
        ("labeling", "words", {"encoder": {"polling": "max"}}, RecipeError, 'unknown key "encoder.polling"'),
        ("classification", "words", {"data": {"segment_tokens": 3}}, RecipeError, "segment_tokens excludes encoder"),
        ("pairs", "masked", {}, DataError, "a pair of .* subwords; this model reads up to 16: cut the texts, or train"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_errors_of_one_line(
    task: str, origin: str, tables: dict[str, Any], error: type[Exception], message: str, origins: dict[str, Path],
    data: Path, tmp_path: Path,
) -> None:  # fmt: skip
    if origin == "tagger":
        train, encoder = {"train": str(data / "names.txt")}, {"kind": "elman", "d_model": 4}
        document = {"task": "labeling", "data": train, "encoder": encoder, "train": {"steps": 1}}
        path = tmp_path / "tagger"
        run_tiny(validate_recipe(document, where="tagger"), path)
    else:
        path = origins.get(origin, data / "nowhere" if origin else Path())
    train = data / {"labeling": "names.txt", "classification": "topics.tsv", "pairs": "pairs.tsv"}[task]
    table = {"train": str(train)} | tables.get("data", {})
    encoder = tables.get("encoder", {}) | ({} if origin else {"from": ""})
    with pytest.raises(error, match=message) as caught:
        run_tiny(
            recipe_of(task if task == "labeling" else "classification", path, train, encoder=encoder, data=table),
            tmp_path / "run",
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_any_recipe_accepts_an_origin(origins: dict[str, Path]) -> None:
    recipe: Any = read_recipe("tag-lstm-crf", {"encoder.from": str(origins["masked"])})
    assert recipe.encoder.kind == "origin"
    assert recipe.origins == (str(origins["masked"]),)
    assert recipe.features.d_words > 0  # the value of the recipe
    again: Any = validate_recipe(recipe.model_dump(exclude_none=True), where="again")
    assert again == recipe


def test_equal_texts_are_tokenized_once(origins: dict[str, Path]) -> None:
    texts = Texts()
    for _ in range(3):
        texts.append(["Janet", "Janet"])
    subword_texts = SubwordTexts(tuned_of(origins["words"]).reader(has_text_vector=False), [texts])
    assert [len(subwords) for subwords in subword_texts.subwords] == [1]
    assert subword_texts.batch(np.array([2, 0]), CPU).size == (2, 2)
