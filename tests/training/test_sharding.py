"""Processes with sharded parameters train the same model as one process."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save

import ensue
from ensue.errors import RecipeError
from ensue.nn import LSTM, AdditiveAttention, AttentionalLayer, Bidirectional, Stack, Transformer
from ensue.recipe import Recipe, validate_recipe
from ensue.runs.weights import serialize
from ensue.training.optimizer import called_layers
from training.contextual import features_of
from training.cut_down import cut_down
from training.tiny import reproducible_state, run_tiny, tiny_recipe, words
from training.tiny_pairs import pairs
from training.tiny_texts import tagging
from training.together import losses_of

STEPS = 16


def sharded(recipe: Recipe, **train: Any) -> tuple[Recipe, Recipe]:
    """Return the recipe without and with sharding. A small learning rate keeps rounding errors small."""
    document = recipe.model_dump(exclude_none=True, by_alias=True)
    document["train"] |= {"steps": STEPS, "validations": 3, "learning_rate": 0.001} | train
    alone = validate_recipe(document, where="alone")
    document["train"]["sharded"] = True
    return alone, validate_recipe(document, where="sharded")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "processes"),
    [
        ("char-lstm-large", 3), ("char-transformer", 2), ("elmo-small", 3), ("tag-lstm-crf", 3),
        ("classify-pairs", 3), ("translate-transformer", 2), ("translate-lstm", 2),
    ],
)  # fmt: skip
def test_sharding_changes_no_loss(name: str, processes: int, names: Path, topics: Path, tmp_path: Path) -> None:
    data = {"tag": names, "classify": topics}.get(name.partition("-")[0], tmp_path / "data.tsv")
    (tmp_path / "data.tsv").write_text(pairs(60) if name.startswith("translate") else words(600))
    alone, sharded_recipe = sharded(cut_down(name, data))
    expected = losses_of(alone, tmp_path / "alone")
    losses = losses_of(sharded_recipe, tmp_path / "sharded", processes=processes)
    assert losses == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.slow
def test_scalar_parameters_are_trained_with_sharding(origin: Path, names: Path, tmp_path: Path) -> None:
    """The scalar is the factor of a mix of layers."""
    alone, sharded_recipe = sharded(tagging(names, features=features_of(origin), learning_rate=0.1))
    expected = losses_of(alone, tmp_path / "alone")
    assert losses_of(sharded_recipe, tmp_path / "sharded", processes=2) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    ours, theirs = (load_file(tmp_path / run / "model.safetensors") for run in ("alone", "sharded"))
    (name,) = (name for name in ours if name.endswith("gamma"))
    assert theirs[name].item() == pytest.approx(ours[name].item(), rel=1e-5) != 1


@pytest.mark.slow
def test_sharded_runs_are_resumed_with_another_number_of_processes(text: Path, tmp_path: Path) -> None:
    """Some micro-batches have fewer rows than there are processes, and weights are averaged."""
    alone, sharded_recipe = sharded(tiny_recipe(text, accumulate=2, average=0.9))
    expected = losses_of(alone, tmp_path / "alone")
    losses = []
    for step, processes in ((4, 2), (8, 3), (12, 1), (None, 4)):
        losses += losses_of(sharded_recipe, tmp_path / "run", processes=processes, resume=True, stop_after=step)
    assert losses == pytest.approx(expected, rel=1e-6, abs=1e-6)
    last = Path("checkpoints") / f"step-{STEPS}"
    for name in ("model", "optimizer", "average", "state"):
        ours, theirs = (load_file(tmp_path / run / last / f"{name}.safetensors") for run in ("alone", "run"))
        torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-4)
    assert ensue.load(tmp_path / "run")


@pytest.mark.slow
def test_a_resumed_sharded_run_is_bit_identical(text: Path, tmp_path: Path) -> None:
    """The number of processes is the same after resuming."""
    _, sharded_recipe = sharded(tiny_recipe(text, model="transformer"))
    losses_of(sharded_recipe, tmp_path / "full", processes=2)
    losses_of(sharded_recipe, tmp_path / "parts", processes=2, stop_after=7)
    losses_of(sharded_recipe, tmp_path / "parts", processes=2, resume=True)
    assert reproducible_state(tmp_path / "parts") == reproducible_state(tmp_path / "full")


@pytest.mark.parametrize(
    ("tuning", "train", "expected"),
    [
        ({}, {"deterministic": True}, "has deterministic and sharded"),
        ({}, {"optimizer": "muon"}, 'has sharded and the optimizer "muon", which needs full matrices'),
        ({"unfreeze": 0.5}, {}, "train.sharded does not support tuning.unfreeze"),
    ],
)
def test_settings_that_contradict_sharding_are_errors_of_one_line(
    tuning: dict[str, Any], train: dict[str, Any], expected: str, text: Path, tmp_path: Path
) -> None:
    document = tiny_recipe(text).model_dump(exclude_none=True, by_alias=True)
    document["train"] |= {"sharded": True} | train
    with pytest.raises(RecipeError, match=expected) as caught:
        run_tiny(validate_recipe(document | {"tuning": tuning}, where="tiny"), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_called_layers_are_the_smallest_layers_that_use_their_parameters_in_forward() -> None:
    stack = Stack([LSTM(4, 4), AttentionalLayer(AdditiveAttention(4, 3))])
    assert list(called_layers(stack)) == [stack.layers[0]]
    both = Bidirectional(Stack([LSTM(4, 4)]), LSTM(4, 4))
    assert [type(layer) for layer in called_layers(both)] == [LSTM]
    decoder = Transformer(4, num_heads=2, num_layers=1, d_memory=3, max_positions=8)
    block = decoder.layers[2]
    assert list(called_layers(decoder)) == [decoder.layers[0], block.attention, block.feedforward]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_serialize_writes_the_bytes_of_safetensors(dtype: torch.dtype) -> None:
    tensors = {"b": torch.arange(6).view(2, 3).to(dtype), "a": torch.ones((), dtype=dtype), "ü": torch.zeros(0, 3)}
    ours = b"".join(serialize({**tensors, "turned": tensors["b"].T}, {"format": "pt"}))
    assert ours == save({**tensors, "turned": tensors["b"].T.contiguous()}, {"format": "pt"})
    torch.testing.assert_close(load(ours)["turned"], tensors["b"].T)
