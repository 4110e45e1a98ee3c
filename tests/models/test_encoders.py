"""Layers built from the tables of a recipe: every encoder, direction and merge; sizes, dropout, and all keys."""

import re
from functools import cache
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from ensue import nn
from ensue.models.build_text import build_language_model
from ensue.models.encoders import build_encoder
from ensue.models.specification import ENCODER_KINDS, EncoderSpecification
from ensue.training.optimizer import AdamW
from layer_tables import layers
from models import ENCODERS, REPRESENTATIVE, one_way, reader, some_slow
from source_imports import SOURCE

same = torch.testing.assert_close
D_IN = 5
MERGES = ["concatenate", "sum", "product", "mean"]
READERS = [name for name in ENCODERS if name != "none"]
CELLS = {
    "elman": nn.Elman, "lstm": nn.LSTM, "peephole": nn.PeepholeLSTM, "coupled": nn.CoupledLSTM,
    "layer-norm": nn.LayerNormLSTM,
    "projected": nn.ProjectedLSTM, "gru": nn.GRU, "clockwork": nn.Clockwork, "depth-gated": nn.DepthGatedLSTM,
    "grid": nn.GridLSTM,
    "mingru": nn.MinGRU, "minlstm": nn.MinLSTM, "lru": nn.LRU, "mogrifier": nn.MogrifierLSTM, "lem": nn.LEM,
    "slstm": nn.SLSTM,
    "mlstm": nn.MLSTM, "hgrn2": nn.HGRN2, "gated-deltanet": nn.GatedDeltaNet, "rwkv7": nn.RWKV7, "qrnn": nn.QRNN,
}  # fmt: skip
RECURRENT, STACKS = list(CELLS), ["depth-gated", "grid"]
WITH_A_CELL = ["lstm", "peephole", "coupled", "layer-norm", "projected"]
HELD = ["elman", "gru", *WITH_A_CELL]
"""The encoders with zoneout."""
DROPPED = [*HELD, "clockwork"]
"""The encoders with dropout of their recurrent weights."""


def build(specification: dict[str, Any], d_in: int = D_IN) -> nn.SequenceLayer:
    torch.manual_seed(0)
    return build_encoder(**specification, d_in=d_in)


def inputs(d_in: int = D_IN, seed: int = 1) -> Tensor:
    return torch.randn(3, 7, d_in, generator=torch.Generator().manual_seed(seed))


def modules_of(layers: torch.nn.Module, kind: type[torch.nn.Module]) -> list[Any]:
    return [module for module in layers.modules() if isinstance(module, kind)]


def test_every_encoder_of_recipes_is_tested() -> None:
    assert {specification["kind"] for specification in ENCODERS.values()} == ENCODER_KINDS - {"origin"}


@cache
def words_of_the_core() -> dict[str, set[str]]:
    """Return the names in each file of the core."""
    paths = [path for path in (SOURCE / "ensue").rglob("*.py") if "extensions" not in path.parts]
    return {
        path.relative_to(SOURCE / "ensue").as_posix(): set(re.findall(r"\w+", path.read_text("utf-8")))
        for path in paths
    }


@pytest.mark.parametrize("cell", [cell for cell in CELLS.values() if cell not in (nn.LSTM, nn.GRU, nn.Elman)])
def test_a_cell_is_named_in_its_file_the_table_of_encoders_and_the_package(cell: type[nn.SequenceLayer]) -> None:
    named = {path for path, words in words_of_the_core().items() if cell.__name__ in words}
    file = cell.__module__.removeprefix("ensue.").replace(".", "/") + ".py"
    assert named == {file, "models/specification.py", "nn/__init__.py"}


