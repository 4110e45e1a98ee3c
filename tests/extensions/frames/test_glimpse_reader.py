"""A reader of images in glimpses: the exact gradient, the bound, and independence of the batch and of its split."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ensue.extensions.frames.glimpses.model import GlimpseParts, GlimpseReader, ReadSymbols, compute_bound
from ensue.extensions.frames.tasks.model import Frames
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.text.labels import Classes
from extensions.frames.small_frames import recipe_of, without_normalization

ROWS, COLUMNS, SYMBOLS = 6, 10, 3
DEVIATION = 0.3


def reader(**keys: object) -> GlimpseReader:
    table = {"size": 4, "convolutions": [3], "view_convolutions": [2], "view": 2, "deviation": DEVIATION, **keys}
    torch.manual_seed(1)
    recipe = recipe_of("glimpses", glimpses=table, encoder={"kind": "gru", "d_model": 5})
    parts = GlimpseParts(without_normalization(COLUMNS), Classes([str(n) for n in range(SYMBOLS)]), ROWS)
    model = parts.build(recipe).double()
    with torch.no_grad():  # places that depend on the image, and baselines that are not constants
        model.place.weight.normal_(std=20)
        model.baseline.weight.normal_()
    return model


def images(count: int) -> Tensor:
    return torch.rand(count, ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)).double()


def gradients(model: GlimpseReader, total: Tensor, *, retain: bool = False) -> dict[str, Tensor]:
    named = {name: parameter for name, parameter in model.named_parameters() if not name.startswith("baseline")}
    parameters = list(named.values())
    values = torch.autograd.grad(total, parameters, retain_graph=retain, allow_unused=True, materialize_grads=True)
    return dict(zip(named, values, strict=True))


@pytest.mark.parametrize(("samples", "targets"), [(1, [1, SYMBOLS]), (2, [1])])
def test_the_gradient_is_that_of_the_expected_bound(samples: int, targets: list[int]) -> None:
    """Sums over a fine grid of two places replace integrals: the places of one sample, or one place of each of two."""
    model, axis = reader(each=1), torch.linspace(-6, 6, 41, dtype=torch.float64)
    steps = torch.cartesian_prod(axis, axis)
    noise = torch.zeros(len(steps), samples, len(targets), 1, 2, dtype=torch.float64)
    noise[..., 1] = steps.view(-1, samples, len(targets), 1)
    image = model.to_images(Frames(images(1), None)).expand(len(steps), -1, -1, -1)
    right = torch.tensor([targets]).expand(len(steps), -1)
    result = model(image, [len(targets)] * len(steps), noise)
    distance = ((result.places - result.means)[..., 1] / DEVIATION).flatten(1)
    share = torch.exp(-distance.square().sum(1) / 2) / (2 * math.pi) * (axis[1] - axis[0]) ** 2
    symbols = right[:, None, :, None].expand(-1, samples, -1, 1)
    logp = result.logits.log_softmax(-1).gather(-1, symbols).sum((2, 3)).mean(1)
    assert float(share.detach().sum()) == pytest.approx(1)
    exact = gradients(model, -(share * logp).sum(), retain=True)
    estimate = gradients(model, (share.detach() * compute_bound(result, right, DEVIATION)).sum())
    for name, value in exact.items():
        torch.testing.assert_close(estimate[name], value, atol=1e-7, rtol=1e-5, msg=name)
    assert exact["place.weight"].abs().max() > 1e-4


def test_baselines_reduce_the_gradient() -> None:
    """With the expected log probabilities as baselines, the gradient is 0."""
    result = ReadSymbols(
        torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 2, 1, 2), torch.zeros(1, 1, 2, 1, 2), torch.zeros(1, 1, 2, 1)
    )
    result.means.requires_grad_()
    sizes = []
    for expected in (0.0, -math.log(4)):
        (gradient,) = torch.autograd.grad(
            compute_bound(result._replace(baselines=result.baselines + expected), torch.tensor([[0, 3]]), 1.0).sum(),
            result.means,
        )
        sizes.append(gradient.abs().amax((0, 1, 3, 4)).tolist())
    assert sizes == [pytest.approx([2 * math.log(4), math.log(4)]), pytest.approx([0, 0], abs=1e-6)]


def test_the_bound_is_above_the_surprisal() -> None:
    model, targets = reader(samples=1), torch.tensor([[2, 0, SYMBOLS]])
    image = model.to_images(Frames(images(1), None))
    torch.manual_seed(0)
    with torch.no_grad():
        result = model(image, [3], torch.randn(1, 1000, 3, 2, 2).double())
    logp = result.logits.log_softmax(-1)[0, :, [0, 1, 2], targets[0]].sum(1)
    surprisal = math.log(1000) - float(logp.logsumexp(0))
    assert float(compute_bound(result, targets, DEVIATION)) == pytest.approx(-float(logp.mean()))
    assert -float(logp.mean()) > surprisal + 1e-4


def test_images_of_a_batch_are_read_as_alone() -> None:
    model = reader()
    padded, noise = model.to_images(Frames(images(3), None)), torch.randn(3, 2, 4, 2, 2).double()
    together = model(padded, [4, 2, 1], noise)
    for row, length in enumerate([4, 2, 1]):
        alone = model(padded[row : row + 1], [length], noise[row : row + 1])
        for part, other in zip(together, alone, strict=True):
            torch.testing.assert_close(part[row, :, :length], other[0])
            assert not part[row, :, length:].any()


def test_reading_by_means_is_reading_without_noise_until_the_end_symbol() -> None:
    model = reader()
    frames = Frames(images(2), None)
    logp, places = model.read(frames, min_symbols=3, max_symbols=2)
    result = model(model.to_images(frames), [3, 3], torch.zeros(2, 1, 3, 2, 2).double())
    torch.testing.assert_close(logp, result.logits[:, 0].log_softmax(-1))
    torch.testing.assert_close(places, result.places[:, 0])
    with torch.no_grad():
        model.head.bias[SYMBOLS] = 100
    assert model.read(frames, min_symbols=1, max_symbols=9)[0].shape[1] == 1
    averaged = model.read(frames, min_symbols=2, max_symbols=2, paths=5, noise=lambda: torch.randn(10, 2, 2).double())[
        0
    ]
    torch.testing.assert_close(averaged.logsumexp(-1), torch.zeros(2, 2).double())


def test_draws_do_not_depend_on_the_split_of_the_batch() -> None:
    model, frames = reader(samples=2), Frames(images(5), None)
    targets = torch.tensor([[0, 3, -1], [3, -1, -1], [1, 2, 3], [2, 1, 3], [1, 3, -1]])  # the first two are shorter
    torch.manual_seed(3)
    loss = model.loss(frames, targets)
    totals = []
    for rows in (slice(0, 2), slice(2, 5)):
        torch.manual_seed(3)
        with drawing_rows(RowSlice(rows, 5)):
            totals.append(model.loss(frames.slice_rows(rows), targets[rows]).total)
    torch.testing.assert_close(totals[0] + totals[1], loss.total)
    assert loss.count == 5


@pytest.mark.parametrize("relative", [True, False])
def test_the_first_places_are_those_of_the_recipe(relative: bool) -> None:
    model = reader(relative=relative, start=[0.1, -0.5], move=[0.0, 0.25])
    torch.nn.init.zeros_(model.place.weight)
    _, places = model.read(Frames(images(1), None), min_symbols=2, max_symbols=1)
    expected = [-0.25, 0.0, 0.25, 0.5] if relative else [-0.5] * 4
    np.testing.assert_allclose(places[0].flatten(0, 1), [[0.1, right] for right in expected], atol=1e-6)
