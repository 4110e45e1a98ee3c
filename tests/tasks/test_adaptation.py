"""A pipeline of a language model adapts to the text that it reads."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ensue.errors import EnsueError
from language_pipelines import TEXT, pipeline_of


def test_an_evaluation_equals_the_scores_of_its_tokens(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT[:32], encoding="utf-8")
    model = pipeline_of("characters").with_adaptation(cache=50, dynamic=0.3, dynamic_segment=16)
    scores = model.evaluate(tmp_path / "text.txt")
    assert scores.nats_per_token * scores.tokens == pytest.approx(sum(token.nats for token in model.score(TEXT[:32])))


@pytest.mark.slow
def test_every_score_reads_the_text_in_order(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    plain = pipeline_of("characters")
    before = [parameter.clone() for parameter in plain.model.parameters()]
    model = plain.with_adaptation(cache=50, dynamic=0.3, dynamic_segment=8)
    nats = sum(token.nats for token in model.score(TEXT))
    scores = model.evaluate(tmp_path / "text.txt")
    assert scores.nats_per_token == pytest.approx(nats / scores.tokens, abs=1e-6)
    assert model.score_texts([TEXT, TEXT[:9]]).nats[0] == pytest.approx(nats, abs=1e-3)
    streamed = sum(token.nats for token in model.score_stream(TEXT[at : at + 7] for at in range(0, len(TEXT), 7)))
    assert streamed == pytest.approx(nats, abs=1e-3)
    assert nats < sum(token.nats for token in plain.score(TEXT)) - 20
    assert model.protocol(scores).endswith("state carried, adapting to the text")
    with pytest.raises(EnsueError, match="2 parts; a model that adapts to the text reads it in order"):
        model.evaluate(tmp_path / "text.txt", parts=2)
    assert all(map(torch.equal, plain.model.parameters(), before))


def test_disabled_adaptation_changes_no_bit() -> None:
    plain = pipeline_of("words")
    for off in ({}, {"cache": 9, "cache_weight": 0.0}, {"dynamic": 0.0, "dynamic_decay": 1.0}):
        assert plain.with_adaptation(**off).score(TEXT) == plain.score(TEXT)


def test_samples_start_from_the_adapted_state() -> None:
    """All samples share one reading of the prompt, and a beam search starts from it, too."""
    model = pipeline_of("characters").with_adaptation(cache=50, dynamic=1.0, dynamic_segment=8)
    (alone,) = model.samples("The sea was calm.", 1, max_tokens=12, temperature=0)
    assert model.samples("The sea was calm.", 3, max_tokens=12, temperature=0) == [alone] * 3
    assert "".join(model.generate("The sea was calm.", max_tokens=12, temperature=0)) == alone
    (best,) = model.search("The sea was calm.", beams=1, max_tokens=12)
    assert best.text == alone


@pytest.mark.parametrize("options", [{"cache": 9}, {"dynamic": 0.5}])
def test_a_text_is_generated_without_a_prompt(options: dict[str, Any]) -> None:
    """Nothing was read, so there was no state: this ended in an AttributeError."""
    model = pipeline_of("characters").with_adaptation(**options)
    assert len(model.samples("", 2, max_tokens=3, temperature=0)) == 2
