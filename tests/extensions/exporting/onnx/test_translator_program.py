"""The search of the exported translator finds the answers of an enumeration; the models are tables."""

import itertools
import json
import math
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import ensue
from ensue.decode.beam import best_ids

from .conftest import forget_modules

PROGRAMS = Path(ensue.__file__).parent / "extensions" / "exporting" / "onnx" / "programs"
BEGIN, END, UNKNOWN, SEPARATOR = range(4)
WORDS = {"<begin>": BEGIN, "<end>": END, "<unknown>": UNKNOWN, "<separator>": SEPARATOR, "a": 4, "b": 5}
SPECIAL = {name: id for name, id in WORDS.items() if name.startswith("<")}
CONFIG = {
    "source": {"special": SPECIAL, "names": {}, "before": "", "unknown": UNKNOWN, "size": 6},
    "target": {"special": SPECIAL, "names": {}, "before": "", "words": "simple", "size": 6},
    "names": [], "between_names": " ", "copies": False, "source_tokens": 3, "readers": [], "forbidden": [0, 2, 3],
    "min_tokens": 0, "no_repeat_ngram": 0, "most": 3, "ratio": 0, "more": 99, "length_penalty": 1.0, "beams": 40,
    "window": 9, "rows": 4, "tokens": 99,
}  # fmt: skip


class Table:
    """Both graphs of a model: the next token depends on the last token and on the number of tokens."""

    scores = np.zeros((5, 6, 6), np.float32)

    def __init__(self, path: Path, *args: Any, **more: Any) -> None:
        self.is_encoder = path.stem == "encoder"

    def get_inputs(self) -> list[Any]:
        names = {"ids": "tensor(int64)"} if self.is_encoder else {"ids": "tensor(int64)", "state_0": "tensor(int64)"}
        return [SimpleNamespace(name=name, type=kind, shape=["batch"]) for name, kind in names.items()]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in (["state_0"] if self.is_encoder else ["scores", "next_0"])]

    def run(self, _: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        if self.is_encoder:
            return [np.zeros((len(inputs["ids"]), 1), np.int64)]
        length = inputs["state_0"]
        scores = self.scores[length[:, 0].clip(max=4), inputs["ids"]]
        return [scores - np.log(np.exp(scores).sum(1, keepdims=True)), length + 1]


def log_p(ids: tuple[int, ...], token: int) -> float:
    logits = Table.scores[min(len(ids), 4), ids[-1] if ids else BEGIN].astype(float)
    return float(logits[token]) - math.log(np.exp(logits).sum())


def best(alpha: float, least: int, most: int) -> tuple[int, ...]:
    """Return the best of all outputs that end."""
    scores = {}
    for length in range(least, most + 1):
        for ids in itertools.product((4, 5), repeat=length):
            total = sum(log_p(ids[:n], token) for n, token in enumerate((*ids, END)))
            scores[ids] = total / (length + 1) ** alpha
    return max(scores, key=lambda ids: scores[ids])


@pytest.fixture
def program_globals(program: Any) -> Any:
    return program()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def load(**changes: Any) -> Any:
        for name in ("translator", "subwords"):
            shutil.copy(PROGRAMS / f"{name}.py", tmp_path)
        (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        tokenizer = Tokenizer(WordLevel(WORDS, "<unknown>"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        for side in ("source", "target"):
            tokenizer.save(str(tmp_path / f"{side}.json"))
        monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Table))  # type: ignore[arg-type]
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        forget_modules(monkeypatch)
        return SimpleNamespace(**runpy.run_path(str(tmp_path / "translator.py")))

    return load


def test_options_are_refused(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program()
    monkeypatch.setattr(sys, "argv", ["predict.py", "--glossary", "terms.tsv"])
    with pytest.raises(SystemExit, match="--glossary: this program takes no arguments"):
        runpy.run_path(str(tmp_path / "translator.py"), run_name="__main__")


def outputs(program_globals: Any, seeds: range) -> list[tuple[int, ...]]:
    all_outputs = []
    for seed in seeds:
        Table.scores = np.random.default_rng(seed).normal(size=(5, 6, 6)).astype(np.float32) * 2
        all_outputs += program_globals.search([program_globals.read(["a b"])])
    return all_outputs


@pytest.mark.parametrize(("alpha", "least"), [(0.0, 0), (1.0, 0), (1.0, 2), (2.0, 1)])
def test_a_wide_search_finds_the_best_of_all(program: Any, alpha: float, least: int) -> None:
    seeds, program_globals = range(25), program(length_penalty=alpha, min_tokens=least)
    for seed, output in zip(seeds, outputs(program_globals, seeds), strict=True):
        Table.scores = np.random.default_rng(seed).normal(size=(5, 6, 6)).astype(np.float32) * 2
        assert output == best(alpha, least, 3), seed


def test_an_early_stop_counts_the_end_symbol(program: Any) -> None:
    program_globals = program(most=1, beams=2)
    Table.scores = np.full((5, 6, 6), -50.0, np.float32)
    Table.scores[0, BEGIN, [END, 4]] = -0.8, -1.0
    Table.scores[1, 4, END] = 0.0
    assert program_globals.search([program_globals.read(["a"])]) == [(4,)]


def test_outputs_without_an_end_are_scored_by_their_own_length(program: Any) -> None:
    """The outputs without an end have equal lengths, and no pair of words is repeated."""
    program_globals = program(most=4, beams=3, no_repeat_ngram=2)
    Table.scores = np.full((5, 6, 6), -1.0, np.float32)
    Table.scores[..., END] = -math.inf
    Table.scores[..., 4] = 3.0
    assert program_globals.search([program_globals.read(["a"])]) == [(4, 4, 5, 4)]


def test_a_long_source_is_truncated_before_its_end_symbol(program: Any) -> None:
    program_globals = program()
    assert program_globals.read(["a b a b a b"])[0] == [4, 5, 4, END]
    inputs = program_globals.inputs([program_globals.read([text]) for text in ("a b a b a b", "b")])
    assert inputs["ids"].tolist() == [[4, 5, 4, END], [5, END, 0, 0]]


@given(arrays(np.float32, (3, 150), elements=st.sampled_from([-math.inf, -3.0, -1.0, 0.0])), st.integers(1, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_best_ids_are_those_of_the_search_in_torch(program_globals: Any, scores: np.ndarray, k: int) -> None:
    selections = [program_globals.best_ids(scores, k), best_ids(torch.from_numpy(scores.copy()), k)]
    real = [[ids[values > -math.inf], values[values > -math.inf]] for ids, values in selections]  # others vary
    np.testing.assert_array_equal(*real)
