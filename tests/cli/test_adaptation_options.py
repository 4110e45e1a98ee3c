"""The options of a neural cache and of dynamic evaluation on the command line."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from command_fixtures import Ensue


@pytest.mark.slow
def test_adaptation_has_options(ensue: Ensue, refused: Callable[..., str], trained: Path, text: Path) -> None:
    plain = json.loads(ensue("evaluate", trained / "lstm", text, "--json").out)
    scores = json.loads(ensue("evaluate", trained / "lstm", text, "--cache", 200, "--dynamic", 0.5, "--json").out)
    assert scores["tokens"] == plain["tokens"]
    assert scores["nats_per_token"] < plain["nats_per_token"]
    lines = ensue("score", trained / "lstm", text, "--cache", 200, "--dynamic", 0.5, "--json").out.splitlines()
    mean = math.fsum(json.loads(line)["nats"] for line in lines) / len(lines)
    assert mean == pytest.approx(scores["nats_per_token"], abs=1e-4)
    assert ensue("generate", trained / "lstm", "--prompt", "The", "--max-tokens", 5, "--cache", 9).out.startswith("The")
    assert "need a recurrent language model" in refused("evaluate", trained / "transformer", text, "--cache", 9)
    assert "cache is -1; expected" in refused("score", trained / "lstm", text, "--cache", -1)