def case_of(name: str, num_layers: int, merge: str) -> Any:
    """Return a case; by default one layer is concatenated, and several layers of few encoders have another merge."""
    usual = "concatenate" if num_layers == 1 else MERGES[1 + READERS.index(name) % 3]
    is_quick = merge == usual and (num_layers == 1 or name in REPRESENTATIVE)
    return pytest.param(name, num_layers, merge, marks=[] if is_quick else [pytest.mark.slow])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "num_layers", "merge"),
    [case_of(name, num_layers, merge) for name in READERS for num_layers in (1, 3) for merge in MERGES],
)
def test_outputs_of_both_directions_depend_on_all_inputs(name: str, num_layers: int, merge: str) -> None:
    """Outputs of windows depend on their neighbors. Concatenated outputs are twice as large."""
    specification = reader(name, num_layers=num_layers, merge=merge)
    layers, x = build(specification), inputs().requires_grad_()
    y, _ = layers(x)
    outputs_halves = merge == "concatenate" and (name in RECURRENT or (name.startswith("window") and num_layers == 1))
    assert layers.d_out == y.shape[2] == specification["encoder"].d_model * (2 if outputs_halves else 1)
    assert (layers.d_in, layers.is_causal) == (D_IN, False)
    (dx,) = torch.autograd.grad((y[:, 3] * inputs(layers.d_out, 2)[:, 3]).sum(), x)
    reach = specification["encoder"].size - 1 if name.startswith("window") else 7
    seen = [t for t in range(7) if dx[:, t].abs().sum() > 0]
    assert seen == [t for t in range(7) if abs(t - 3) <= reach]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("num_layers", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READERS)
def test_outputs_of_one_direction_depend_on_earlier_inputs(name: str, num_layers: int) -> None:
    specification = one_way(name, num_layers=num_layers)
    layers, x = build(specification), inputs().requires_grad_()
    y, _ = layers(x)
    assert layers.d_out == y.shape[2] == specification["encoder"].d_model
    assert layers.is_causal
    (dx,) = torch.autograd.grad((y[:, 3] * inputs(layers.d_out, 2)[:, 3]).sum(), x)
    reach = specification["encoder"].size - 1 if name.startswith("window") else 7
    assert [t for t in range(7) if dx[:, t].abs().sum() > 0] == [t for t in range(7) if 0 <= 3 - t <= reach]


def test_no_encoder_returns_the_features() -> None:
    layers, x = build(reader("none")), inputs()
    assert (layers.d_in, layers.d_out, layers.is_causal) == (D_IN, D_IN, True)
    same(layers(x)[0], x, rtol=0, atol=0)
    assert not list(layers.parameters())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("merge", "formula"), [
    ("concatenate", lambda a, b: torch.cat((a, b), -1)), ("sum", torch.add), ("product", torch.mul),
    ("mean", lambda a, b: (a + b) / 2),
])  # fmt: skip
@pytest.mark.parametrize("name", ["window", "elman", "gru"])
def test_outputs_are_merged_as_the_recipe_says(name: str, merge: str, formula: Any) -> None:
    layers, x = build(reader(name, merge=merge)), inputs()
    (both,) = modules_of(layers, nn.Bidirectional)
    rightward, leftward = both.rightward(x)[0], both.leftward(x.flip(1))[0].flip(1)
    same(layers(x)[0], formula(rightward, leftward))


def test_a_window_of_several_layers_is_a_feed_forward_network() -> None:
    """The layers above the window read one position."""
    layers, x = build(one_way("windows")), inputs()
    assert isinstance(layers, nn.Stack)
    window, *above = layers
    assert isinstance(window, nn.Window)
    h = window(x)[0]
    assert len(above) == 2
    for layer in above:
        assert isinstance(layer, nn.Pointwise)
        (linear,) = modules_of(layer, torch.nn.Linear)
        h = torch.tanh(h @ linear.weight.T + linear.bias)
    same(layers(x)[0], h)


