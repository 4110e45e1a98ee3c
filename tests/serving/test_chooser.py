"""How the next token is chosen by a row's counts, apart from models and requests."""

import pytest
import torch

from ensue.serving.chooser import Chooser
from ensue.serving.row import Choosing, Row
from ensue.serving.stopping import Stops
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
    row = Row(
        Choosing(temperature=0.0, **penalties),
        seed=0,
        index=0,
        tokens=9,
        decoder=Digits(),
        stops=Stops(()),
        logprobs=None,
    )
    chooser, found = Chooser([row], torch.device("cpu")), []
    for _ in expected:
        found += (ids := chooser.choose(torch.tensor([[0.0, 0.5, 1.0]])))
        chooser.count(ids, 3)
    assert found == expected
