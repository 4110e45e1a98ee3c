"""The choice of kernels for bfloat16, and layers with each kernel equal their fold. AMX is emulated."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ensue.engine import bf16_kernel, bf16_kernels, products, use_bf16_kernel
from ensue.nn import LSTM, PeepholeLSTM

EMULATION = ("-include", str(Path(__file__).parent / "emulated_amx.h"))


def clear_caches() -> None:
    products.bf16_kernels.cache_clear()
    products.products.cache_clear()
    products._chosen.clear()


@pytest.fixture
def choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Patch a process that has not yet detected the kernels of the processor."""
    clear_caches()
    yield monkeypatch
    monkeypatch.undo()
    clear_caches()


@pytest.fixture
def emulated(choice: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    if "avx512" not in bf16_kernels():
        pytest.skip("the compiler, its options or this processor have no AVX512_BF16")
    clear_caches()
    choice.setattr(products, "features", lambda: {"avx512_bf16", "amx_bf16"})
    choice.setitem(products.DEFINES, "amx", (*products.DEFINES["amx"], *EMULATION))
    return choice


@pytest.mark.slow
@pytest.mark.usefixtures("emulated")
def test_amx_is_chosen_if_it_works() -> None:
    assert bf16_kernels() == ("avx512", "amx")
    assert bf16_kernel() == "amx"
    use_bf16_kernel("avx512")
    assert bf16_kernel() == "avx512"


@pytest.mark.slow
def test_a_kernel_with_wrong_products_is_not_offered(emulated: pytest.MonkeyPatch) -> None:
    emulated.setitem(products.DEFINES, "amx", (*products.DEFINES["amx"], "-DEMULATED_ERROR=1"))
    assert bf16_kernels() == ("avx512",)
    with pytest.raises(ValueError, match=r"^amx: this machine cannot use this bfloat16 kernel; expected avx512$"):
        use_bf16_kernel("amx")


@pytest.mark.slow
def test_a_kernel_whose_registers_the_system_refuses_is_not_offered(emulated: pytest.MonkeyPatch) -> None:
    emulated.setitem(products.DEFINES, "amx", (*products.DEFINES["amx"], "-DEMULATED_REFUSAL=1"))
    assert bf16_kernels() == ("avx512",)


def test_a_processor_without_kernels_has_none(choice: pytest.MonkeyPatch) -> None:
    choice.setattr(products, "features", frozenset)
    assert bf16_kernel() is None
    with pytest.raises(ValueError, match="bfloat16 kernel; expected none"):
        use_bf16_kernel("avx512")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kernel", ["avx512", "amx"])
@pytest.mark.parametrize("kind", [LSTM, PeepholeLSTM])
@pytest.mark.usefixtures("emulated")
def test_layers_with_each_kernel_equal_their_fold(kind: type[LSTM | PeepholeLSTM], kernel: products.Bf16Kernel) -> None:
    """Outputs, states and gradients of ragged rows have the precision of bfloat16."""
    use_bf16_kernel(kernel)
    torch.manual_seed(0)
    layer = kind(19, 35)
    x, mask = torch.randn(37, 5, 19), torch.arange(5) < torch.randint(1, 6, (37, 1))
    results = []
    for run in (layer.forward, layer.fold):
        inputs = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=run == layer.forward):
            y, state = run(inputs, mask=mask)
        (y * mask.unsqueeze(-1)).square().sum().backward()
        gradients = [parameter.grad for parameter in layer.parameters()]
        results.append([leaf.detach() for leaf in (y * mask.unsqueeze(-1), *state, inputs.grad, *gradients)])
        layer.zero_grad(set_to_none=True)
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=0, atol=2e-2 * float(plain.abs().max()))
    assert not torch.equal(results[0][0], results[1][0])  # products are in bfloat16
