"""Which names are devices."""

import pytest
import torch

from ensue.errors import EnsueError
from ensue.training.device import choose_device


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "cpu:3"])
def test_the_processor_is_one_device(name: str) -> None:
    assert choose_device(name) == torch.device("cpu")


@pytest.mark.parametrize(
    "name",
    ["hpu", "meta", "xla", "mkldnn", "opengl", "privateuseone", "", " ", "cpu ", "CPU", "cuda:", "cuda:-1", "\0", "ü"],
)
def test_what_ensue_does_not_run_on_is_one_line(name: str) -> None:
    with pytest.raises(EnsueError, match=r"no device .*; there are auto, cpu, cuda, mps, xpu") as caught:
        choose_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["cuda:99", "cpu:9999", "mps", "xpu"])
def test_a_device_that_is_not_there_is_one_line(name: str) -> None:
    if name == "mps" and torch.backends.mps.is_available():
        pytest.skip("it is there")
    with pytest.raises(EnsueError, match="no device"):
        choose_device(name)


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(EnsueError, match='did you mean "cuda"'):
        choose_device("cudo")
