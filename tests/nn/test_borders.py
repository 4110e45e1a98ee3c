"""The repr of layers, and the errors of their constructors and limits."""

import ast
import re
from collections.abc import Callable

import pytest
import torch

import ensue.nn
from ensue import nn
from ensue.errors import ContextError
from ensue.testing.laws import Subject
from laws.table import CASES, concrete_layers
from source_imports import SOURCE


@pytest.mark.sampled(16)
@pytest.mark.parametrize("subject", CASES)
def test_a_repr_is_one_line_that_rebuilds_the_layer(subject: Subject) -> None:
    layer = subject.make()
    names = {**vars(torch.nn), **vars(ensue.nn), **{kind.__name__: kind for kind in concrete_layers()}}
    again = eval(repr(layer), {**names, "Dropout": torch.nn.Dropout})
    assert type(again) is type(layer)
    assert repr(again) == repr(layer)
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in layer.state_dict().items()}
    assert "\n" not in repr(layer)


def test_reprs_have_the_arguments() -> None:
    assert repr(nn.LSTM(8, 16)) == "LSTM(d_in=8, d_out=16)"
    assert repr(nn.GRU(8, 16)) == "GRU(d_in=8, d_out=16, reset='after')"
    assert repr(nn.Stack([nn.LSTM(8, 8)])) == "Stack([LSTM(d_in=8, d_out=8)])"


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: nn.Window(4, 4, size=0), "a window must have at least one position, found 0"),
    (lambda: nn.Elman(4, 4, activation="sine"), "activation must be tanh or relu, found 'sine'"),  # type: ignore[arg-type]
    (lambda: nn.GRU(4, 4, reset="never"), "reset must be before or after, found 'never'"),  # type: ignore[arg-type]
    (lambda: nn.MultiHeadAttention(6, num_heads=4), "6 features cannot be divided among 4 heads"),
    (lambda: nn.MultiHeadAttention(6, num_heads=0), "6 features cannot be divided among 0 heads"),
    (
        lambda: nn.MultiHeadAttention(6, num_heads=2, rotary=True),
        "rotary positions need an even d_head, found 3",
    ),
    (
        lambda: nn.MultiHeadAttention(6, num_heads=2, dropout=1.5),
        "dropout must be a probability from 0 to 1, found 1.5",
    ),
    (lambda: nn.MultiHeadCrossAttention(6, 4, num_heads=4), "6 features cannot be divided among 4 heads"),
    (lambda: nn.AdditiveAttention(6, 4, dropout=-1), "dropout must be a probability from 0 to 1, found -1"),
    (lambda: nn.DotAttention(6, 4), "dot products need d_in = d_memory, found 6 and 4"),
    (
        lambda: nn.Stack([nn.BilinearAttention(4, 4), nn.AdditiveAttention(4, 3)]),
        "layers of one Stack must attend to one memory; found sizes [3, 4]",
    ),
    (
        lambda: nn.Transformer(4, num_heads=2, num_layers=1, max_positions=8, d_memory=4, is_causal=False),
        "a Transformer that attends to a memory must be causal",
    ),
    (
        lambda: nn.InputFeeding(nn.LSTM(8, 5), nn.AttentionalLayer(nn.DotAttention(4, 4))),
        "AttentionalLayer(DotAttention(d_in=4, d_memory=4, dropout=0.0), d_out=4) cannot read the 5 features of LSTM",
    ),
    (
        lambda: nn.InputFeeding(nn.LSTM(4, 4), nn.AttentionalLayer(nn.DotAttention(4, 4))),
        "d_in of LSTM(d_in=4, d_out=4) must exceed the 4 features of the last output",
    ),
    (
        lambda: nn.InputFeeding(nn.FromContext(nn.LSTM(8, 4), 3), nn.AttentionalLayer(nn.DotAttention(4, 4))),
        "FromContext(LSTM(d_in=8, d_out=4), d_memory=3, bidirectional=False) is not causal or needs another memory",
    ),
    (
        lambda: nn.WithContext(nn.LSTM(4, 4), 4),
        "d_in of LSTM(d_in=4, d_out=4) must exceed the 4 features of the memory",
    ),
    (
        lambda: nn.FromContext(nn.VariationalDropout(0.5, d_in=4), 4),
        "the state of VariationalDropout(p=0.5, d_in=4) has no",
    ),
    (
        lambda: nn.FromContext(nn.DotAttention(4, 4), 3),
        "d_memory must be 4, as in DotAttention(d_in=4, d_memory=4, dropout=0.0); found 3",
    ),
    (lambda: nn.Rotary(3), "rotary positions need an even d_head, found 3"),
    (lambda: nn.SinusoidalPositions(5), "sinusoidal positions need an even d_model, found 5"),
    (
        lambda: nn.PostNormBlock(4, num_heads=2, d_feedforward=4, activation="tanh"),  # type: ignore[arg-type]
        "activation must be one of relu, gelu, gelu-tanh, silu, found 'tanh'",
    ),
    (lambda: nn.Transformer(4, num_heads=2, num_layers=1), "learned positions need max_positions"),
    (
        lambda: nn.Transformer(4, num_heads=2, num_layers=1, positions="none"),  # type: ignore[arg-type]
        "positions must be one of learned, sinusoidal, rotary, disentangled, found 'none'",
    ),
    (
        lambda: nn.Transformer(4, num_heads=2, num_layers=1, max_positions=8, norm="no"),  # type: ignore[arg-type]
        "norm must be one of pre, post, found 'no'",
    ),
    (lambda: nn.Stack([]), "a Stack needs at least one layer"),
    (lambda: nn.DepthGatedLSTM(4, 4, num_layers=0), "a DepthGatedLSTM needs at least one layer, found 0"),
    (lambda: nn.GridLSTM(4, 4, num_layers=0), "a GridLSTM needs at least one layer, found 0"),
    (lambda: nn.Stack([nn.LSTM(4, 5), nn.LSTM(4, 5)]), "LSTM(d_in=4, d_out=5) cannot read the 5 features of LSTM"),
    (lambda: nn.Residual(nn.LSTM(4, 5)), "a residual connection needs d_out = d_in"),
    (lambda: nn.Bidirectional(nn.LSTM(4, 5), nn.LSTM(4, 6)), "both directions need the same sizes"),
    (lambda: nn.Bidirectional(nn.LSTM(4, 5), nn.LSTM(4, 5), merge="max"), "merge must be concatenate"),  # type: ignore[arg-type]
    (lambda: nn.WeightDrop(nn.Window(4, 4, size=2), 0.5), "WeightDrop needs a layer with a parameter weight_hidden"),
    (lambda: nn.WeightDrop(nn.LSTM(4, 4), -0.1), "dropout must be a probability from 0 to 1, found -0.1"),
    (lambda: nn.VariationalDropout(2, d_in=4), "dropout must be a probability from 0 to 1, found 2"),
    (lambda: nn.TokenEmbedding(10, 4, dropout=7), "dropout must be a probability from 0 to 1, found 7"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
@pytest.mark.usefixtures("unchecked_types")
def test_wrong_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}[^\n]*$"):
        make()