def test_keys_of_encoders_reach_their_layers() -> None:
    assert [layer.reset for layer in modules_of(build(reader("gru", reset="after")), nn.GRU)] == ["after"] * 2
    assert [layer.reset for layer in modules_of(build(reader("gru", reset="before")), nn.GRU)] == ["before"] * 2
    assert [layer.activation for layer in modules_of(build(reader("elman", activation="relu")), nn.Elman)] == [
        "relu"
    ] * 2
    assert [layer.size for layer in modules_of(build(reader("windows")), nn.Window)] == [3, 3]
    (transformer,) = modules_of(
        build(reader("rotary", d_feedforward=9, norm="post", activation="relu")), nn.Transformer
    )
    for part in ("num_heads=2", "num_layers=2", "d_feedforward=9", "'rotary'", "'post'", "'relu'", "is_causal=False"):
        assert part in repr(transformer)
    (projected,) = modules_of(build(one_way("projected")), nn.ProjectedLSTM)
    assert (projected.d_cell, projected.d_out) == (8, 6)
    assert [layer.d_cell for layer in modules_of(build(reader("projected", d_cell=None)), nn.ProjectedLSTM)] == [12, 12]
    (clockwork,) = modules_of(build(one_way("clockwork", periods=[1, 3])), nn.Clockwork)
    assert list(clockwork.periods) == [1, 3]
    assert [layer.size for layer in modules_of(build(reader("qrnn")), nn.QRNN)] == [3, 3]
    assert [layer.num_layers for layer in modules_of(build(reader("grid", num_layers=3)), nn.GridLSTM)] == [3, 3]
    assert "max_positions=50" in repr(modules_of(build(reader("learned", context=50)), nn.Transformer)[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("name", RECURRENT)
def test_each_name_builds_its_cell(name: str, bidirectional: bool) -> None:
    """There are `num_layers` cells in each direction, or one stack of them."""
    layers = build(reader(name, num_layers=3, bidirectional=bidirectional))
    cells = [layer for layer in modules_of(layers, nn.SequenceLayer) if type(layer) is CELLS[name]]
    assert len(cells) == (1 if name in STACKS else 3) * (2 if bidirectional else 1)
    assert {cell.d_out for cell in cells} == {6}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", some_slow([[name] for name in READERS]))
def test_language_models_learn_and_are_restored(name: str) -> None:
    """Two steps lower the loss. The specification in JSON and the weights give the same model."""
    specification = layers(d_embedding=5, **ENCODERS[name])
    torch.manual_seed(0)
    model = build_language_model(**specification, vocabulary_size=7)
    ids = torch.randint(7, (3, 9), generator=torch.Generator().manual_seed(2))
    optimizer = AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        loss, _ = model.loss(ids[:, :-1], ids[:, 1:])
        losses.append(loss.total.item())
        optimizer.zero_grad()
        loss.total.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
    assert losses[2] < losses[1] < losses[0]
    encoder = specification["encoder"]
    again = TypeAdapter[Any](EncoderSpecification).validate_json(encoder.model_dump_json())
    assert again == encoder
    read = build_language_model(specification["tokens"], again, vocabulary_size=7)
    read.load_state_dict(model.state_dict())
    same(read.eval()(ids)[0], model.eval()(ids)[0], rtol=0, atol=0)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_zero_writes_make_a_new_transformer_its_window(bidirectional: bool) -> None:
    """The output is the normalized `x + tanh(W [x_{t-1}; x_t] + b)`, with a second term for the other direction."""
    layers = build(reader("rotary", bidirectional=bidirectional, num_layers=2, window=2, zero_writes=True), 4).double()
    assert "zero_writes=True, window=2" in repr(modules_of(layers, nn.Transformer)[0])
    x = inputs(4).double()
    windows = modules_of(layers, nn.Window)
    assert len(windows) == 1 + bidirectional
    expected = x
    for window, earlier in zip(windows, (1, -1), strict=False):
        torch.nn.init.normal_(window.linear.bias)
        beside = torch.zeros_like(x)
        for t in range(7):
            if 0 <= t - earlier < 7:
                beside[:, t] = x[:, t - earlier]
        expected = expected + torch.tanh(torch.cat((beside, x), 2) @ window.linear.weight.T + window.linear.bias)
    same(layers(x)[0], torch.nn.functional.layer_norm(expected, (4,)))
    assert not any(m.project_out.weight.any() for m in modules_of(layers, nn.MultiHeadAttention))


@pytest.mark.parametrize("d_in", [4, 6])
def test_a_transformer_reads_features_of_any_size(d_in: int) -> None:
    layers = build(reader("rotary"), d_in)
    assert isinstance(layers, nn.Transformer) == (d_in == 4)
    assert layers(inputs(d_in))[0].shape == (3, 7, 4)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", ["plain", "variational"])
@pytest.mark.parametrize("name", RECURRENT)
def test_dropout_is_before_between_and_after_recurrent_layers(name: str, kind: str) -> None:
    recurrent = {"dropout_recurrent": 0.2} if name in DROPPED else {}
    layers = build(reader(name, num_layers=2, dropout=0.3, dropout_input=0.4, dropout_kind=kind, **recurrent))
    assert isinstance(layers, nn.Stack)
    shares = []
    for layer in layers:
        if isinstance(layer, nn.Bidirectional):
            shares.append("layer")
            assert [part.p for part in modules_of(layer, nn.WeightDrop)] == [0.2, 0.2] * len(recurrent)
        elif kind == "variational":
            assert isinstance(layer, nn.VariationalDropout)
            shares.append(str(layer.p))
        else:
            shares += [str(part.p) for part in modules_of(layer, nn.ElementDropout)]
    assert shares == ["0.4", "layer", "0.3"] + ([] if name in STACKS else ["layer", "0.3"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "key"), some_slow([
    *((name, "dropout") for name in READERS), *((name, "dropout_input") for name in RECURRENT),
    *((name, "dropout_recurrent") for name in DROPPED),
    *((name, "zoneout_hidden") for name in HELD), *((name, "zoneout_cell") for name in WITH_A_CELL),
]))  # fmt: skip
def test_each_kind_of_dropout_is_random_only_in_training(name: str, key: str) -> None:
    """In evaluation mode, dropout is the identity, but zoneout is its mean."""
    x, layers = inputs(), build(reader(name, **{key: 0.5}))
    assert not layers(x)[0].equal(layers(x)[0])
    layers.eval()
    y, plain = layers(x)[0], build(reader(name)).eval()(x)[0]
    same(layers(x)[0], y, rtol=0, atol=0)
    if key.startswith("dropout"):
        same(y, plain, rtol=0, atol=0)
    else:
        assert (y - plain).abs().max() > 1e-4


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "cell"), [
    *((name, 0.0) for name in HELD), *((name, 0.2) for name in WITH_A_CELL),
])  # fmt: skip
def test_zoneout_is_around_every_layer(name: str, cell: float) -> None:
    keys = {"zoneout_cell": cell} if cell else {}
    around = modules_of(build(reader(name, num_layers=2, zoneout_hidden=0.1, **keys)), nn.Zoneout)
    assert len(around) == 4
    for layer in around:
        assert type(layer.layer) is CELLS[name]
        assert f"hidden=0.1, cell={cell}" in repr(layer)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HELD)
def test_zoneout_and_weight_dropout_are_combined(name: str) -> None:
    layers, x = build(one_way(name, num_layers=1, zoneout_hidden=0.1, dropout_recurrent=0.5)), inputs()
    (dropped,) = modules_of(layers, nn.WeightDrop)
    assert isinstance(dropped.layer, nn.Zoneout)
    assert not layers(x)[0].equal(layers(x)[0])
    same(layers.eval()(x)[0], build(one_way(name, num_layers=1, zoneout_hidden=0.1)).eval()(x)[0], rtol=0, atol=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("name", READERS)
def test_inputs_may_be_empty(name: str, bidirectional: bool) -> None:
    layers = build(reader(name) if bidirectional else one_way(name))
    for shape in ((2, 0), (0, 3)):
        y, _ = layers(torch.zeros(*shape, D_IN), mask=torch.zeros(shape, dtype=torch.bool))
        assert y.shape == (*shape, layers.d_out)
