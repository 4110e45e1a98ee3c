"""The view of a tagger equals enumeration, calls of the model, and texts changed by hand."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from ensue.data.sentences.sentence import Sentence
from ensue.errors import EnsueError
from ensue.models.word_features import EncodedForms, Words
from ensue.tasks.labeling import page as tagging
from ensue.tasks.labeling.page import TaggerView
from ensue.tasks.labeling.pipeline import LabelingPipeline
from inspection.small import LSTM, PLAIN, TRANSFORMER, tagger

TEXT = "Ann Lee saw the Sea of Landon ."
CHARACTERS = {"d_words": 0, "characters": "lstm", "d_character": 4, "d_characters": 6}
CNN = CHARACTERS | {"characters": "cnn"}
ALL = {"d_words": 6, "affixes": 2, "d_affix": 3, "d_shape": 2, "characters": "cnn", "d_character": 4, "d_characters": 6}


def view_of(pipeline: LabelingPipeline, text: str | list[str] | Sentence = TEXT) -> TaggerView:
    view = pipeline.inspect(text).view
    assert isinstance(view, TaggerView)
    return view


def emissions_of(pipeline: LabelingPipeline, words: list[str]) -> torch.Tensor:
    """Return emissions of the model, called as in training with a form for each word."""
    forms = EncodedForms.of(pipeline.reader.lexicon.encode(words), torch.device("cpu"))
    numbers = torch.arange(len(words))[None]
    with torch.no_grad():
        return pipeline.model(Words(forms, numbers, torch.zeros(1, len(words), 0, dtype=torch.int64), None))[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("head", ["crf", "viterbi", "softmax"])
@pytest.mark.parametrize("model", [LSTM, TRANSFORMER], ids=["lstm", "transformer"])
def test_scores_equal_those_of_the_pipeline(head: str, model: dict) -> None:  # type: ignore[type-arg]
    pipeline = tagger(head=head, model=model)
    view = view_of(pipeline)
    np.testing.assert_allclose(view.emissions, emissions_of(pipeline, TEXT.split()), rtol=1e-4, atol=1e-5)
    (answer,) = pipeline.predict([TEXT], confidence=True)
    assert pipeline.labels.decode(view.path.tolist()) == answer.labels
    shares = [word.confidence for word in answer]
    np.testing.assert_allclose(pipeline.labels.confidence(answer.labels, view.marginals), shares, rtol=1e-4)
    assert (view.tables is None, not view.paths) == (head == "softmax", head == "softmax")


@pytest.mark.parametrize("head", ["crf", "viterbi"])
def test_best_paths_equal_those_of_an_enumeration(head: str) -> None:
    pipeline = tagger(head=head, labels=PLAIN)
    view = view_of(pipeline, "the Sea was calm")
    assert view.tables is not None
    scores = torch.from_numpy(view.emissions)
    scores = (scores if head == "crf" else scores.log_softmax(-1)).numpy()
    start, pairs, end = view.tables
    totals = {
        path: start[path[0]] + end[path[-1]] + sum(scores[t, tag] for t, tag in enumerate(path))
        + sum(pairs[a, b] for a, b in pairwise(path))
        for path in product(range(3), repeat=4)
    }  # fmt: skip
    log_normalizer = np.logaddexp.reduce(list(totals.values()))
    for best_path, (path, total) in zip(view.paths, sorted(totals.items(), key=lambda item: -item[1]), strict=False):
        assert tuple(best_path.tags.tolist()) == path
        assert best_path.score == pytest.approx(total, rel=1e-4)
        assert best_path.probability == pytest.approx(np.exp(total - log_normalizer), rel=1e-3)
        assert best_path.emission == pytest.approx(sum(scores[t, tag] for t, tag in enumerate(path)), rel=1e-4)
    assert len(view.paths) == 5


def test_at_most_all_paths_are_shown() -> None:
    assert len(view_of(tagger(labels=PLAIN), "calm").paths) == 3


def test_features_make_up_the_vector_of_a_word() -> None:
    pipeline = tagger(features=ALL, vectors=["London", "sea"])
    view, lexicon = view_of(pipeline), pipeline.reader.lexicon
    vectors = pipeline.model.features.table(lexicon.encode(TEXT.split()), torch.device("cpu")).vectors
    for parts, vector in zip(view.parts, vectors, strict=True):
        assert sum(part.norm**2 for part in parts) == pytest.approx(float(vector.norm()) ** 2, rel=1e-5)
    known_by_part = {(part.kind, part.text): part.is_known for part in view.parts[6]}
    assert known_by_part == {
        ("word", "landon"): False, ("characters", "Landon"): True, ("prefix", "l-"): False, ("prefix", "la-"): False,
        ("suffix", "-n"): False, ("suffix", "-on"): False, ("shape", "Xxxx"): True, ("vector", "Landon"): False,
    }  # fmt: skip


def blanked_by_hand(pipeline: LabelingPipeline, words: list[str], index: int, field: str, column: int) -> torch.Tensor:
    """Return emissions with an id of one word set to 0. Each word has a separate form."""
    encoded = pipeline.reader.lexicon.encode(words)
    ids = getattr(encoded, field)
    ids[index if column < 0 else (index, column)] = 0
    forms, numbers = EncodedForms.of(encoded, torch.device("cpu")), torch.arange(len(words))[None]
    with torch.no_grad():
        return pipeline.model(Words(forms, numbers, torch.zeros(1, len(words), 0, dtype=torch.int64), None))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["crf", "softmax"])
def test_effects_equal_those_of_reading_the_changed_sentence(head: str) -> None:
    """If a word occurs twice, only one of the two is changed."""
    words = ["Ann", "saw", "Ann", "London"]
    pipeline = tagger(features=ALL, head=head, vectors=["London", "sea"])
    view = view_of(pipeline, words)
    for position, (parts, effects) in enumerate(zip(view.parts, view.effects, strict=True)):
        assert len(parts) == len(effects) == 8
        tag = int(view.path[position])
        for part, effect in zip(parts, effects, strict=True):
            changed = blanked_by_hand(pipeline, words, position, part.place.field, part.place.number)
            expected = view.emissions[position, tag] - float(changed[0, position, tag])
            assert effect.emission == pytest.approx(expected, abs=1e-4)
            assert effect.tag == int(pipeline.model.head.best(changed, None)[0, position])
            share = float(pipeline.model.head.marginals(changed, None)[0, position, tag])
            assert effect.probability == pytest.approx(share, abs=1e-5)
    assert max(abs(effect.emission) for effects in view.effects for effect in effects) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("features", [CHARACTERS, CNN], ids=["lstm", "cnn"])
def test_the_effect_of_a_letter_is_that_of_an_unknown_letter(features: dict) -> None:  # type: ignore[type-arg]
    pipeline = tagger(features=features)
    view = view_of(pipeline)
    tag = int(view.path[4])
    for letter, effect in enumerate(view.letters[4]):
        word = "Sea"[:letter] + "\u2603" + "Sea"[letter + 1 :]
        changed = emissions_of(pipeline, TEXT.replace("Sea", word).split())
        assert effect.emission == pytest.approx(view.emissions[4, tag] - float(changed[4, tag]), abs=1e-4)
    assert [len(effects) for effects in view.letters] == [len(word) for word in TEXT.split()]


def test_the_effect_of_all_letters_is_that_of_no_letters() -> None:
    pipeline = tagger(features=CHARACTERS)
    view = view_of(pipeline)
    with torch.no_grad():
        x = pipeline.model.features.form_vectors(
            EncodedForms.of(pipeline.reader.lexicon.encode(TEXT.split()), torch.device("cpu"))
        )
        x[4] = 0
        changed = pipeline.model.emissions(x[None], torch.zeros(1, len(x), dtype=torch.int64))[0]
    (effect,) = view.effects[4]
    assert effect.emission == pytest.approx(view.emissions[4, view.path[4]] - float(changed[4, view.path[4]]), abs=1e-4)


def test_columns_of_the_data_are_features() -> None:
    pipeline = tagger(columns={"pos": ["NN", "DT"]})
    words = ("the", "Sea")
    view = view_of(pipeline, Sentence(words, {"pos": ("DT", "XX")}))
    (known,), (unknown,) = ([part for part in parts if part.kind == "column pos"] for parts in view.parts)
    assert ((known.text, known.is_known), (unknown.text, unknown.is_known)) == (("DT", True), ("XX", False))
    without = view_of(pipeline, Sentence(words, {"pos": ("ZZ", "XX")}))
    tag = int(view.path[0])
    assert view.effects[0][-1].emission == pytest.approx(view.emissions[0, tag] - without.emissions[0, tag], abs=1e-5)
    assert view.effects[1][-1].emission == pytest.approx(0, abs=1e-5)
    with pytest.raises(EnsueError, match='also reads the column "pos"'):
        pipeline.inspect("the Sea")


def test_changes_of_a_character_lstm_equal_those_of_its_steps() -> None:
    pipeline = tagger(features=CHARACTERS)
    layer = pipeline.model.features.characters
    ids = torch.from_numpy(pipeline.reader.lexicon.encode(["London"]).characters)
    for name, part, order in (
        ("left to right", layer.rightward, range(6)),
        ("right to left", layer.leftward, range(5, -1, -1)),
    ):
        state, moves = part.init_state(1), {}
        for position in order:
            with torch.no_grad():
                _, after = part.step(layer.embedding(ids[:, position]), state)
            moves[position], state = float((after.h - state.h).norm()), after
        changes = view_of(pipeline, "the London").characters[1].traces[name]
        np.testing.assert_allclose(changes, [moves[position] for position in range(6)], rtol=1e-5)


def test_every_filter_of_a_character_cnn_has_its_maximum_in_the_word() -> None:
    pipeline = tagger(features=CNN)
    layer = pipeline.model.features.characters
    for word, trace in zip(TEXT.split(), view_of(pipeline).characters, strict=True):
        (counts,) = trace.traces.values()
        ids = torch.from_numpy(pipeline.reader.lexicon.encode([word]).characters)
        embedded = torch.nn.functional.pad(layer.embedding(ids)[0], (0, 0, 1, 1))
        responses = torch.stack([layer.filters[0](embedded[t : t + 3].flatten()) for t in range(len(word))])
        assert counts.tolist() == [float((responses.argmax(0) == t).sum()) for t in range(len(word))]
        assert counts.sum() == 6


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("encoder", "names"),
    [
        ("lstm", {"input", "forget", "candidate", "output", "hidden"}),
        pytest.param("gru", {"reset", "update", "candidate", "hidden"}, marks=pytest.mark.slow),
        pytest.param("elman", {"hidden"}, marks=pytest.mark.slow),
        pytest.param("peephole", {"input", "forget", "candidate", "output", "hidden"}, marks=pytest.mark.slow),
        pytest.param("coupled", {"forget", "candidate", "output", "hidden"}, marks=pytest.mark.slow),
        pytest.param("layer-norm", {"input", "forget", "candidate", "output", "hidden"}, marks=pytest.mark.slow),
        pytest.param("projected", {"input", "forget", "candidate", "output", "hidden"}, marks=pytest.mark.slow),
        pytest.param("depth-gated", {"input", "forget", "candidate", "output", "hidden"}, marks=pytest.mark.slow),
        pytest.param("mingru", {"update", "candidate", "hidden"}, marks=pytest.mark.slow),
        pytest.param("minlstm", {"forget", "input", "candidate", "hidden"}, marks=pytest.mark.slow),
        ("qrnn", {"candidate", "forget", "output", "hidden"}),
        ("window", {"hidden"}),
    ],
)
def test_traces_of_both_directions_are_in_the_order_of_the_words(encoder: str, names: set[str]) -> None:
    """With equal weights, reading backward equals reading the reversed text forward."""
    pipeline = tagger(model={"kind": encoder, "d_model": 5})
    both = next(layer for layer in pipeline.model.layers if hasattr(layer, "leftward"))
    both.leftward.load_state_dict(both.rightward.state_dict())
    rightward, leftward = view_of(pipeline).traces
    assert (rightward.layer, rightward.direction, leftward.direction) == (1, "left to right", "right to left")
    assert set(rightward.means) == names
    reversed_text = view_of(pipeline, TEXT.split()[::-1]).traces
    for name in names:
        assert rightward.means[name].shape == (8,)
        np.testing.assert_allclose(leftward.means[name], reversed_text[0].means[name][::-1], rtol=1e-4)
        assert rightward.means[name].std() > 0


@pytest.mark.slow
def test_layers_of_stacks_are_numbered_and_a_grid_has_two_dimensions() -> None:
    gated = view_of(tagger(model={"kind": "depth-gated", "d_model": 5, "num_layers": 2})).traces
    directions = ["left to right", "right to left"]
    assert [(trace.layer, trace.direction) for trace in gated] == [
        (layer, direction) for direction in directions for layer in (1, 2)
    ]
    assert ["depth" in trace.means for trace in gated] == [False, True] * 2
    grid = view_of(tagger(model={"kind": "grid", "d_model": 5, "num_layers": 2})).traces
    assert [(trace.layer, trace.direction) for trace in grid] == [
        (layer, f"{direction}, {dimension}")
        for direction in directions
        for layer in (1, 2)
        for dimension in ("time", "depth")
    ]
    assert {frozenset(trace.means) for trace in grid} == {
        frozenset(("input", "forget", "candidate", "output", "hidden"))
    }


def test_attention_of_every_layer_is_a_distribution() -> None:
    view = view_of(tagger(model=TRANSFORMER))
    assert view.attention is not None
    assert [attention.layer for attention in view.attention] == [1, 2]
    assert view.traces == []
    for attention in view.attention:
        assert attention.weights.shape == (2, 8, 8)
        np.testing.assert_allclose(attention.weights.sum(-1), 1, rtol=1e-5)


def test_a_tagger_without_an_encoder_has_no_traces() -> None:
    view = view_of(tagger(model={"kind": "none"}))
    assert view.traces == view.attention == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("budget", "words"), [(0, 1), (3 * 6 * 8, 3), (4 * 6 * 8 - 1, 3), (10_000, 8)])
def test_the_budget_ends_the_search_after_the_first_word_or_later(
    budget: int, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of eight words has six features."""
    monkeypatch.setattr(tagging, "MAX_VARIANT_WORDS", budget)
    view = view_of(tagger())
    assert len(view.effects) == len(view.letters) == words
    assert len(view.parts) == len(view.emissions) == 8


def test_inputs_that_cannot_be_inspected_are_refused() -> None:
    with pytest.raises(EnsueError, match="the text has no words"):
        tagger().inspect(" \n ")
    with pytest.raises(EnsueError, match=r"the text has 10,001 words; at most 10,000"):
        tagger().inspect(["a"] * 10_001)


def test_taps_are_removed_after_an_inspection() -> None:
    pipeline = tagger(features=ALL)
    before = pipeline.predict([TEXT])
    pipeline.inspect(TEXT)
    assert pipeline.predict([TEXT]) == before
    assert not any(module._forward_hooks for module in pipeline.model.modules())
