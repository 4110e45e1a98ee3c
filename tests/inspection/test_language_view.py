"""The view of a language model equals its steps, formulas, and `score`."""

import base64
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.inspection import token_page, unit_page
from ensue.inspection.token_page import NO_TOKEN, Predictions
from ensue.inspection.units import Units, correlate, decode_tokens, find_followers, find_properties, measure_saturation
from ensue.nn import watch
from ensue.tasks.language_modeling import page as viewing
from ensue.tasks.language_modeling.page import LanguageView
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.tasks.texts.scoring import scored_windows
from inspection.language_models import MODELS, TEXT, model_of, numbers_of
from inspection.small import HARD, Node, number, parsed
from language_pipelines import pipeline_of
from training.tiny import some_slow

QUICK = ("lstm", "gru", "grid", "transformer")
"""One encoder for each form of units: at each position, in two dimensions, in windows."""


def viewed(pipeline: LanguagePipeline, text: str = TEXT) -> tuple[LanguageView, Node]:
    inspection = pipeline.inspect(text)
    assert isinstance(inspection.view, LanguageView)
    return inspection.view, parsed(inspection.page)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", some_slow(MODELS, *QUICK))
def test_surprisals_equal_those_of_score(name: str) -> None:
    kinds = {"gru": "words", "grid": "bpe", "transformer": "bytes"}
    pipeline = model_of(name, kinds.get(name, "characters"))
    view, _ = viewed(pipeline)
    scores = pipeline.score(TEXT)
    assert view.length == len(scores) == len(view.tokens)
    assert view.predictions.surprisals[:-1] == pytest.approx([score.nats for score in scores], abs=1e-4)
    assert math.isnan(view.predictions.surprisals[-1])
    assert "".join(view.tokens) == pipeline.tokenizer.decode(view.ids)
    assert all(len(units.values) == len(view.tokens) for units in view.units)


@torch.no_grad()
def test_distributions_and_units_equal_those_of_steps() -> None:
    """The reference steps the model through the text."""
    pipeline = model_of()
    view, _ = viewed(pipeline)
    model, state = pipeline.model.eval(), None
    kinds = {units.name: units.values for units in view.units}
    assert list(kinds) == [
        f"layer {layer}, {kind}"
        for layer in (1, 2)
        for kind in ("input", "forget", "candidate", "output", "cell", "hidden")
    ]
    for position, id in enumerate([pipeline.tokenizer.start_id, *view.ids.tolist()]):
        logits, state = model.step(torch.tensor([id]), state)
        p = logits[0].double().softmax(0)
        best = p.sort(descending=True)
        assert view.predictions.probabilities[position] == pytest.approx(best.values[:5].numpy(), abs=1e-6)
        assert view.predictions.ids[position].tolist() == best.indices[:5].tolist()
        assert view.predictions.entropies[position] == pytest.approx(float(-(p * p.log()).sum()), abs=1e-5)
        if position < view.length:
            assert view.predictions.ranks[position] == best.indices.tolist().index(int(view.ids[position])) + 1
        if position:
            cells = [of_layer.c for of_layer in state if hasattr(of_layer, "c")]  # type: ignore[union-attr]
            for layer, c in enumerate(cells, start=1):
                assert kinds[f"layer {layer}, cell"][position - 1] == pytest.approx(c[0].numpy(), abs=1e-5)


