"""Each kind of dropout drops its units with its probability."""

import pytest
import torch
from torch.nn.utils import prune

from ensue.nn import GRU, LSTM, Dropout, ElementDropout, Elman, TokenEmbedding, VariationalDropout, WeightDrop


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_plain_dropout_drops_single_numbers() -> None:
    y, _ = Dropout(0.5, d_in=20)(torch.ones(3, 40, 20))
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert y.std(dim=1).min() > 0
    assert y.mean().item() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0, 4)])
def test_dropout_keeps_any_shape(shape: tuple[int, ...]) -> None:
    assert ElementDropout(0.5)(torch.ones(shape)).shape == shape


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.9])
def test_dropout_has_its_probability_scale_and_gradient(p: float) -> None:
    x = torch.ones(400, 1001, dtype=torch.float64, requires_grad=True)
    y = ElementDropout(p)(x)
    deviation = (p * (1 - p) / x.numel()) ** 0.5
    assert (y == 0).double().mean().item() == pytest.approx(p, abs=5 * deviation + 1 / 65_536)
    assert y.max().item() == pytest.approx(1 / (1 - p), rel=1 / 65_536 / (1 - p))
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())  # dropped numbers have no gradient
    neighbors = ((y[:, :-1] == 0) & (y[:, 1:] == 0)).double().mean().item()
    assert neighbors == pytest.approx(p * p, abs=5 * deviation + 2 / 65_536)
    assert torch.equal(ElementDropout(p).eval()(x), x)


def test_probabilities_of_one_and_zero_drop_all_and_none() -> None:
    x = torch.ones(7, 3)
    assert not ElementDropout(1.0)(x).any()
    assert torch.equal(ElementDropout(0.0)(x), x)


def test_variational_dropout_has_one_mask_for_a_row() -> None:
    y, _ = VariationalDropout(0.5, d_in=200)(torch.ones(3, 7, 200))
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert not torch.equal(y[0], y[1])
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert y.mean().item() == pytest.approx(1, abs=0.15)


def test_variational_dropout_draws_a_new_mask_at_each_call() -> None:
    layer, x = VariationalDropout(0.5, d_in=50), torch.ones(1, 1, 50)
    assert not torch.equal(layer(x)[0], layer(x)[0])


def test_embedding_dropout_zeroes_a_token_at_all_its_positions() -> None:
    embedding = TokenEmbedding(200, 3, dropout=0.25)
    ids = torch.arange(200).repeat(2, 1)
    scale = embedding(ids) / embedding.weight
    torch.testing.assert_close(scale, scale[:1, :, :1].expand_as(scale))
    assert all(number == pytest.approx(0) or number == pytest.approx(4 / 3) for number in scale.unique().tolist())
    assert (scale[0, :, 0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.1)
    assert torch.equal(embedding.eval()(ids), embedding.weight.expand(2, -1, -1))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_embeddings_are_scaled_in_training_as_in_eval(share: float) -> None:
    embedding = TokenEmbedding(400, 3, dropout=share, scale=5.0)
    expected = 5 * embedding.weight
    y = embedding(torch.arange(400))
    is_kept = y.abs().sum(1) > 0
    torch.testing.assert_close(y[is_kept], (expected / (1 - share))[is_kept])
    torch.testing.assert_close(embedding.eval()(torch.arange(400)), expected)
    assert expected.std().item() == pytest.approx(1, abs=0.15)


def test_weight_drop_has_one_mask_for_all_positions_of_a_call() -> None:
    """With x = 0, h_0 = 1 and relu, outputs are powers of the dropped weight."""
    layer = WeightDrop(Elman(1, 1, activation="relu"), 0.5)
    layer.layer.load_state_dict(
        {"weight_input": torch.zeros(1, 1), "weight_hidden": torch.ones(1, 1), "bias": torch.zeros(1)}
    )
    start = layer.init_state(1)._replace(h=torch.ones(1, 1))
    runs = [tuple(layer(torch.zeros(1, 3, 1), start)[0].flatten().tolist()) for _ in range(100)]
    assert set(runs) == {(0.0, 0.0, 0.0), (2.0, 4.0, 8.0)}
    assert sum(run[0] for run in runs) / len(runs) == pytest.approx(1, abs=0.3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [lambda: LSTM(3, 4), lambda: GRU(3, 4), lambda: GRU(3, 4, reset="before")])
def test_weight_drop_trains_full_weights(make) -> None:  # type: ignore[no-untyped-def]
    layer = WeightDrop(make(), 0.5)
    before = layer.layer.weight_hidden.detach().clone()
    layer(torch.randn(2, 5, 3))[0].sum().backward()
    gradient = layer.layer.weight_hidden.grad
    assert 0 < (gradient == 0).float().mean() < 1  # only the other weights have gradients
    assert torch.equal(layer.layer.weight_hidden, before)


def test_weight_drop_equals_the_layer_in_eval_mode() -> None:
    layer = WeightDrop(LSTM(3, 4), 0.5).eval()
    x = torch.randn(2, 5, 3)
    assert torch.equal(layer(x)[0], layer.layer(x)[0])


def test_weight_drop_of_a_pruned_weight_is_refused() -> None:
    layer = WeightDrop(LSTM(3, 4), 0.5)
    prune.random_unstructured(layer.layer, "weight_hidden", 0.5)
    with pytest.raises(
        ValueError, match=r"^WeightDrop: weight_hidden of LSTM\(.*\) was pruned or parametrized, [^\n]+$"
    ):
        layer(torch.randn(2, 5, 3))
    assert layer.eval()(torch.randn(2, 5, 3))[0].shape == (2, 5, 4)
