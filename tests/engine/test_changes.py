"""A layer that is changed after its first call is traced again."""

import gc
from collections.abc import Callable
from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from engine.written_steps import D, Pair, Written
from ensue.engine import explain
from ensue.nn import LSTM, watch
from ensue.notices import Notice
from ensue.types import State

pytestmark = pytest.mark.usefixtures("in_torch_operations")  # tracing does not depend on the execution


class Changing(Written):
    """A layer whose step reads attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__(lambda p, x, a, b: (x, a, b))
        self.rate, self.rates, self.shares, self.function = 0.5, [0.5, (0.25,)], {"a": 0.5}, torch.tanh
        self.scale = torch.full((D,), 0.5, dtype=torch.float64)
        self.inner = nn.Linear(D, D, dtype=torch.float64)
        self.tied, self.drop = self.v, nn.Dropout(0.5)

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, Pair]:
        a, b = self.init_state(len(x_t)) if state is None else state
        a = self.function(self.rate * a * self.scale + self.inner(x_t) * self.shares["a"] + self.v - 2 * self.tied)
        return self.drop(a), Pair(a * self.rates[0] + self.rates[1][0], b)  # type: ignore[index]


def replace_submodule(layer: Changing) -> None:
    layer.inner = nn.Linear(D, D, dtype=torch.float64)


def replace_tensor(layer: Changing) -> None:
    layer.scale = -layer.scale


def remove_bias(layer: Changing) -> None:
    layer.inner.bias = None


def replace_step(layer: Changing) -> None:
    layer.step = lambda x_t, state=None: Changing.step(layer, 2 * x_t, state)  # type: ignore[method-assign]


CHANGES: dict[str, Callable[[Changing], object]] = {
    "a number": lambda layer: setattr(layer, "rate", -1.0),
    "a number in a list": lambda layer: layer.rates.__setitem__(0, -1.0),
    "numbers in a tuple in a list": lambda layer: layer.rates.__setitem__(1, (7.0,)),
    "a number in a dict": lambda layer: layer.shares.update(a=-1.0),
    "a number to a tensor": lambda layer: setattr(layer, "rate", torch.linspace(0, 1, D, dtype=torch.float64)),
    "a function": lambda layer: setattr(layer, "function", torch.sigmoid),
    "a tensor": replace_tensor,
    "a submodule": replace_submodule,
    "the mode of a submodule": lambda layer: layer.drop.train(),
    "removal of a bias": remove_bias,
    "one of two names for a weight": lambda layer: setattr(layer, "tied", nn.Parameter(torch.ones(D).double())),
    "two names for a weight": lambda layer: setattr(layer, "u", layer.v),
    "the step": replace_step,
    "pruning": lambda layer: prune.random_unstructured(layer, "v", 0.5),
    "pruning of a submodule": lambda layer: prune.random_unstructured(layer.inner, "weight", 0.5),
    "weight normalization of a submodule": lambda layer: parametrizations.weight_norm(layer.inner),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_layer_equals_its_fold(name: str) -> None:
    torch.manual_seed(0)
    layer, x = Changing().eval(), torch.randn(4, 3, D, dtype=torch.float64)
    assert not explain(layer).startswith("step")
    before = layer(x)[0]
    CHANGES[name](layer)
    for _ in range(2):
        torch.manual_seed(1)
        y, _ = layer(x)
        torch.manual_seed(1)
        torch.testing.assert_close(y, layer.fold(x)[0])
    if name != "two names for a weight":
        assert not torch.equal(y, before)


def test_returning_to_an_earlier_mode_needs_no_new_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = Changing(), torch.randn(4, 3, D, dtype=torch.float64)
    for layer.training in (False, True):
        layer(x)
    monkeypatch.setattr("ensue.engine.execution.trace", None)
    for layer.training in (False, True):
        layer(x)


def test_numbers_that_change_at_each_call_run_step_by_step_with_a_notice() -> None:
    layer, x = Changing().eval(), torch.randn(2, 2, D, dtype=torch.float64)
    for number in range(16):
        layer.rate = number / 16
        assert not explain(layer).startswith("step")
    layer.rate = 2.0
    with pytest.warns(Notice, match="Changing runs step by step.*an attribute of the layer changes"):
        y, _ = layer(x)
    assert torch.equal(y, layer.fold(x)[0])
    assert explain(layer).endswith("attributes that change from call to call")


def test_hooks_of_submodules_are_called_at_each_position() -> None:
    layer, x = Changing().eval(), torch.randn(4, 3, D, dtype=torch.float64)
    before, seen = layer(x)[0], []
    handle = layer.inner.register_forward_hook(lambda _, args, y: seen.append(len(y)) or 2 * y)
    y, _ = layer(x)
    assert seen == [4, 4, 4]
    assert explain(layer).endswith("hooks on submodules, which expect a call for each position")
    handle.remove()
    assert not torch.equal(y, before)
    assert torch.equal(layer(x)[0], before)


def test_a_hook_on_a_tap_may_change_its_value() -> None:
    layer, x = LSTM(3, 5), torch.randn(2, 4, 3)
    before, _ = layer(x)
    handle = layer.gates.forget.register_forward_hook(lambda _, args, output: output * 0)
    with torch.no_grad():
        assert not torch.allclose(layer(x)[0], before)
    handle.remove()
    pre = layer.cell.register_forward_pre_hook(lambda _, args: (args[0] * 0,))
    assert not layer(x)[0].any()
    pre.remove()
    torch.testing.assert_close(layer(x)[0], before)
    with watch(layer, "cell") as seen:
        layer(x)
    assert len(seen["cell"]) == 4


@pytest.mark.slow
def test_the_cache_of_traces_holds_no_reference_to_a_layer() -> None:
    layer = Changing()
    layer.function, layer.others = layer.inner.forward, (layer.inner, [layer])
    explain(layer)
    reference = ref(layer)
    del layer
    gc.collect()
    assert reference() is None


def test_tracing_does_not_change_the_random_generator() -> None:
    layer = Changing()
    before = torch.random.get_rng_state()
    assert explain(layer.train()).startswith("step by step")
    assert torch.equal(torch.random.get_rng_state(), before)
