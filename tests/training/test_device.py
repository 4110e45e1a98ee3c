"""What a run computes with, where nobody said it."""

import pytest
import torch

from ensue.training import device

CPU = torch.device("cpu")


@pytest.fixture
def another_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that MKL is not made for."""
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(device, "_is_made_by_intel", lambda: False)


def test_the_blas_multiplies_on_its_own_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_is_made_by_intel", lambda: True)
    assert device.choose_products(CPU) == "highest"


@pytest.mark.usefixtures("another_maker")
def test_onednn_multiplies_on_others() -> None:
    """Where its products are float32's; on processors on which "medium" is bfloat16 they are not."""
    a = torch.linspace(-1, 1, 100 * 100).view(100, 100)
    with device.products_set("medium"):
        is_exact = torch.allclose((a @ a.t()).double(), a.double() @ a.double().t(), rtol=0, atol=1e-4)
    assert device.choose_products(CPU) == ("medium" if is_exact else "highest")


@pytest.mark.usefixtures("another_maker")
def test_products_that_round_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "PRODUCTS_ERROR", 0.0)
    assert device.choose_products(CPU) == "highest"


@pytest.mark.parametrize(("float32", "bfloat16", "chosen"), [(2.0, 1.0, "bfloat16"), (1.4, 1.0, "float32")])
def test_bfloat16_has_to_be_worth_its_rounding(
    float32: float, bfloat16: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {torch.float32: float32, torch.bfloat16: bfloat16}
    monkeypatch.setattr(device, "_product_seconds", seconds.__getitem__)
    assert device.choose_precision("auto", CPU) == chosen


def test_what_is_asked_for_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_product_seconds", lambda dtype: pytest.fail("measured"))
    assert device.choose_precision("bfloat16", CPU) == "bfloat16"
