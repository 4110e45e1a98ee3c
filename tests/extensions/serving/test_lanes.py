"""Rows in a batch have the same bits as alone, while others enter and leave."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.extensions.serving.loop import LiveBatch
from ensue.models.build_text import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.types import leaves
from layer_tables import layers

VOCABULARY = 37
MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "lstm", "d_embedding": 9, "d_model": 20},
    "transformer": {"kind": "transformer", "d_model": 16, "num_heads": 2, "context": 128},
}
OTHERS: dict[str, dict[str, Any]] = {
    "rotary": {"kind": "transformer", "d_model": 20, "num_heads": 2, "context": 128, "positions": "rotary"},
    "window": {"kind": "window", "d_embedding": 7, "d_model": 13, "size": 4},
    "gru": {"kind": "gru", "d_embedding": 9, "d_model": 21},
    "qrnn": {"kind": "qrnn", "d_embedding": 9, "d_model": 15},
    "minlstm": {"kind": "minlstm", "d_embedding": 9, "d_model": 33},
    "wide": {"kind": "lstm", "d_embedding": 64, "d_model": 256},
}


def model_of(specification: dict[str, Any]) -> LanguageModel:
    torch.manual_seed(0)
    model = build_language_model(**layers(**specification), vocabulary_size=VOCABULARY).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def alone(model: LanguageModel, state: Any, ids: list[int]) -> list[Tensor]:
    lanes = LiveBatch(model)
    lanes.change([], [state])
    return [lanes.step([id])[0] for id in ids]


def check(model: LanguageModel, count: int) -> None:
    torch.manual_seed(1)
    lengths = torch.randint(1, 40, (count,)).tolist()
    with torch.inference_mode():
        states = [model.read(torch.randint(VOCABULARY, (1, length)))[1] for length in lengths]
        half, rows_logits = count // 2, [[] for _ in range(count)]  # type: ignore[var-annotated]
        lanes, live = LiveBatch(model), list(range(half))
        lanes.change([], states[:half])
        for step in range(6):
            if step == 3:  # some leave, others enter
                staying = [place for place in range(half) if place % 3]
                live = [live[place] for place in staying] + list(range(half, count))
                lanes.change(staying, states[half:])
            logits = lanes.step([step] * len(live))
            for row, row_logits in zip(live, logits, strict=True):
                rows_logits[row].append((step, row_logits))
        for row in range(count):
            expected = alone(model, states[row], [step for step, _ in rows_logits[row]])
            assert expected
            for (_, actual), alone_logits in zip(rows_logits[row], expected, strict=True):
                assert torch.equal(actual, alone_logits)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_among_others_has_the_bits_of_the_row_alone(name: str) -> None:
    check(model_of(MODELS[name]), 7)


@pytest.mark.slow
@pytest.mark.parametrize("name", {**MODELS, **OTHERS})
def test_a_row_among_many_others_has_the_bits_of_the_row_alone(name: str) -> None:
    check(model_of({**MODELS, **OTHERS}[name]), 90)


def test_the_state_of_a_row_can_be_extracted() -> None:
    model = model_of(MODELS["transformer"])
    with torch.inference_mode():
        states = [model.read(torch.tensor([ids]))[1] for ids in ([1, 2, 3, 4, 5], [6, 7])]
        lanes = LiveBatch(model)
        lanes.change([], states)
        lanes.step([8, 9])
        taken, expected = lanes.state_of(1), model.read(torch.tensor([[6, 7, 9]]))[1]
        for actual, expected_leaf in zip(leaves(taken), leaves(expected), strict=True):
            torch.testing.assert_close(actual, expected_leaf)