def test_too_many_positions_are_refused() -> None:
    layer = nn.LearnedPositions(4, max_positions=3)
    with pytest.raises(ContextError, match="found 4 positions; the model has 3"):
        layer(torch.zeros(1, 4, 4))
    _, state = layer(torch.zeros(1, 3, 4))
    with pytest.raises(ContextError, match="found 4 positions; the model has 3"):
        layer.step(torch.zeros(1, 4), state)


def test_padding_may_exceed_the_positions() -> None:
    layer = nn.LearnedPositions(4, max_positions=3)
    mask = torch.tensor([[True, True, True, False]])
    y, _ = layer(torch.zeros(1, 4, 4), mask=mask)
    torch.testing.assert_close(y[0, :3], layer.weight)


@pytest.mark.parametrize(
    "layer",
    [nn.Bidirectional(nn.LSTM(4, 4), nn.LSTM(4, 4)), nn.MultiHeadAttention(4, num_heads=2, is_causal=False)],
    ids=["bidirectional", "attention"],
)
def test_layers_that_look_ahead_refuse_step_and_initial_states(layer: ensue.nn.SequenceLayer) -> None:
    with pytest.raises(TypeError, match="looks ahead"):
        layer.step(torch.zeros(2, 4), layer.init_state(2))
    _, state = layer(torch.zeros(2, 3, 4))
    with pytest.raises(TypeError, match="no initial state"):
        layer(torch.zeros(2, 3, 4), state)


def test_a_constructor_has_at_most_eight_parameters() -> None:
    """Further options are fields of one frozen object."""
    files = (path for folder in ("nn", "models") for path in (SOURCE / "ensue" / folder).rglob("*.py"))
    functions = (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    constructors = [node.args for node in functions if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    assert len(constructors) > 80
    assert max(len(node.args) - 1 + len(node.kwonlyargs) for node in constructors) <= 8
