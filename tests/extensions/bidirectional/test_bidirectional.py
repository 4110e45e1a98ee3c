"""Bidirectional language models: batches, losses, layers, vectors and scores, and refused recipes and queries."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ensue
from ensue.data.corpus.batches import Segments
from ensue.engine import executing
from ensue.errors import EnsueError, RecipeError
from ensue.extensions.bidirectional.layers import ContextModel, Direction
from ensue.extensions.bidirectional.model import BidirectionalParts
from ensue.extensions.bidirectional.objectives import BidirectionalBatch, BidirectionalJob, PerplexityObjective
from ensue.extensions.bidirectional.pipeline import BidirectionalPipeline
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe, SoftmaxOutput
from ensue.extensions.bidirectional.word_uses import WordUse
from ensue.recipe import Recipe, validate_recipe
from ensue.runs.schema import DamagedError
from ensue.tasks.texts.minimal_pairs import PairScore
from ensue.text.character_ngrams import BOUNDARIES, word_characters
from ensue.text.tokenizer import CharacterTokenizer, WordTokenizer
from training.tiny import run_tiny, seal, words
from written_files import write_file

ELMO: dict[str, Any] = {
    "tokenizer": {"max_size": 15},
    "words": {"kind": "characters", "d_character": 4, "filters": [[1, 3], [2, 4]], "num_highways": 1},
    "encoder": {"kind": "projected", "d_model": 6, "d_cell": 9, "num_layers": 2, "residual": True, "clip_cell": 3.0},
    "head": {"kind": "softmax", "sampled": 6},
    "train": {"batch_size": 4, "segment_length": 8},
}
CONTEXT: dict[str, Any] = {
    "words": {"kind": "table", "d_words": 5},
    "encoder": {"kind": "lstm", "d_model": 6},
    "head": {"kind": "context", "d_context": 7, "negatives": 3},
    "train": {"batch_size": 4, "segment_length": 8, "carry_state": False},
}
TRAIN: dict[str, Any] = {"steps": 9, "validations": 3, "learning_rate": 0.01, "precision": "float32"}


def recipe(tables: dict[str, Any], path: Path | str = "", **train: Any) -> Recipe:
    data = {"train": str(path)} if path else {}
    table = {**TRAIN, **tables["train"], **train}
    return validate_recipe(
        {"task": "bidirectional-language-modeling", "data": data, **tables, "train": table}, where="t"
    )


@pytest.fixture(scope="module", autouse=True)
def without_compiler() -> Iterator[None]:
    """Nothing is compiled."""
    with executing("plain"):
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_file(tmp_path_factory.mktemp("bidirectional") / "text.txt", words(900))


def trained(tables: dict[str, Any], corpus: Path, folder: Path) -> BidirectionalPipeline:
    run_tiny(recipe(tables, corpus, steps=4, validations=1), folder / "run")
    return ensue.load(folder / "run", kind=BidirectionalPipeline)


@pytest.fixture(scope="module")
def elmo(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> BidirectionalPipeline:
    return trained(ELMO, corpus, tmp_path_factory.mktemp("elmo"))


@pytest.fixture(scope="module")
def context2vec(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> BidirectionalPipeline:
    return trained(CONTEXT, corpus, tmp_path_factory.mktemp("context"))


def test_each_direction_predicts_its_next_word(corpus: Path) -> None:
    """Targets are the words after (before) the inputs, and each row of a segment continues that of the last step."""
    job = BidirectionalJob(recipe(ELMO, corpus))
    task, text = job.task, job.text
    assert isinstance(task.batches, Segments)
    read: dict[str, list[np.ndarray[Any, Any]]] = {"rightward": [], "leftward": []}
    for step in range(task.steps_per_epoch):
        batch = task.batch(step, torch.device("cpu"))
        rows = job.reader.rows(list(text.words))
        assert len(np.unique(batch.words[2:].numpy(), axis=0)) == len(batch.words) - 2
        id_of = {
            tuple(row): text.ids[n - 2]
            for n, row in enumerate(np.pad(rows, ((0, 0), (0, 9)), constant_values=260).tolist())
            if n >= 2
        }
        for name, targets_so_far in read.items():
            direction = getattr(batch, name)
            spelled = np.pad(
                batch.words.numpy(), ((0, 0), (0, rows.shape[1] + 9 - batch.words.shape[1])), constant_values=260
            )
            ids = np.array(
                [[1 if n < 2 else id_of[tuple(spelled[n])] for n in row] for row in direction.inputs.tolist()]
            )
            assert (ids[:, 1:] == direction.targets[:, :-1].numpy()).all()
            if targets_so_far:
                assert (ids[:, 0] == targets_so_far[-1][:, -1]).all()
            targets_so_far.append(direction.targets.numpy())
            ends = direction.inputs[ids == 1]
            assert (ends == (0 if name == "rightward" else 1)).all()
    rightward, leftward = (np.concatenate(read[name], axis=1) for name in read)
    # leftward does not predict the last word of a row, rightward not the first
    assert (leftward[:, ::-1][:, 1:] == rightward[:, :-1]).all()


def test_blocks_begin_at_a_boundary_in_both_directions(corpus: Path) -> None:
    job = BidirectionalJob(recipe(CONTEXT, corpus))
    batch = job.task.batch(3, torch.device("cpu"))
    assert (batch.rightward.inputs[:, 0] == 0).all()
    assert (batch.leftward.inputs[:, 0] == 1).all()
    assert torch.equal(batch.leftward.targets, batch.rightward.targets.flip(1))
    ids = batch.words[batch.rightward.inputs]
    assert torch.equal(ids[:, 1:], batch.rightward.targets[:, :-1])
    assert batch.noise is not None
    assert batch.noise.shape == (4, 8, 3)
    again = job.task.batch(3, torch.device("cpu"))
    assert again.noise is not None
    assert torch.equal(again.noise, batch.noise)
    assert not torch.equal(job.task.batch(4, torch.device("cpu")).noise, batch.noise)  # type: ignore[arg-type]


@pytest.mark.slow
@torch.no_grad()
def test_a_word_is_predicted_without_being_read(
    elmo: BidirectionalPipeline, context2vec: BidirectionalPipeline
) -> None:
    """Another word changes neither its own context vector nor its prediction, but the context vectors of the others."""
    one, other = ["the", "cat", "sat", "on"], ["the", "mat", "sat", "on"]
    a, b = context2vec.layers_of_words([one, other])
    np.testing.assert_allclose(a[1, 1], b[1, 1], atol=1e-6)
    assert np.abs(a[1, [0, 2, 3]] - b[1, [0, 2, 3]]).max(1).min() > 1e-5
    *inputs, mask, _ = elmo.reader.sentences([one, other], torch.device("cpu"))
    features, _ = elmo.model.read(*inputs, mask=mask)
    for side in elmo.model.features_before(features[-1], mask[:, 1:]):
        torch.testing.assert_close(side[0, 1], side[1, 1])


@torch.no_grad()
def test_a_batch_sums_the_surprisals_of_both_directions(elmo: BidirectionalPipeline, corpus: Path) -> None:
    """The loss equals the sum over the steps of each direction, position by position."""
    job = BidirectionalJob(recipe(ELMO, corpus))
    batch = job.task.batch(0, torch.device("cpu"))
    model = elmo.model
    loss, _ = model.loss(batch.words, batch.rightward, batch.leftward)
    vectors, total = model.words(batch.words), 0.0
    for layers, direction in ((model.rightward, batch.rightward), (model.leftward, batch.leftward)):
        for row, targets in zip(direction.inputs, direction.targets, strict=True):
            state = None
            for number, target in zip(row, targets, strict=True):
                h, state = layers.step(vectors[number : number + 1], state)
                total -= float(torch.log_softmax(model.head(h), 1)[0, target])
    assert float(loss.total) == pytest.approx(total, rel=1e-4)
    assert loss.count == 2 * 4 * 8


@torch.no_grad()
def test_context_loss_is_that_of_negative_samples(context2vec: BidirectionalPipeline, corpus: Path) -> None:
    scores = context2vec.evaluate(corpus).as_json()
    assert context2vec.scored_items(corpus).compute() == pytest.approx({"noise_nats": scores["noise_nats"]})
    job = BidirectionalJob(recipe(CONTEXT, corpus))
    batch = job.task.batch(0, torch.device("cpu"))
    model = context2vec.model
    assert isinstance(model, ContextModel)
    assert batch.noise is not None
    noise = batch.noise.clone()
    noise[0, 0, 0] = batch.rightward.targets[0, 0]  # a sample that equals the target does not count
    loss = model.loss(batch.words, batch.rightward, batch.leftward, noise)
    total = 0.0
    for row in range(4):
        ids = batch.rightward.targets[row].tolist()
        symbols = [model_words(context2vec)[i] for i in ids]
        c = context2vec.layers_of_words([symbols])[0][1]
        for t, (target, drawn) in enumerate(zip(ids, noise[row].tolist(), strict=True)):
            scores = (model.targets.weight @ torch.from_numpy(c[t])).tolist()
            total += math.log1p(math.exp(-scores[target]))
            total += sum(math.log1p(math.exp(scores[k])) for k in drawn if k != target)
    assert float(loss.total) == pytest.approx(total, rel=1e-4)


def model_words(pipeline: BidirectionalPipeline) -> tuple[str, ...]:
    return tuple(pipeline.tokenizer.vocabulary.symbols)


def test_layers_of_words_do_not_depend_on_other_sentences(elmo: BidirectionalPipeline) -> None:
    sentences = [["the", "cat"], [], ["a", "word", "nobody", "knew", "", "mat"], ["mat"] * 40]
    together = elmo.layers_of_words(sentences)
    assert (elmo.num_layers, elmo.d_layers) == (3, 12)
    for words_, layers in zip(sentences, together, strict=True):
        assert layers.shape == (3, len(words_), 12)
        assert layers.dtype == np.float32
        np.testing.assert_allclose(elmo.layers_of_words([words_])[0], layers, atol=1e-6)
    np.testing.assert_array_equal(together[0][0, :, :6], together[0][0, :, 6:])
    np.testing.assert_array_equal(elmo.embed_words(sentences, layer=1)[0], together[0][1])
    np.testing.assert_allclose(elmo.embed(["the cat", ""], layer=2), [together[0][2].mean(0), np.zeros(12)], atol=1e-6)


@pytest.mark.parametrize("kind", ["lstm", "grid"])
def test_layers_of_any_stack_with_words_of_any_size(kind: str) -> None:
    """Vectors of words that are smaller than the features of a layer are padded with zeros; a grid is one layer."""
    encoder = {"kind": kind, "d_model": 6, "num_layers": 2, "dropout": 0.5, "dropout_input": 0.5}
    tables = ELMO | {"words": {"kind": "table", "d_words": 4}, "encoder": encoder}
    tokenizer, parsed = WordTokenizer.train(["a b"]), recipe(tables)
    assert isinstance(parsed, BidirectionalRecipe)
    pipeline = BidirectionalPipeline(BidirectionalParts(tokenizer).build(parsed), tokenizer, parsed)
    (layers,) = pipeline.layers_of_words([["a", "b", "c"]])
    assert layers.shape == (pipeline.num_layers, 3, pipeline.d_layers) == (3 if kind == "lstm" else 2, 3, 12)
    assert not layers[0, :, 8:].any()
    np.testing.assert_array_equal(layers[0, :, :4], layers[0, :, 4:8])


def test_vectors_of_unknown_words_follow_from_their_characters(elmo: BidirectionalPipeline) -> None:
    known, unknown = elmo.layers_of_words([["catty"], ["dogs"]])
    assert np.abs(known[0] - unknown[0]).max() > 1e-3


def test_state_is_carried_if_asked(elmo: BidirectionalPipeline) -> None:
    first, second = elmo.layers_of_words([["the", "cat"], ["on"]], carry=True)
    alone = elmo.layers_of_words([["the", "cat"], ["on"]])
    np.testing.assert_allclose(first, alone[0], atol=1e-6)
    assert np.abs(second[1:] - alone[1][1:]).max() > 1e-4
    np.testing.assert_allclose(second[0], alone[1][0], atol=1e-6)


@torch.no_grad()
def test_perplexity_is_that_of_each_direction(elmo: BidirectionalPipeline, tmp_path: Path) -> None:
    """The scores of a text with an unknown word equal those of steps in each direction, position by position."""
    path = write_file(tmp_path / "text.txt", "the cat sat\non zebras while\n")
    scores = elmo.evaluate(path).as_json()
    assert elmo.scored_items(path).compute() == pytest.approx({"nats_per_token": scores["nats_per_token"]})
    model, spelled = elmo.model, ["the", "cat", "sat", "\n", "on", "zebras", "while", "\n"]
    ids = elmo.tokenizer.encode(path.read_text()).tolist()
    nats = []
    for layers, order, boundary in ((model.rightward, 1, 0), (model.leftward, -1, 1)):
        total, state, row = 0.0, None, BOUNDARIES[boundary : boundary + 1]
        for word, id in list(zip(spelled, ids, strict=True))[::order]:
            h, state = layers.step(model.words(torch.from_numpy(row)), state)
            total -= float(torch.log_softmax(model.head(h), 1)[0, id])
            row = BOUNDARIES[boundary : boundary + 1] if word == "\n" else word_characters([word], max_length=50)
        nats.append(total / 8)
    assert scores["perplexity_forward"] == pytest.approx(math.exp(nats[0]), rel=1e-4)
    assert scores["perplexity_backward"] == pytest.approx(math.exp(nats[1]), rel=1e-4)
    assert scores["nats_per_token"] == pytest.approx(sum(nats) / 2, rel=1e-4)
    assert (scores["tokens"], scores["unknown"]) == (8, ids.count(0))


@torch.no_grad()
def test_surprisals_of_words_are_the_mean_of_both_directions(elmo: BidirectionalPipeline) -> None:
    scored = elmo.score("the cat\nsat\n\n")
    assert [token.symbol for token in scored] == ["the", "cat", "sat"]
    (alone,) = elmo.score("sat")
    assert scored[2].nats == pytest.approx(alone.nats)
    boundaries = torch.from_numpy(BOUNDARIES)
    steps = [
        layers.step(elmo.model.words(boundaries[n : n + 1]))[0]
        for n, layers in enumerate((elmo.model.rightward, elmo.model.leftward))
    ]
    id = int(elmo.tokenizer.encode("sat")[0])
    nats = [-float(torch.log_softmax(elmo.model.head(h), 1)[0, id]) for h in steps]
    assert alone.nats == pytest.approx(sum(nats) / 2, rel=1e-5)


def test_the_better_text_of_a_pair_is_the_one_with_fewer_nats(elmo: BidirectionalPipeline, tmp_path: Path) -> None:
    pairs = [("the cat sat", "cat the sat on"), ("on mats", "a zebra on the mat"), ("the cat", "the cat"), ("", "sat")]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"sentence_good": a, "sentence_bad": b}) + "\n" for a, b in pairs))
    nats = [[sum(token.nats for token in elmo.score(text)) for text in pair] for pair in pairs]
    better = sum(0.5 if good == bad else float(good < bad) for good, bad in nats)
    assert elmo.minimal_pairs(path).total == PairScore("total", 4, better, sum(good == bad for good, bad in nats))


def test_neighbors_are_near_the_vector_of_a_word_or_of_a_gap(
    elmo: BidirectionalPipeline, context2vec: BidirectionalPipeline
) -> None:
    assert [n.word for n in elmo.neighbors("cats", 2)] != []
    assert "cat" not in [n.word for n in elmo.neighbors("cat", 5)]
    assert len(context2vec.neighbors("the cat [] on a mat", 4)) == 4
    context = context2vec.layers_of_words([["the", "x", "on"]])[0][1, 1]
    table = context2vec.model.targets.weight.detach().numpy()[2:]
    cosines = table @ context / np.linalg.norm(table, axis=1) / np.linalg.norm(context)
    best = model_words(context2vec)[2 + int(cosines.argmax())]
    neighbor = context2vec.neighbors("the [] on", 1)[0]
    assert (neighbor.word, neighbor.similarity) == (best, pytest.approx(float(cosines.max()), abs=1e-5))


def test_queries_that_a_model_cannot_answer_are_refused(
    elmo: BidirectionalPipeline, context2vec: BidirectionalPipeline
) -> None:
    with pytest.raises(EnsueError, match="a gap, "):
        elmo.neighbors("the [] sat")
    wrong = {"[] and []": "occurs 2 times", "": "the text has no words", "zebra": 'no vector for the word "zebra"'}
    for text, message in wrong.items():
        with pytest.raises(EnsueError, match=message):
            context2vec.neighbors(text)
    with pytest.raises(EnsueError, match='the head of this model is "context"'):
        context2vec.score("the cat")
    with pytest.raises(EnsueError, match='the head of this model is "context"'):
        context2vec.minimal_pairs("pairs.jsonl")
    with pytest.raises(EnsueError, match='no pooling "meen"'):
        elmo.layers_of_words([["a"]], pooling="meen")


@pytest.mark.slow
def test_contexts_learn_which_words_fit(tmp_path: Path) -> None:
    """Each word of this text follows from its neighbors."""
    path = write_file(tmp_path / "text.txt", "the cat eats fish .\nthe dog eats meat .\n" * 150)
    run_tiny(
        recipe(CONTEXT | {"encoder": {"kind": "lstm", "d_model": 12}}, path, steps=150, learning_rate=0.02),
        tmp_path / "run",
    )
    model = ensue.load(tmp_path / "run", kind=BidirectionalPipeline)
    assert model.neighbors("the [] eats meat .", 1)[0].word == "dog"
    assert model.neighbors("the cat eats [] .", 1)[0].word == "fish"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": {"kind": "transformer"}}, 'has the encoder "transformer"'),
        ({"head": {"kind": "context"}}, "needs both sides of a word"),
        ({"words": {"kind": "characters", "filters": [[9, 3]], "longest": 8}}, "a filter over 9 characters"),
        ({"words": {"kind": "characters", "filters": [[1, 2, 3]]}}, "words.filters"),
        ({"train": {"carry_state": False, "reset_state": 0.1}}, "no state is carried"),
        ({"encoder": {"kind": "grid", "residual": True}}, "other connections"),
    ],
)
def test_contradictory_recipes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(ELMO | change)


def test_a_model_without_a_head_is_not_trained(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be trained"):
        run_tiny(recipe(ELMO | {"head": {"kind": "none"}}, corpus), tmp_path / "run")


def test_a_tokenizer_of_another_kind_is_refused(elmo: BidirectionalPipeline, tmp_path: Path) -> None:
    run = Path(shutil.copytree(elmo.run, tmp_path / "run"))
    tokenizer = CharacterTokenizer.train("abcdefghijklmn", min_count=1)
    (run / "tokenizer.json").write_text(json.dumps(tokenizer.to_json()))
    seal(run)
    with pytest.raises(DamagedError, match="kind: expected 'words', found 'characters'"):
        ensue.load(run)


def test_an_inspection_shows_the_units_of_both_directions(elmo: BidirectionalPipeline) -> None:
    text = "ba bo bu ba be"
    view = elmo.inspect(text).view
    score = [token.nats for token in elmo.score(text)]
    assert ((view.rightward.surprisals + view.leftward.surprisals) / 2).tolist() == pytest.approx(score, abs=1e-4)
    assert view.words == tuple(text.split())
    layers = elmo.layers_of_words([text.split()])[0]
    hidden = {units.name: units.values for units in view.units if units.kind.endswith("hidden")}
    d = hidden["layer 2, rightward hidden"].shape[1]
    upper = layers[2] - layers[1] if elmo.recipe.encoder.residual else layers[2]  # type: ignore[union-attr]
    assert hidden["layer 2, rightward hidden"] == pytest.approx(upper[:, :d], abs=1e-4)
    assert hidden["layer 2, leftward hidden"] == pytest.approx(upper[:, d : 2 * d], abs=1e-4)
    page = elmo.inspect(text).page
    assert all(heading in page for heading in ("Both directions", "A range as a pattern", "Map of the words"))
    with pytest.raises(EnsueError, match="the text has no words"):
        elmo.inspect(" ")


def test_an_inspection_lists_the_words_that_fit_in_each_place(context2vec: BidirectionalPipeline) -> None:
    words_read = ["ba", "bo", "bu", "be"]
    inspection = context2vec.inspect(" ".join(words_read))
    assert inspection.view.rightward is None
    for place, fits in enumerate(inspection.view.fits):
        gap = " ".join([*words_read[:place], "[]", *words_read[place + 1 :]])
        assert fits == context2vec.neighbors(gap, len(fits))
    assert "Words that fit" in inspection.page


def test_a_slice_of_a_batch_has_its_rows_of_both_directions() -> None:
    batch = BidirectionalBatch(
        *(Direction(*rows) for rows in torch.arange(12).view(2, 2, 3, 1)), torch.arange(9), first=False
    )
    sliced = batch.slice_rows(slice(1, 3))
    assert (batch.rows, sliced.rows, sliced.count, sliced.first) == (3, 2, 4, False)
    assert sliced.leftward.targets.tolist() == [[10], [11]]
    assert sliced.words is batch.words
    assert sliced.noise is None


def test_senses_and_words_in_context_are_scored(elmo: BidirectionalPipeline, tmp_path: Path) -> None:
    """The uses for training are also those for testing, so the nearest sense is right if their vectors differ."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "classes_map.txt").write_text('{"0": "x", "1": "y"}', encoding="utf-8")
    for part in ("train", "test"):
        (tmp_path / "a" / f"{part}.data.txt").write_text("1\tthe a b\n1\tc a the\n", encoding="utf-8")
        (tmp_path / "a" / f"{part}.gold.txt").write_text("0\n1\n", encoding="utf-8")
    assert elmo.sense_scores(tmp_path).as_json() == {
        "micro_recall": 1.0, "macro_recall": 1.0, "uses": 2, "words": {"a": 1.0}
    }  # fmt: skip
    (tmp_path / "dev.data.txt").write_text(
        "a\tN\t1-1\tthe a b\tthe a b\na\tN\t1-1\tthe a b\tc a the\n", encoding="utf-8"
    )
    (tmp_path / "dev.gold.txt").write_text("T\nF\n", encoding="utf-8")
    scores = elmo.word_in_context(tmp_path / "dev.data.txt", threshold_from=tmp_path / "dev.data.txt")
    assert (scores.accuracy, scores.pairs) == (1.0, 2)
    senses = elmo.senses([(["the", "a", "b"], 1, "x"), (["c", "a", "the"], 1, "y")])
    assert senses.nearest([WordUse(("c", "a", "the"), 1)]) == ["y"]


def test_a_text_that_is_read_in_one_part_has_no_warm_up() -> None:
    objective = PerplexityObjective(SoftmaxOutput(kind="softmax"))
    assert objective.protocol(100).endswith("state carried")
    assert objective.protocol(100_000).endswith("state carried, in 48 parts with a warm-up each")
