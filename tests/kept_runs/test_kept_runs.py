"""Runs of version 0.1.0, as of 2026-11-24, load and give their stored outputs.

The archives are never written again when code changes, since they represent the runs of users. `make.py` wrote them,
and writes archives of new tasks and layers.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook

import ensue
from kept_runs.answers import answer, are_alike
from kept_runs.make import ARCHIVES, RUNS, unpacked

QUICK = ("char-lstm", "tag-lstm-crf", "classify-bag", "vectors-cbow")
SLOW_COMMANDS = ("export", "import", "predict again", "graph/predict.py")
STORED = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.iterdir())


def as_torch_draws(shape: Sequence[int], kind: Any) -> Tensor:
    """Return random integers of 16 bits, four from each number of torch's generator."""
    assert kind is np.int16
    size = math.prod(shape)
    return torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:size].view(*shape)


def differences(answers: list[dict[str, str]]) -> list[str]:
    return [
        f"{asked['command']}\nnow: {output}\nthen: {asked['answer']}"
        for asked in answers
        if not are_alike(output := answer(asked["command"]), asked["answer"])
    ]


@pytest.mark.parametrize("name", QUICK)
def test_a_stored_run_gives_its_stored_output(folder: Path, name: str) -> None:
    quick = [asked for asked in unpacked(name, folder) if not asked["command"].startswith(SLOW_COMMANDS)]
    assert differences(quick) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STORED)
def test_all_stored_runs_give_their_stored_outputs(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports give the stored outputs, too."""
    if name == "stopped":  # the first half of its training used these random numbers; golden curves have newer ones
        monkeypatch.setattr("ensue.nn.draws.c_functions", lambda x: None)
        monkeypatch.setattr("ensue.nn.draws._draw_integers", as_torch_draws)
        monkeypatch.setattr("ensue.tasks.contract.task.uniform", torch.rand)
    assert differences(unpacked(name, folder)) == []


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in STORED if name not in QUICK)]
)
def test_outputs_do_not_depend_on_the_default_type(folder: Path, name: str, dtype: torch.dtype) -> None:
    """Programs may set another type than float32 (`torch.set_default_dtype`)."""
    asked = [entry for entry in unpacked(name, folder) if not entry["command"].startswith(SLOW_COMMANDS)]
    torch.set_default_dtype(dtype)
    try:
        assert differences(asked if name != "stopped" else asked[:1]) == []
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)


READERS = ("tag-", "cut-", "classify-lstm", "classify-bag", "classify-pairs", "translate-", "transduce-", "summarize-")
"""Beginnings of the names of runs that predict for texts."""


@pytest.mark.parametrize(
    "name",
    [
        name if name in (*QUICK, "cut-lstm") else pytest.param(name, marks=pytest.mark.slow)
        for name in STORED if name.startswith(READERS) and name != "tag-frames"
    ],
)  # fmt: skip
def test_many_texts_are_predicted_in_few_calls_of_the_model(folder: Path, name: str) -> None:
    unpacked(name, folder)
    pipeline: Any = ensue.load(name)
    words = [
        "a",
        "new",
        "boat",
        "leaves",
        "the",
        "bay",
        "again",
        "when",
        "calm",
        "sea",
        "sees",
        "Oslo",
        "in",
        "May",
        "and",
        "all",
        "is",
        "well",
    ]
    texts: list[Any] = [" ".join(words[(i * k + 3) % len(words)] for k in range(1, 5)) for i in range(1, 17)]
    if name == "classify-pairs":
        texts = list(zip(texts, reversed(texts), strict=True))
    pipeline.predict(texts)  # reads new words
    calls: list[int] = []
    with register_module_forward_hook(lambda module, inputs, output: calls.append(1)):
        pipeline.predict(texts[:1])
        calls_of_one = len(calls)
        pipeline.predict(texts)
    assert 0 < len(calls) - calls_of_one <= 4 * calls_of_one


def test_each_stored_run_is_described() -> None:
    assert sorted(RUNS) == STORED


@pytest.mark.parametrize(
    ("output", "is_alike"),
    [
        ('{"nats": 4.248706}', True), ('{"nats": 4.248709}', True), ('{"nats": 4.248806}', False),
        ('{"nats": 4}', False), ('{"bits": 4.248706}', False), ('{"nats": 4.248706}, 3', False),
        ('{"text": "a", "nats": 4.248706}', True), ('{"other": "a", "nats": 4.248706}', False), ("", False),
    ],
)  # fmt: skip
def test_a_different_output_is_detected(output: str, is_alike: bool) -> None:
    assert are_alike(output, '{"nats": 4.248706}') == is_alike


def test_lines_that_are_not_objects_stay_unchanged() -> None:
    assert are_alike("1.6430\t ", "1.6430\t ")
    assert not are_alike("a", "a\n")
    assert not are_alike('{"a":1}', '{"a": 1}')


def test_the_outputs_depend_on_the_weights(folder: Path) -> None:
    """The manifest would refuse other weights, so another run is used."""
    unpacked("elman", folder)
    asked = unpacked("char-lstm", folder)[0]
    other_command = asked["command"].replace("char-lstm", "elman")
    assert len(differences([asked | {"command": other_command}])) == 1
    assert other_command != asked["command"]
