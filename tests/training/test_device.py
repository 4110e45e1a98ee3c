"""What a run computes with, where nobody said it."""

import pytest
import torch

from ensue.training import device

CPU = torch.device("cpu")


@pytest.fixture
def another_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that MKL is not made for."""
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(device, "maker", lambda: "AuthenticAMD")


@pytest.mark.parametrize("maker", ["GenuineIntel", ""])
def test_the_blas_multiplies_on_its_own_processors(maker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where nothing is known of the processor."""
    monkeypatch.setattr(device, "maker", lambda: maker)
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


@pytest.mark.parametrize(
    ("words", "chosen"),
    [({"avx512_bf16"}, "bfloat16"), ({"amx_bf16"}, "bfloat16"), ({"avx512f"}, "float32"), (set(), "float32")],
)
def test_bfloat16_is_for_processors_that_have_it(words: set[str], chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "features", lambda: words)
    assert device.choose_precision("auto", CPU) == chosen
    assert device.choose_precision("bfloat16", CPU) == "bfloat16"
    assert device.choose_precision("float32", CPU) == "float32"