@torch.no_grad()
def test_neurons_and_attention_of_a_transformer_equal_those_of_hooks() -> None:
    """The reference uses torch's hooks in the first window, and in all windows of `scored_windows`."""
    pipeline = model_of("transformer")
    view, page = viewed(pipeline)
    model = pipeline.model.eval()
    hidden: list[Tensor] = []
    blocks = [module for module in model.modules() if type(module).__name__ == "FeedForward"]
    for block in blocks:
        block[1].register_forward_hook(lambda module, inputs, output: hidden.append(output))  # type: ignore[index]
    inputs = torch.tensor([[pipeline.tokenizer.start_id, *view.ids.tolist()]])
    with watch(model, "*.weights") as weights_of_layers:
        model(inputs[:, :10])
    assert [units.name for units in view.units] == ["layer 1, neurons", "layer 2, neurons"]
    for units, values in zip(view.units, hidden, strict=True):
        assert units.values[:9] == pytest.approx(values[0, 1:].numpy(), abs=1e-5)
    for layer, tensors in zip(view.attention, weights_of_layers.values(), strict=True):
        assert layer.weights == pytest.approx(tensors[0][0].numpy(), abs=1e-6)
    hidden.clear()
    model(inputs[:, 5:15])
    assert view.units[1].values[9:14] == pytest.approx(hidden[1][0, 5:].numpy(), abs=1e-5)
    attention = numbers_of(page, "attention")
    assert attention["names"] == [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    packed = np.frombuffer(base64.b64decode(attention["values"]), np.uint8).reshape(4, 10, 10) / 255
    assert packed[3] == pytest.approx(view.attention[1].weights[1], abs=0.002)
    row = list(page.section("Attention").all("span", "w"))
    assert [token.text for token in row[:4]] == ["<start>", "T", "h", "e"]


@pytest.mark.parametrize(("size", "context"), [(1, None), (7, None), (1, 4), (4, 4), (5, 4), (17, 4), (18, 5), (3, 1)])
def test_windows_have_each_position_once(size: int, context: int | None) -> None:
    windows = list(scored_windows(size, context))
    assert [position for _, first, end in windows for position in range(first, end)] == list(range(size))
    for begin, first, end in windows:
        assert end - begin <= (context or size)
        assert first - begin >= (0 if not begin else context - max(1, context // 2))  # type: ignore[operator]


def test_properties_of_tokens_are_correct() -> None:
    pieces = list('Ab ("x y" 12\n) c')
    properties = find_properties([*pieces, *"\n\n“" + "z" * 9])
    by_hand = {
        "place in line": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2, 3, 0, 0, 1, *range(2, 11)],
        "place in word": [1, 2, 0, 0, 0, 1, 0, 1, 0, 0, 1, 2, 0, 0, 0, 1, 0, 0, 0, *range(1, 10)],
        "in quotes": [0] * 4 + [1] * 4 + [0] * 10 + [1] * 10,
        "in brackets": [0] * 3 + [1] * 10 + [0] * 15,
        "blank": [0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1] + [0] * 10,
        "punctuation": [0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1] + [0] * 9,
    }
    assert {name: values.tolist() for name, values in properties.items()} == by_hand  # others are nearly constant
    assert find_properties(["ab", " c"] * 5)["place in line"].tolist() == list(range(2, 22, 2))
    assert find_properties([]) == {}
    tokenizer = pipeline_of("bytes").tokenizer
    assert decode_tokens(tokenizer.decoder(), tokenizer.encode("aé").tolist()) == ("a", "", "é")


def test_a_unit_that_follows_quotes_is_detected() -> None:
    text = 'he said "yes, it is" and "no" to all, and then "never again" was heard in the hall'
    properties = find_properties(list(text))
    values = np.random.default_rng(0).normal(size=(2, len(text), 5)).astype(np.float32)
    values[1, :, 3] = 2 - properties["in quotes"]
    values[0, :, 2] = 0.7
    units = [Units(1, "cell", values[0]), Units(2, "cell", values[1])]
    correlations = correlate(units, properties)
    property_index = list(properties).index("in quotes")
    assert find_followers(correlations, property_index, 3)[0] == (1, 3, pytest.approx(-1))
    expected = np.corrcoef(values[0, :, 1], properties["in quotes"])[0, 1]
    assert correlations[0][property_index, 1] == pytest.approx(expected)
    assert not correlations[0][:, 2].any(), "what is constant follows nothing"
    assert correlate(units, {"x": np.arange(5.0)}) == []


def test_saturation_and_gates_have_their_formulas() -> None:
    shut, opened = measure_saturation(np.array([[0.05, 0.95], [0.5, 0.95], [0.0, 0.1], [0.2, 0.99]], np.float32))
    assert (shut.tolist(), opened.tolist()) == ([0.5, 0.0], [0.0, 0.75])
    names = [units.kind for units in viewed(model_of("grid"))[0].units if units.is_gate]
    assert names == [f"{along} {gate}" for _ in range(2) for along in ("time", "depth")
                     for gate in ("input", "forget", "output")]  # fmt: skip
    assert [units.kind for units in viewed(model_of("gru"))[0].units if units.is_gate] == ["reset", "update"]


def test_predictions_equal_formulas() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [0.0, -torch.inf, 0.0]])
    predictions = Predictions.of(logits, np.array([2, NO_TOKEN]))
    p = np.exp([1, 3, 2]) / np.exp([1, 3, 2]).sum()
    assert predictions.surprisals[0] == pytest.approx(-math.log(p[2]))
    assert predictions.ranks.tolist() == [2, 0]
    assert predictions.entropies == pytest.approx([-(p * np.log(p)).sum(), math.log(2)])
    assert predictions.ids[0].tolist() == [1, 2, 0]


