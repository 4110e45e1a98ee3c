"""Which kernel multiplies in bfloat16, and that each gives what the fold gives. AMX is emulated here."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ensue.engine import bf16_kernel, bf16_kernels, products, use_bf16_kernel
from ensue.nn import LSTM, PeepholeLSTM

EMULATION = ("-include", str(Path(__file__).parent / "emulated_amx.h"))


def forget() -> None:
    products.bf16_kernels.cache_clear()
    products.products.cache_clear()
    products._chosen.clear()


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has not looked yet for what works here."""
    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


@pytest.fixture
def emulated(choice: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    if "avx512" not in bf16_kernels():
        pytest.skip("the compiler, its options or this processor have no AVX512_BF16")
    forget()
    choice.setattr(products, "features", lambda: {"avx512_bf16", "amx_bf16"})
    choice.setitem(products.DEFINES, "amx", (*products.DEFINES["amx"], *EMULATION))
    return choice


@pytest.mark.slow
@pytest.mark.usefixtures("emulated")
def test_amx_is_taken_where_it_works() -> None:
    assert bf16_kernels() == ("avx512", "amx")
    assert bf16_kernel() == "amx"
    use_bf16_kernel("avx512")
    assert bf16_kernel() == "avx512"


@pytest.mark.slow
def test_wrong_products_are_not_offered(emulated: pytest.MonkeyPatch) -> None:
    emulated.setitem(products.DEFINES, "amx", (*products.DEFINES["amx"], "-DEMULATED_ERROR=1"))
    assert bf16_kernels() == ("avx512",)
    with pytest.raises(ValueError, match=r"^amx: this machine cannot use this bfloat16 kernel; expected avx512$"):
        use_bf16_kernel("amx")


@pytest.mark.slow
def test_registers_that_the_system_refuses_are_not_offered(emulated: pytest.MonkeyPatch) -> None:
    emulated.setitem(products.DEFINES, "amx", (*products.DEFINES["amx"], "-DEMULATED_REFUSAL=1"))
    assert bf16_kernels() == ("avx512",)


def test_a_processor_without_either(choice: pytest.MonkeyPatch) -> None:
    choice.setattr(products, "features", frozenset)
    assert bf16_kernel() is None
    with pytest.raises(ValueError, match="bfloat16 kernel; expected none"):
        use_bf16_kernel("avx512")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kernel", ["avx512", "amx"])
@pytest.mark.parametrize("kind", [LSTM, PeepholeLSTM])
@pytest.mark.usefixtures("emulated")
def test_a_layer_by_each_kernel_is_its_fold(kind: type[LSTM | PeepholeLSTM], kernel: products.Bf16Kernel) -> None:
    """Ragged rows, values and every gradient, to bfloat16's precision."""
    use_bf16_kernel(kernel)
    torch.manual_seed(0)
    layer = kind(19, 35)
    x, mask = torch.randn(37, 5, 19), torch.arange(5) < torch.randint(1, 6, (37, 1))
    found = []
    for way in (layer.forward, layer.fold):
        own = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=way == layer.forward):
            y, state = way(own, mask=mask)
        (y * mask.unsqueeze(-1)).square().sum().backward()
        gradients = [parameter.grad for parameter in layer.parameters()]
        found.append([leaf.detach() for leaf in (y * mask.unsqueeze(-1), *state, own.grad, *gradients)])
        layer.zero_grad(set_to_none=True)
    for fast, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, rtol=0, atol=2e-2 * float(plain.abs().max()))
    assert not torch.equal(found[0][0], found[1][0])  # it did multiply in bfloat16
