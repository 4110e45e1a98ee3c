"""The view of a masked language model equals its predictions, `score`, and its attention."""

import base64
import math

import numpy as np
import pytest
import torch

from ensue.errors import EnsueError
from ensue.nn import watch
from ensue.tasks.masked_language_modeling import page as viewing
from ensue.tasks.masked_language_modeling.page import MaskedView
from ensue.tasks.masked_language_modeling.pipeline import MaskedLanguagePipeline
from inspection.language_models import numbers_of
from inspection.small import HARD, Node, masked, parsed

TEXT = "the dog is a dog, bird bird"
MASKED = "the [MASK] is a dog, [MASK] bird"


def viewed(pipeline: MaskedLanguagePipeline, text: str) -> tuple[MaskedView, Node]:
    inspection = pipeline.inspect(text)
    assert isinstance(inspection.view, MaskedView)
    return inspection.view, parsed(inspection.page)


@pytest.mark.parametrize("text", [TEXT, TEXT * 4])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_surprisals_of_masked_models_equal_those_of_score(kind: str, text: str) -> None:
    """The second text has more tokens than the context of the model."""
    pipeline = masked(tokenizer={"kind": kind})
    view, page = viewed(pipeline, text)
    scores = pipeline.score(text)
    assert view.predictions.surprisals == pytest.approx([score.nats for score in scores], abs=1e-5)
    assert not view.is_mask.any()
    assert view.length == len(view.tokens)
    assert numbers_of(page)["surprisal"] == pytest.approx([score.nats for score in scores], abs=1e-4)
    assert len(view.attention[0].weights[0]) == min(view.length + 2, 18)


@torch.no_grad()
def test_predictions_of_a_token_equal_those_behind_a_mask() -> None:
    """The reference replaces each token by [MASK] in turn."""
    pipeline = masked()
    view, _ = viewed(pipeline, TEXT)
    model, coder = pipeline.model.eval(), pipeline.coder
    ids = coder.add_frame(coder.encode(TEXT))
    for position in range(view.length):
        hidden = torch.tensor(ids)
        hidden[position + 1] = coder.mask_id
        p = model.head(model(hidden[None]))[0, position + 1].double().softmax(0)
        best = p.sort(descending=True)
        assert view.predictions.probabilities[position] == pytest.approx(best.values[:5].numpy(), abs=1e-6)
        assert view.predictions.entropies[position] == pytest.approx(float(-(p * p.log()).sum()), abs=1e-5)
        assert view.predictions.ranks[position] == best.indices.tolist().index(int(ids[position + 1])) + 1


def test_masks_are_filled_like_by_predict() -> None:
    pipeline = masked()
    view, page = viewed(pipeline, MASKED)
    (filled,) = pipeline.predict([MASKED])
    mask_positions = np.flatnonzero(view.is_mask).tolist()
    assert mask_positions == [1, 6]
    assert [view.tokens[position] for position in mask_positions] == [" [MASK]"] * 2
    rows = list(page.section("In place of the masks").all("tr"))[1:]
    for position, fills, row in zip(mask_positions, filled.masks, rows, strict=True):
        assert math.isnan(view.predictions.surprisals[position])
        assert [pipeline.coder.symbol(id) for id in view.predictions.ids[position]] == [fill.token for fill in fills]
        assert view.predictions.probabilities[position] == pytest.approx([fill.probability for fill in fills], abs=1e-6)
        assert [bdi.text for bdi in row.all("bdi")] == [fill.token for fill in fills]
        titles = [float(title) for title in row.titles()]
        assert titles == pytest.approx([fill.probability for fill in fills], abs=1e-6)
    assert numbers_of(page)["surprisal"][1] is None
    assert "In place" not in viewed(pipeline, TEXT)[1].text


@torch.no_grad()
def test_attention_equals_that_of_each_head() -> None:
    pipeline = masked()
    view, page = viewed(pipeline, TEXT)
    ids = torch.tensor(pipeline.coder.add_frame(view.ids))[None]
    with watch(pipeline.model, "*.weights") as weights_of_layers:
        pipeline.model(ids)
    for layer, tensors in zip(view.attention, weights_of_layers.values(), strict=True):
        assert layer.weights == pytest.approx(tensors[0][0].numpy(), abs=1e-6)
        assert layer.weights.sum(-1) == pytest.approx(1, abs=1e-5)
    attention = numbers_of(page, "attention")
    size = view.length + 2
    packed = np.frombuffer(base64.b64decode(attention["values"]), np.uint8).reshape(4, size, size) / 255
    assert packed[2] == pytest.approx(view.attention[1].weights[0], abs=0.002)
    looks = [token.text for token in page.section("Attention").all("span", "w")]
    assert (looks[0], looks[-1], len(looks)) == ("[CLS]", "[SEP]", size)


def test_odd_and_long_texts_are_shown_and_empty_ones_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = masked()
    for text in [*HARD, "</script>", "[MASK]"]:
        view, page = viewed(pipeline, text)
        assert len(page.programs()) == 1
        assert numbers_of(page)["tokens"] == len(view.tokens)
    monkeypatch.setattr(viewing, "MAX_TOKENS", 20)
    view, page = viewed(pipeline, TEXT * 4)
    assert len(view.tokens) == 20
    assert f"The first 20 of {view.length} tokens are shown." in page.section("The text").text
    assert f"The first 18 of {view.length + 2} positions are shown." in page.section("Attention").text
    for empty in ("", " ", "\x07"):
        with pytest.raises(EnsueError, match="nothing to inspect: the text has no tokens"):
            pipeline.inspect(empty)
    pipeline.model.head = None
    with pytest.raises(EnsueError, match="the model has no head for masks, which inspect needs"):
        pipeline.inspect(TEXT)