def test_numbers_on_the_page_equal_those_of_the_view() -> None:
    pipeline = model_of()
    view, page = viewed(pipeline)
    numbers = numbers_of(page)
    assert numbers["surprisal"][:-1] == pytest.approx(view.predictions.surprisals[:-1].tolist(), abs=5.1e-5)
    assert numbers["surprisal"][-1] is None
    assert numbers["entropy"] == pytest.approx(view.predictions.entropies.tolist(), abs=5.1e-5)
    assert numbers["rank"] == view.predictions.ranks.tolist()
    for position, options in enumerate(numbers["options"]):
        assert [share for _, share in options] == pytest.approx(view.predictions.probabilities[position], abs=5.1e-6)
        assert [numbers["symbols"][symbol] for symbol, _ in options] == [
            token_page.show_token(pipeline.tokenizer.symbol(id)) for id in view.predictions.ids[position].tolist()
        ]
    for units, group in zip(view.units, numbers["groups"], strict=True):
        assert group["units"] == list(range(6))
        low, high = np.array(group["low"]), np.array(group["high"])
        values = np.frombuffer(base64.b64decode(group["values"]), np.uint8).reshape(6, -1).T
        assert low + values / 255 * (high - low) == pytest.approx(units.values, abs=0.01)
    shown = next(page.section("The text").all("div", "text"))
    assert "\ufffd" in "".join(view.tokens)  # an unknown character
    assert shown.text.replace("↵", "") == TEXT.replace("↵", "") + "▸"
    assert "perplexity " + f"{np.exp(view.predictions.surprisals[:-1].mean()):.4g}" in page.text
    rows = list(page.section("Units that follow").all("tr"))[1:]
    assert [next(row.all("td")).text for row in rows] == list(view.properties)
    for position, row in enumerate(rows):
        for button in row.all("button"):
            group = next(g for g, units in enumerate(view.units) if units.name == button.attributes["data-group"])
            r = view.correlations[group][position, int(button.attributes["data-unit"] or 0)]
            assert number(button.attributes["title"] or "") == pytest.approx(r, abs=5.1e-5)
            chance = math.sqrt(2 * math.log(12 * 6) / len(view.tokens))
            assert ("class" in button.attributes) == (abs(r) < chance)


def test_long_texts_and_many_units_are_truncated_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "MAX_TOKENS", 60)
    for module in (token_page, unit_page, viewing):
        monkeypatch.setattr(module, "MAX_SHOWN_TOKENS", 50)
    monkeypatch.setattr(token_page, "MAX_UNIT_BYTES", 50 * 12 * 2)
    pipeline = model_of()
    view, page = viewed(pipeline, TEXT * 3)
    assert (len(view.tokens), view.length) == (60, 3 * len(TEXT))
    assert f"The first 50 of {3 * len(TEXT)} tokens are shown." in page.section("The text").text
    assert f"tokens 60 of {3 * len(TEXT)}" in page.text
    numbers = numbers_of(page)
    assert len(numbers["surprisal"]) == 50
    listed = {
        (button.attributes["data-group"], int(button.attributes["data-unit"] or 0))
        for button in page.section("Units that follow").all("button")
    }
    on_page = {(group["name"], unit) for group in numbers["groups"] for unit in group["units"]}
    assert listed <= on_page, "what can be chosen is there"
    assert 24 <= len(on_page) < 12 * 6
    monkeypatch.setattr(viewing, "MAX_VALUES", 72 * 20)
    assert len(viewed(pipeline, TEXT)[0].tokens) == 20
    assert "too short" in viewed(pipeline, "The sea")[1].section("Units").text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_any_text_gives_a_valid_page_without_requests(name: str) -> None:
    for kind, text in zip(
        ["characters", "bytes", "words", "bpe"] * 2, [*HARD, "\n", " ", "</script>", "x"], strict=True
    ):
        pipeline = model_of(name, kind)
        if not len(pipeline.tokenizer.encode(text)):
            continue
        inspection = pipeline.inspect(text)
        inspection.page.encode()
        page = parsed(inspection.page)
        assert len(page.programs()) == 1
        assert numbers_of(page)["tokens"] == len(inspection.view.tokens)
        assert not [node.tag for node in page.all() if {"src", "href", "srcset", "data"} & node.attributes.keys()]
        assert len(inspection.content) < 60_000


def test_a_text_without_tokens_is_refused() -> None:
    for text in ("", " "):
        with pytest.raises(EnsueError, match=r"^nothing to inspect: the text has no tokens$"):
            model_of(kind="words").inspect(text)
    with pytest.raises(TypeError, match="the text is 3; expected a string"):
        model_of().inspect(3)  # type: ignore[arg-type]
