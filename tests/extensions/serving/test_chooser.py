"""How the next token is chosen by a row's counts, apart from models and requests."""

import pytest
import torch

from ensue.extensions.serving.api import CompletionRequest
from ensue.extensions.serving.row import Row, RowSampler
from ensue.text.tokenizer import Decoder


class Digits(Decoder):
    def feed(self, id: int) -> str:
        return str(id)


@pytest.mark.parametrize(
    ("penalties", "expected"),
    [
        ({}, [2, 2, 2, 2]),
        ({"presence_penalty": 0.7}, [2, 1, 2, 2]),  # from the first time on, and never more
        ({"frequency_penalty": 0.4}, [2, 2, 1, 2]),  # each time
        ({"presence_penalty": -1.0}, [2, 2, 2, 2]),
        ({"presence_penalty": 0.7, "frequency_penalty": 0.4}, [2, 1, 0, 2]),
    ],
)
def test_penalties_count_what_was_written(penalties: dict[str, float], expected: list[int]) -> None:
    request = CompletionRequest.model_validate({"model": "lstm", "temperature": 0.0, "max_tokens": 9, **penalties})
    row = Row(request, index=0, decoder=Digits())
    chooser, found = RowSampler([row], torch.device("cpu")), []
    for _ in expected:
        found += (ids := chooser.choose(torch.tensor([[0.0, 0.5, 1.0]])))
        chooser.count(ids, 3)
    assert found == expected
