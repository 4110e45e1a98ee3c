"""The view of an output equals the model: probabilities, attention, copying, the search."""

import re
from typing import Any

import numpy as np
import pytest

from ensue.errors import EnsueError
from ensue.tasks.sequence_to_sequence import page as pages
from ensue.tasks.sequence_to_sequence.page import MAX_TOKENS, CandidateBox, list_boxes
from ensue.tasks.sequence_to_sequence.view import SequenceView
from inspection.small import HARD, Node, number, parsed, translator
from inspection.translators import MODELS, SOURCE
from training.tiny import some_slow


def viewed(tables: dict[str, Any], source: str = SOURCE, target: str | None = None) -> tuple[SequenceView, Node]:
    inspection = translator(**tables).with_search(max_tokens=8, width=3).inspect(source, target)
    assert isinstance(inspection.view, SequenceView)
    return inspection.view, parsed(inspection.page)


@pytest.mark.parametrize("name", some_slow(MODELS, "copying"))
def test_numbers_equal_those_of_the_search_and_of_score(name: str) -> None:
    view, page = viewed(MODELS[name])
    assert view.search is not None
    best = view.search.hypotheses[0]
    assert view.log_probabilities.sum() == pytest.approx(best.log_probability, abs=1e-4)
    assert (view.output[-1] == "<end>") == best.is_complete
    heads = {"transformer": 2, "heads": 2, "plain": 0}.get(name, 1)
    assert [alignment.weights.shape for alignment in view.alignments] == [(heads, len(view.output), 6)] * bool(heads)
    for shown in [*view.alignments, *([view.copying] if view.copying else [])]:
        assert shown.weights.sum(-1) == pytest.approx(1, abs=1e-5)
    assert (view.alignment is None) == (name == "plain")
    for position, (symbol, options) in enumerate(zip(view.output, view.options, strict=True)):
        p = float(np.exp(view.log_probabilities[position]))
        assert [option.probability for option in options if option.symbol == symbol] in ([], [pytest.approx(p)])
        assert options[0].probability >= p - 1e-7
    assert page.section("The search")
    target_view, page = viewed(MODELS[name], target="die große Katze")
    score = translator(**MODELS[name]).score(SOURCE, "die große Katze")
    assert target_view.log_probabilities.sum() == pytest.approx(-score, abs=1e-4)
    assert target_view.search is None
    assert not [heading for heading in page.all("h2") if heading.text == "The search"]


def test_weights_on_the_page_equal_those_of_the_layer() -> None:
    view, page = viewed({}, target="die Katze sieht")
    weights_on_page = {}
    drawings = page.section("Attention").all("svg")
    (drawing,) = [drawing for drawing in drawings if drawing.attributes.get("aria-label") == "layer 1, head 2"]
    for title in drawing.titles():
        cells = re.fullmatch(r"(.+) attends to (.+): (.+)", title)
        assert cells
        weights_on_page[cells[1], cells[2]] = float(cells[3])
    weights = view.alignments[0].weights[1]
    for t, token in enumerate(view.output):
        for s, word in enumerate(view.source):
            assert weights_on_page.get((token, word), 0.0) == pytest.approx(weights[t, s], abs=0.02)
            assert ((token, word) in weights_on_page) == (weights[t, s] >= 0.02)


def test_the_source_is_colored_by_the_attention_of_a_token() -> None:
    view, page = viewed({}, target="die Katze")
    source, output = (list(text.all("span", "w")) for text in page.section("Source").all("div", "text"))
    assert tuple(word.text for word in source) == view.source
    assert view.alignment is not None
    for token, weights in zip(output, view.alignment, strict=True):
        looks = [float(strength) for strength in (token.attributes["data-look"] or "").split()]
        assert len(looks) == len(source)
        assert int(np.argmax(looks)) == int(weights.argmax())


def test_the_share_of_copying_is_shown() -> None:
    """A word missing in the vocabulary can only be copied, and a word missing in the source is generated."""
    view, page = viewed(MODELS["copying"], target="Ada sieht Katze")
    assert view.copying is not None
    assert view.source[4] == "Ada"
    assert view.output == ("Ada", "sieht", "Katze", "<end>")
    assert view.copying.shares[0] == pytest.approx(1, abs=1e-5)
    assert view.copying.shares[1] == view.copying.shares[2] == 0
    p = np.exp(view.log_probabilities[0])
    assert (1 - view.copying.generates[0]) * view.copying.weights[0, 4] == pytest.approx(p, rel=1e-4)
    rows = list(page.section("Token by token").all("tr"))[1:]
    titles = [[cell.attributes["title"] for cell in row.all("td") if "title" in cell.attributes] for row in rows]
    shown = [(float(share or 0), float(generates or 0)) for _, share, generates in titles]
    assert [share for share, _ in shown] == pytest.approx(view.copying.shares.tolist(), abs=1e-6)
    assert [generates for _, generates in shown] == pytest.approx(view.copying.generates.tolist(), abs=1e-6)


