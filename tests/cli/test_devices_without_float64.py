"""Models work on devices without float64, such as Apple's GPUs: in float32, or with numbers moved to the CPU.

The CPU simulates such a device: a float64 tensor may only come from `ensue.types.exact`, or from tensors of it.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from command_fixtures import Ensue
from ensue import types
from ensue.recipe import read_recipe
from ensue.training.run import train_run
from page_data import tiny, write_data
from training.tiny import some_slow


class DispatchRefusal:
    """The method in a class of its own: in the mode, torch would wrap it, and the wrapper imports torch's compiler."""

    def __torch_dispatch__(self, operation: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = operation(*args, **kwargs)
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        is_made = any(map(is_wide, tree_leaves(result))) and not any(map(is_wide, tensors))
        assert not is_made or called_by_exact(), f"{operation} makes float64 on the device"
        return result


class WithoutFloat64(DispatchRefusal, TorchDispatchMode):
    """A mode that refuses float64 tensors created on the device."""


def is_wide(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def called_by_exact() -> bool:
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code is types.to_float64.__code__:
            return True
    return False


@pytest.fixture
def without_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(types, "WITHOUT_FLOAT64", {"cpu"})
    to = torch.Tensor.to

    def moved(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        is_move = any(isinstance(part, torch.device | str) for part in (*args, *kwargs.values()))
        assert not (is_move and is_wide(tensor)) or kwargs.get("dtype"), "float64 is moved to the device"
        return to(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", moved)
    with WithoutFloat64():
        yield


LANGUAGE = [
    "generate RUN --max-tokens 5 --top-p 0.9 --seed 0", "score RUN chapter.txt", "evaluate RUN chapter.txt",
    "evaluate RUN --minimal-pairs pairs.jsonl", "inspect RUN the --out page.html",
]  # fmt: skip
NAMES = ["predict RUN names.txt --json", "evaluate RUN names.txt", "inspect RUN Anna --out page.html"]
MOODS = ["predict RUN new.tsv --json", "inspect RUN calm --out page.html"]
CHARACTERS = {"features.characters": "lstm"}
USES: dict[str, tuple[str, list[str]]] = {
    "char-lstm": ("book.txt", LANGUAGE), "char-transformer": ("book.txt", LANGUAGE),
    "tag-lstm-crf": ("names.txt", NAMES), "tag-transformer-crf": ("names.txt", NAMES),
    "classify-lstm": ("reviews.tsv", MOODS), "classify-bag": ("topics.jsonl", ["evaluate RUN topics.jsonl"]),
}  # fmt: skip
"""The data of recipes, and the commands for their models."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", some_slow(USES, "classify-lstm"))
@pytest.mark.usefixtures("without_float64")
def test_a_run_and_its_use_need_no_float64(recipe: str, tmp_path: Path, ensue: Ensue, in_tmp_path: None) -> None:
    write_data(tmp_path)
    data, commands = USES[recipe]
    settings = {"data.train": data, **(CHARACTERS if commands == NAMES else {})}
    train_run(tiny(read_recipe(recipe, settings)), "run", device="cpu", threads=1)
    for command in commands:
        ensue(*command.replace("RUN", "run").split()).succeeded()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.double(),
        lambda x: x.sum(dtype=torch.float64),
        lambda x: torch.zeros(2, dtype=torch.float64, device=x.device),
        lambda x: torch.ones(2, dtype=torch.float64).to(x.device),
    ],
)
def test_operations_that_need_float64_are_detected(wrong: Callable[[torch.Tensor], Any], without_float64: None) -> None:
    with pytest.raises(AssertionError, match="float64"):
        wrong(torch.ones(2))


def test_sums_use_the_widest_float_of_the_device() -> None:
    assert types.widest_float(torch.device("cpu")) == types.to_float64(torch.ones(1)).dtype == torch.float64
    assert types.widest_float(torch.device("mps")) == torch.float32
