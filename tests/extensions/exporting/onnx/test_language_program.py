"""The exported program of language models with a model computed by hand: pieces, windows, and generated tokens."""

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
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import ensue

PROGRAMS = Path(ensue.__file__).parent / "extensions" / "exporting" / "onnx" / "programs"
SYMBOLS = ["<end>", "a", "b", "c"]
TEXT = [1 + n * n % 7 % 3 for n in range(40)]


class Sums:
    """A model whose next token depends on the sum of all ids so far: logits (V,) from a table."""

    table = np.random.default_rng(0).normal(size=(5, len(SYMBOLS))).astype(np.float32)

    def __init__(self, *args: Any, **more: Any) -> None:
        self.longest = 0

    def get_inputs(self) -> list[Any]:
        leaf = {"name": "state_0", "shape": ["batch", 1], "type": "tensor(int64)"}
        return [SimpleNamespace(name="ids", shape=["batch", "time"]), SimpleNamespace(**leaf)]

    def run(self, _: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        sums = inputs["state_0"] + np.cumsum(inputs["ids"], 1)
        self.longest = max(self.longest, inputs["ids"].shape[1])
        return [self.table[sums % 5], sums[:, -1:]]

    @classmethod
    def nats(cls, read: list[int], token: int) -> float:
        """Return the surprisal of a token after earlier tokens."""
        logits = cls.table[sum(read) % 5].astype(float)
        return math.log(np.exp(logits).sum()) - float(logits[token])


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, context: int | None) -> Any:
    shutil.copy(PROGRAMS / "language.py", folder)
    config = {"context": context, "start": 0, "words": None, "symbols": SYMBOLS}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(WordLevel({symbol: id for id, symbol in enumerate(SYMBOLS)}, "<end>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Sums))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "argv", ["predict.py", "--generate", "0", ""])
    return SimpleNamespace(**runpy.run_path(str(folder / "language.py")))


@pytest.mark.parametrize("piece", [1, 7, 40, 1024])
def test_the_state_is_passed_from_piece_to_piece(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = list(program(tmp_path, monkeypatch, None).scores(TEXT, piece))
    assert [id for id, _ in scores] == TEXT
    assert [nats for _, nats in scores] == pytest.approx(
        [Sums.nats(TEXT[:n], id) for n, id in enumerate(TEXT)], abs=1e-5
    )


@pytest.mark.parametrize("context", [1, 2, 5, 8, 64])
def test_windows_advance_by_half_of_the_context(context: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program_globals = program(tmp_path, monkeypatch, context)
    scores = list(program_globals.scores(TEXT))
    assert [id for id, _ in scores] == TEXT
    assert program_globals.model.longest == min(context, len(TEXT))
    read, stride = [0, *TEXT], max(1, context // 2)
    begins = [0 if n < context else (n - context) // stride * stride + stride for n in range(len(TEXT))]
    expected = [Sums.nats(read[begin : n + 1], id) for (n, id), begin in zip(enumerate(TEXT), begins, strict=True)]
    assert [nats for _, nats in scores] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("context", [None, 6])
def test_the_most_probable_tokens_are_generated(
    context: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the context is full, its second half is read again."""
    program_globals, ids = program(tmp_path, monkeypatch, context), [0, 1, 2]
    window = list(ids)
    for _ in range(30):
        ids.append(int(Sums.table[sum(window) % 5].argmax()))
        window.append(ids[-1])
        window = window[-3:] if context and len(window) > context else window
    assert program_globals.generate("a b", 30).split() == [SYMBOLS[id] for id in ids[3:]]
