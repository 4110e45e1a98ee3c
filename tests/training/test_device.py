"""Names of devices, and training in programs with another default dtype."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ensue.errors import EnsueError
from ensue.library import train
from ensue.training.device import choose_device


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "cpu:3"])
def test_all_names_of_the_cpu_are_one_device(name: str) -> None:
    assert choose_device(name) == torch.device("cpu")


@pytest.mark.parametrize(
    "name",
    ["hpu", "meta", "xla", "mkldnn", "opengl", "privateuseone", "", " ", "cpu ", "CPU", "cuda:", "cuda:-1", "\0", "ü"],
)
def test_unsupported_devices_are_errors_of_one_line(name: str) -> None:
    with pytest.raises(EnsueError, match=r"no device .*; expected auto, cpu, cuda, mps, xpu") as caught:
        choose_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["cuda:99", "cpu:9999", "mps", "xpu"])
def test_a_missing_device_is_refused(name: str) -> None:
    if name == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has mps")
    with pytest.raises(EnsueError, match="no device"):
        choose_device(name)


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(EnsueError, match='did you mean "cuda"'):
        choose_device("cudo")


SMALL = {"train.steps": 2, "train.validations": 1, "encoder.d_model": 4}
TRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "char-lstm": ("the sea was calm. nobody spoke. " * 20, SMALL),
    "char-transformer": ("the sea was calm. nobody spoke. " * 20, SMALL | {"encoder.num_heads": 2}),
    "classify-linear": ("a\tcalm sea\nb\told house\n" * 20, {}),
    "tag-linear": ("Anna B-PER\nsees O\n\nLima B-LOC\ngrew O\n\n" * 20, {}),
    "tag-lstm-crf": ("Anna B-PER\nsees O\n\nLima B-LOC\ngrew O\n\n" * 20, SMALL),
    "translate-lstm": ("calm sea\tmare calmo\nold house\tcasa vecchia\n" * 20, {"train.steps": 1}),
    "vectors-skipgram": ("the sea was calm. nobody spoke. " * 20, {"train.epochs": 1}),
}


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(name, marks=[] if name in ("char-lstm", "tag-linear") else pytest.mark.slow) for name in TRAINED],
)
def test_weights_do_not_depend_on_the_default_dtype(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TRAINED[recipe][0])
    weights = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            train(recipe, train=tmp_path / "a.txt", out=tmp_path / "run", settings=TRAINED[recipe][1], overwrite=True)
            assert torch.get_default_dtype() == dtype
        finally:
            torch.set_default_dtype(torch.float32)
        weights.append((tmp_path / "run" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]