@pytest.fixture(scope="module")
def drawn() -> tuple[SequenceView, list[CandidateBox], Node]:
    pipeline = translator(**MODELS["additive"]).with_search(max_tokens=8, width=3, length_penalty=0.0)
    inspection = pipeline.inspect(SOURCE)
    assert inspection.view.search is not None
    return inspection.view, list_boxes(inspection.view.search, pipeline.search), parsed(inspection.page)


def test_the_output_is_a_path_through_the_search(drawn: tuple[SequenceView, list[CandidateBox], Node]) -> None:
    view, boxes, page = drawn
    assert view.search is not None
    path = [box for box in boxes if box.is_best]
    assert [view.search.symbols[box.candidate.ids[-1]] for box in path] == list(view.output)
    for length in range(1, 9):
        level = [box for box in boxes if len(box.candidate.ids) == length]
        continued = [box.candidate.log_probability for box in level if box.candidate.fate != "is left out"]
        dropped = [box.candidate.log_probability for box in level if box.candidate.fate == "is left out"]
        assert len(continued) <= 3
        assert continued == sorted(continued, reverse=True)
        assert not dropped or max(dropped) <= min(continued)
        assert [box.row for box in level] == list(range(len(level)))
    nodes = list(page.section("The search").all("g", "node"))
    assert len(nodes) == len(boxes)
    assert len(list(page.section("The search").all("path", "best"))) == len(path) - 1


def test_a_dropped_candidate_has_its_reason(drawn: tuple[SequenceView, list[CandidateBox], Node]) -> None:
    view, boxes, _ = drawn
    assert view.search is not None
    best = view.search.hypotheses
    reasons = {box.candidate.fate: box.reason for box in boxes}
    assert set(reasons) == {"goes on", "ends", "is left out", "comes too late"}
    for box in boxes:
        if box.candidate.fate == "ends":
            score = re.fullmatch(r"ended: score (\S+), rank (\d+) of the complete hypotheses", box.reason)
            assert score
            if int(score[2]) == 1:
                assert number(score[1]) == pytest.approx(best[0].score, abs=1e-4)
        if box.candidate.fate == "comes too late":
            bound = re.search(r"cannot exceed (\S+); the worst output has (\S+)", box.reason)
            assert bound
            assert number(bound[1]) <= number(bound[2]) == pytest.approx(best[-1].score, abs=1e-4)
        if box.candidate.fate == "is left out":
            match = re.search(r"whose last hypothesis has log p = (\S+)", box.reason)
            assert match
            assert box.candidate.log_probability <= number(match[1]) + 1e-4


@pytest.mark.slow
def test_models_of_an_ensemble_are_named() -> None:
    model = translator().with_search(max_tokens=4)
    inspection = model.with_others(translator()).inspect(SOURCE)
    assert [alignment.name for alignment in inspection.view.alignments] == ["model 1, layer 1", "model 2, layer 1"]
    assert not any(module.training for module in model.model.modules()), "a search with others leaves a model as it was"
    assert model.with_others(model).inspect(SOURCE).view.alignments[0].weights.shape == (2, 4, 6)
    assert "2 models together" in inspection.page


def test_a_coverage_penalty_with_a_copying_head_is_shown() -> None:
    """The attention inside the head shows no weights."""
    model = translator(**MODELS["copying"]).with_search(max_tokens=4, coverage_penalty=0.5)
    (output,) = model.predict([SOURCE])
    assert output.score < model.with_search(coverage_penalty=0.0).predict([SOURCE])[0].score
    model = translator(**MODELS["additive"]).with_search(coverage_penalty=0.5)
    assert "do not include the coverage penalty" in parsed(model.inspect(SOURCE).page).section("The search").text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [*HARD, ""])
def test_any_text_gives_a_valid_page(text: str) -> None:
    for name in ("transformer", "copying"):
        page = viewed(MODELS[name], text, target=text)[1]
        assert len(page.programs()) == 1


def test_long_texts_are_truncated_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in {"MAX_ROWS": 20, "MAX_SOURCE": 6, "MAX_OUTPUT": 9}.items():
        monkeypatch.setattr(pages, name, limit)
    text = " ".join(["the cat sees a door"] * 3)
    page = viewed({}, text, target=text)[1]
    assert "The first 6 of 16 tokens of the source are shown." in page.section("Source").text
    assert "The first 9 of 16 tokens of the output are shown." in page.section("Token").text
    assert "only the mean of the heads" in page.section("Attention").text
    with pytest.raises(EnsueError, match=r"the source has 2,001 tokens; a page has at most 2,000"):
        viewed({}, "cat " * MAX_TOKENS)
    with pytest.raises(TypeError, match="the source is 3; expected a text"):
        translator().inspect(3)  # type: ignore[arg-type]
