"""The choice of the next token with penalties, without a model or a request."""

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
        ({"presence_penalty": 0.7}, [2, 1, 2, 2]),  # once a token has occurred
        ({"frequency_penalty": 0.4}, [2, 2, 1, 2]),  # for each occurrence
        ({"presence_penalty": -1.0}, [2, 2, 2, 2]),
        ({"presence_penalty": 0.7, "frequency_penalty": 0.4}, [2, 1, 0, 2]),
    ],
)
def test_penalties_count_the_written_tokens(penalties: dict[str, float], expected: list[int]) -> None:
    request = CompletionRequest.model_validate({"model": "lstm", "temperature": 0.0, "max_tokens": 9, **penalties})
    row = Row(request, index=0, decoder=Digits())
    chooser, chosen_ids = RowSampler([row], torch.device("cpu")), []
    for _ in expected:
        chosen_ids += (ids := chooser.choose(torch.tensor([[0.0, 0.5, 1.0]])))
        chooser.count(ids, 3)
    assert chosen_ids == expected
