"""Muon: which matrices it updates, by how much, and its state in checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ensue.models.build_text import build_language_model
from ensue.recipe import TrainRecipe
from ensue.training.optimizer import MUON_SCALE, SGD, AdamW, Muon, build_optimizer, layer_matrices, orthogonalize
from layer_tables import layers


@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (4, 9), (9, 4)])
def test_a_step_equals_that_of_torch(rows: int, columns: int) -> None:
    """Torch computes it in bfloat16."""
    gradient = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    weight = nn.Parameter(torch.zeros(rows, columns))
    weight.grad = gradient.clone()
    torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw").step()
    orthogonal = orthogonalize(gradient.unsqueeze(0))[0]
    torch.testing.assert_close(-weight.detach() / (0.2 * max(rows, columns) ** 0.5), orthogonal, atol=0.02, rtol=0.05)


@given(rank=st.integers(1, 12), rows=st.integers(12, 40), seed=st.integers(0, 2**16))
def test_a_step_is_a_descent_at_every_rank(rank: int, rows: int, seed: int) -> None:
    """A step has similar length in all singular directions of the gradient, and no other component."""
    draw = torch.Generator().manual_seed(seed)
    factors = [torch.linalg.qr(torch.randn(size, rank, generator=draw, dtype=torch.float64))[0] for size in (rows, 30)]
    sizes = torch.linspace(1.0, 0.2, rank, dtype=torch.float64)
    gradient = (factors[0] * sizes) @ factors[1].T
    moved = orthogonalize(gradient.unsqueeze(0))[0]
    along = (factors[0].T @ moved @ factors[1]).diagonal()
    assert along.min() > 0.5
    assert along.max() < 1.3
    torch.testing.assert_close((factors[0] * along) @ factors[1].T, moved, atol=1e-9, rtol=0)


def test_a_gradient_of_zero_gives_no_step() -> None:
    assert orthogonalize(torch.zeros(1, 3, 4)).eq(0).all()


def language_model(**encoder: Any) -> nn.Module:
    return build_language_model(**layers(**{"d_embedding": 8, **encoder}), vocabulary_size=40)


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        ({"kind": "lstm", "d_model": 12}, {"weight_input": 4, "weight_hidden": 4}),
        ({"kind": "gru", "d_model": 12}, {"weight_input": 3, "weight_hidden": 3}),
        (
            {"kind": "transformer", "d_model": 12, "num_heads": 2, "context": 24},
            {"project_in.weight": 3, "project_out.weight": 1, "feedforward.0.weight": 1, "feedforward.3.weight": 1},
        ),
    ],
)
def test_matrices_are_listed_with_their_numbers_of_gates(encoder: dict[str, Any], expected: dict[str, int]) -> None:
    model = language_model(**encoder)
    names = {parameter: name for name, parameter in model.named_parameters()}
    blocks_by_name = {names[parameter]: blocks for parameter, blocks in layer_matrices(model).items()}
    assert list(blocks_by_name.values()) == list(expected.values())
    assert all(name.endswith(end) for name, end in zip(blocks_by_name, expected, strict=True))


def test_a_step_orthogonalizes_each_gate_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """AdamW updates the other parameters."""
    model, alone = language_model(kind="lstm", d_model=12), language_model(kind="lstm", d_model=12)
    alone.load_state_dict(model.state_dict())
    recipe = TrainRecipe(steps=1, optimizer="muon", learning_rate=0.5, weight_decay=0.1)
    muon, adam = (
        build_optimizer(model, recipe),
        build_optimizer(alone, recipe.model_copy(update={"optimizer": "adamw"})),
    )
    assert isinstance(muon, Muon)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for each in (model, alone):
        for number, parameter in enumerate(each.parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    gradient = dict(model.named_parameters())["layers.layers.0.weight_hidden"].grad
    assert gradient is not None
    muon.step()
    adam.step()
    for (name, moved), (_, expected) in zip(model.named_parameters(), alone.named_parameters(), strict=True):
        if name.endswith("weight_hidden"):
            gates = torch.cat([orthogonalize(gate.unsqueeze(0))[0] for gate in gradient.chunk(4)])
            expected_weight = before[name] * (1 - 0.5 * 0.1) - 0.5 * MUON_SCALE * 12**0.5 * gates
            torch.testing.assert_close(moved.detach(), expected_weight)
        elif not name.endswith("weight_input"):
            torch.testing.assert_close(moved, expected)


def test_a_checkpoint_has_both_kinds_of_moments(tmp_path: Path) -> None:
    model = language_model(kind="lstm", d_model=12)
    optimizer = build_optimizer(model, TrainRecipe(steps=1, optimizer="muon"))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = optimizer.state_dict()
    other = build_optimizer(model, TrainRecipe(steps=1, optimizer="muon"))
    other.load_state_dict(state)
    kinds = [set(moments) for moments in other.state_dict()["state"].values()]
    assert kinds.count({"step", "momentum_buffer"}) == 2
    assert kinds.count({"step", "exp_avg", "exp_avg_sq"}) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), [(SGD, torch.optim.SGD), (AdamW, torch.optim.AdamW)])
def test_eager_optimizers_equal_torch(ours: type[torch.optim.Optimizer], theirs: type[torch.optim.Optimizer]) -> None:
    results = []
    for kind in (ours, theirs):
        torch.manual_seed(0)
        layer = nn.Linear(5, 3)
        optimizer = kind(layer.parameters(), lr=0.1, weight_decay=0.2, fused=True)  # type: ignore[call-arg]
        for _ in range(3):
            layer(torch.randn(4, 5)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        again = kind(layer.parameters(), lr=0.3, fused=True)  # type: ignore[call-arg]
        again.load_state_dict(optimizer.state_dict())
        layer(torch.randn(4, 5)).square().sum().backward()
        again.step()
        results.append([layer.weight, layer.bias, again.param_groups[0]["lr"]])
    assert all(map(torch.equal, results[0][:2], results[1][:2]))
    assert results[0][2] == results[1][2] == 0.1
