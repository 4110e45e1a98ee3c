"""The levels of a model are frozen, unfrozen over time, and trained with their own learning rates."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ensue.errors import RecipeError
from ensue.models.build_text import build_encoder_decoder
from ensue.models.modules import count_parameters
from ensue.models.specification import Attention, Directions, LSTMEncoder, PairTokens, TextHead, TransformerEncoder
from ensue.recipe import TrainRecipe
from ensue.recipe.tables import TuningRecipe
from ensue.training.optimizer import Tuning, build_optimizer, split_levels
from ensue.training.run import begin_job
from training.tiny import run_tiny, tiny_recipe
from training.tiny_masked import masked_recipe, paragraphs

DEEP: dict[str, dict[str, Any]] = {
    "lstm": {"kind": "lstm", "d_embedding": 6, "d_model": 8, "num_layers": 3, "dropout": 0.1},
    "transformer": {
        "kind": "transformer", "d_embedding": 6, "d_model": 8, "num_heads": 2, "context": 12, "num_layers": 3,
        "positions": "learned", "tied": True,
    },
}  # fmt: skip


def model_of(recipe: Any) -> nn.Module:
    torch.manual_seed(recipe.train.seed)
    model: nn.Module = begin_job(recipe, None).build_model()
    return model


@pytest.fixture
def model(text: Path) -> nn.Module:
    return model_of(tiny_recipe(text, model=DEEP["transformer"]))


def test_every_parameter_has_one_level(text: Path) -> None:
    path = text.with_name("documents.txt")
    path.write_text(paragraphs(40))
    both = Directions()
    lstm, block = (
        LSTMEncoder(kind="lstm", d_model=8, num_layers=2), TransformerEncoder(kind="transformer", d_model=8)
    )  # fmt: skip
    joined = build_encoder_decoder(
        PairTokens(d_embedding=8), lstm, block, Attention(), TextHead(), directions=both, source_size=9, target_size=9,
        is_joint=True,
    )  # fmt: skip
    for number, model in (
        (3, model_of(tiny_recipe(text))),
        (5, model_of(tiny_recipe(text, model=DEEP["lstm"]))),
        (4, model_of(masked_recipe(path))),
        (5, joined),
    ):
        levels = split_levels(model)
        assert len(levels) == number
        assert sum(p.numel() for level in levels for p in level.values()) == count_parameters(model)
        assert levels[0]
        assert levels[-1]


def test_learning_rates_fall_by_level(model: nn.Module) -> None:
    tuning = Tuning(model, TuningRecipe(layer_decay=0.5))
    optimizer = build_optimizer(model, TrainRecipe(steps=1, weight_decay=0.1), tuning)
    tuning.begin_step(optimizer, 0.8, 0.0)
    rate = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for level, expected in zip(split_levels(model), (0.05, 0.1, 0.2, 0.4, 0.8), strict=True):
        assert {rate[p] for p in level.values()} == {expected}
    assert {p.dim() > 1 for g in optimizer.param_groups if g["weight_decay"] for p in g["params"]} == {True}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("table", "share", "lowest"),
    [
        ({"freeze": 2}, 0.0, 2), ({"freeze": -1}, 0.9, 4), ({"unfreeze": 0.25}, 0.0, 4), ({"unfreeze": 0.25}, 0.25, 3),
        ({"unfreeze": 0.25}, 0.9, 1), ({"unfreeze": 0.1, "freeze": 3}, 0.9, 3), ({"unfreeze": 0.1}, 0.95, 0),
    ],
)  # fmt: skip
def test_levels_are_unfrozen_at_their_time(model: nn.Module, table: dict[str, Any], share: float, lowest: int) -> None:
    tuning = Tuning(model, TuningRecipe(**table))
    tuning.begin_step(build_optimizer(model, TrainRecipe(steps=1), tuning), 0.1, share)
    for number, level in enumerate(levels_of_all(tuning)):
        assert {p.requires_grad for p in level} == {number >= lowest}


def levels_of_all(tuning: Tuning) -> list[list[nn.Parameter]]:
    return [list(level.values()) for level in tuning.levels]


def test_new_parameters_are_trained_first(model: nn.Module) -> None:
    table = model.get_parameter("features.weight")
    old = torch.arange(len(table)) < 5
    inherited: dict[str, Any] = {name: None for name, _ in model.named_parameters() if not name.startswith("head")}
    tuning = Tuning(model, TuningRecipe(new_first=0.5, layer_decay=0.9), inherited | {"features.weight": old})
    optimizer = build_optimizer(model, TrainRecipe(steps=1, weight_decay=0.5), tuning)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    def step(share: float) -> set[str]:
        tuning.begin_step(optimizer, 0.1, share)
        model(torch.arange(10)[None])[0].square().sum().backward()
        tuning.freeze_inherited_rows(share)
        optimizer.step()
        optimizer.zero_grad()
        return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}

    assert step(0.0) == {"head.bias", "head.projection.weight", "features.weight"}
    assert torch.equal(table[old], before["features.weight"][old])
    assert not torch.equal(table[5:10], before["features.weight"][5:10])
    assert step(0.5) == before.keys()
    assert not torch.equal(table[old], before["features.weight"][old])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"freeze": 6}, "tuning.freeze is 6; expected at most 4: the model has its input and 3 layers below the head"),
        ({"new_first": 0.1}, "tuning.new_first trains new parameters first; no parameter comes from another run"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_a_run_starts(
    table: dict[str, Any], message: str, text: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe(text, model=DEEP["lstm"]).model_copy(update={"tuning": TuningRecipe(**table)})
    with pytest.raises(RecipeError, match=message):
        run_tiny(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
