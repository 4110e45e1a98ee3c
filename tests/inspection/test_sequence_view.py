"""What is shown of an output is what the model did: probabilities, attention, copying, the search."""

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
def test_the_numbers_are_those_of_the_search_and_of_score(name: str) -> None:
    view, page = viewed(MODELS[name])
    assert view.search is not None
    best = view.search.hypotheses[0]
    assert view.log_probabilities.sum() == pytest.approx(best.log_probability, abs=1e-4)
    assert (view.output[-1] == "<end>") == best.is_complete
    heads = {"transformer": 2, "heads": 2, "plain": 0}.get(name, 1)
    assert [found.weights.shape for found in view.alignments] == [(heads, len(view.output), 6)] * bool(heads)
    for weights in [found.weights for found in view.alignments] + ([view.copying.weights] if view.copying else []):
        assert weights.sum(-1) == pytest.approx(1, abs=1e-5)
    assert (view.alignment is None) == (name == "plain")
    for place, (symbol, options) in enumerate(zip(view.output, view.options, strict=True)):
        p = float(np.exp(view.log_probabilities[place]))
        assert [option.probability for option in options if option.symbol == symbol] in ([], [pytest.approx(p)])
        assert options[0].probability >= p - 1e-7
    assert page.section("The search")
    given, page = viewed(MODELS[name], target="die große Katze")
    score = translator(**MODELS[name]).score(SOURCE, "die große Katze")
    assert given.log_probabilities.sum() == pytest.approx(-score, abs=1e-4)
    assert given.search is None
    assert not [part for part in page.all("h2") if part.text == "The search"]


def test_the_weights_on_the_page_are_those_of_the_layer() -> None:
    view, page = viewed({}, target="die Katze sieht")
    found = {}
    drawings = page.section("Attention").all("svg")
    (drawing,) = [part for part in drawings if part.attributes.get("aria-label") == "layer 1, head 2"]
    for title in drawing.titles():
        cells = re.fullmatch(r"(.+) attends to (.+): (.+)", title)
        assert cells
        found[cells[1], cells[2]] = float(cells[3])
    weights = view.alignments[0].weights[1]
    for t, token in enumerate(view.output):
        for s, word in enumerate(view.source):
            assert found.get((token, word), 0.0) == pytest.approx(weights[t, s], abs=0.02)
            assert ((token, word) in found) == (weights[t, s] >= 0.02)


def test_the_source_is_colored_by_what_a_token_looks_at() -> None:
    view, page = viewed({}, target="die Katze")
    source, output = (list(text.all("span", "w")) for text in page.section("Source").all("div", "text"))
    assert tuple(word.text for word in source) == view.source
    assert view.alignment is not None
    for token, weights in zip(output, view.alignment, strict=True):
        looks = [float(strength) for strength in (token.attributes["data-look"] or "").split()]
        assert len(looks) == len(source)
        assert int(np.argmax(looks)) == int(weights.argmax())


def test_the_share_of_copying() -> None:
    """A word that the vocabulary does not have can only be copied; one that the source does not have is generated."""
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
    view, found, page = drawn
    assert view.search is not None
    path = [box for box in found if box.is_best]
    assert [view.search.symbols[box.candidate.ids[-1]] for box in path] == list(view.output)
    for length in range(1, 9):
        here = [box for box in found if len(box.candidate.ids) == length]
        kept = [box.candidate.log_probability for box in here if box.candidate.fate != "is left out"]
        dropped = [box.candidate.log_probability for box in here if box.candidate.fate == "is left out"]
        assert len(kept) <= 3
        assert kept == sorted(kept, reverse=True)
        assert not dropped or max(dropped) <= min(kept)
        assert [box.row for box in here] == list(range(len(here)))
    nodes = list(page.section("The search").all("g", "node"))
    assert len(nodes) == len(found)
    assert len(list(page.section("The search").all("path", "best"))) == len(path) - 1


def test_why_a_beginning_was_dropped(drawn: tuple[SequenceView, list[CandidateBox], Node]) -> None:
    view, found, _ = drawn
    assert view.search is not None
    best = view.search.hypotheses
    reasons = {box.candidate.fate: box.reason for box in found}
    assert set(reasons) == {"goes on", "ends", "is left out", "comes too late"}
    for box in found:
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
def test_models_together_are_told_apart() -> None:
    one = translator().with_search(max_tokens=4)
    inspection = one.with_others(translator()).inspect(SOURCE)
    assert [found.name for found in inspection.view.alignments] == ["model 1, layer 1", "model 2, layer 1"]
    assert not any(part.training for part in one.model.modules()), "a search with others leaves a model as it was"
    assert one.with_others(one).inspect(SOURCE).view.alignments[0].weights.shape == (2, 4, 6)
    assert "2 models together" in inspection.page


def test_a_coverage_penalty_beside_a_head_that_copies() -> None:
    """The layer inside of the head shows no weights of its own."""
    model = translator(**MODELS["copying"]).with_search(max_tokens=4, coverage_penalty=0.5)
    (output,) = model.predict([SOURCE])
    assert output.score < model.with_search(coverage_penalty=0.0).predict([SOURCE])[0].score
    model = translator(**MODELS["additive"]).with_search(coverage_penalty=0.5)
    assert "do not include the coverage penalty" in parsed(model.inspect(SOURCE).page).section("The search").text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [*HARD, ""])
def test_no_text_breaks_a_page(text: str) -> None:
    for name in ("transformer", "copying"):
        page = viewed(MODELS[name], text, target=text)[1]
        assert len(page.programs()) == 1


def test_long_texts_are_cut_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in {"MAX_ROWS": 20, "MAX_SOURCE": 6, "MAX_OUTPUT": 9}.items():
        monkeypatch.setattr(pages, name, most)
    text = " ".join(["the cat sees a door"] * 3)
    page = viewed({}, text, target=text)[1]
    assert "The first 6 of 16 tokens of the source are shown." in page.section("Source").text
    assert "The first 9 of 16 tokens of the output are shown." in page.section("Token").text
    assert "only the mean of the heads" in page.section("Attention").text
    with pytest.raises(EnsueError, match=r"the source has 2,001 tokens; a page has at most 2,000"):
        viewed({}, "cat " * MAX_TOKENS)
    with pytest.raises(TypeError, match="the source is 3; expected a text"):
        translator().inspect(3)  # type: ignore[arg-type]
