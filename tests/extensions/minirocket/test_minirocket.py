"""Features of MiniRocket against the definition in numpy, and a classifier of few series by the command line."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import ensue as package
from command_fixtures import Ensue
from ensue.errors import EnsueError
from ensue.extensions.minirocket.classification import NUM_KERNELS, MiniRocket


def written_out_features(layer: MiniRocket, x: np.ndarray) -> np.ndarray:
    """Return the features of one series (T, d), position by position, without standardization."""
    T, features, kernels = len(x), [], layer.kernels.numpy()
    thresholds = layer.thresholds.numpy().tolist()
    for number, (dilation, count) in enumerate(zip(layer.dilations, layer.counts, strict=True)):
        for k, triple in enumerate(combinations(range(9), 3)):
            weights = np.array([2.0 if place in triple else -1.0 for place in range(9)])
            read = np.abs(kernels[number, k]).sum(1) > 0
            values = np.array(
                [
                    sum(
                        weights[j] * x[t + (j - 4) * dilation, read].sum()
                        for j in range(9)
                        if 0 <= t + (j - 4) * dilation < T
                    )
                    for t in range(T)
                ]
            )
            margin = 0 if (k + number) % 2 == 0 or 8 * dilation >= T else 4 * dilation
            values = values[margin : T - margin]
            features += [(values > threshold).mean() for threshold in thresholds[:count]]
            del thresholds[:count]
    return np.array(features)


def test_features_are_shares_of_outputs_above_thresholds() -> None:
    """With different lengths in a batch, one of which is too short for the larger dilation."""
    x = torch.randn(3, 21, 2, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(21) < torch.tensor([[21], [13], [1]])
    layer = MiniRocket(2, length=21, num_features=3 * NUM_KERNELS + 5, seed=1)
    layer.fit(3, lambda rows: (x[rows], mask[rows]))
    assert (layer.d_out, layer.dilations, sum(layer.counts)) == (3 * NUM_KERNELS, [1, 2], 3)
    actual = layer(x, mask) * layer.deviation + layer.mean
    for row, length in enumerate(mask.sum(1).tolist()):
        np.testing.assert_allclose(actual[row].numpy(), written_out_features(layer, x[row, :length].numpy()), atol=1e-6)
    assert len(layer.thresholds.unique()) > NUM_KERNELS
    standard = layer(x, mask)
    torch.testing.assert_close(standard.mean(0), torch.zeros(layer.d_out), rtol=0, atol=1e-5)


def test_random_choices_depend_on_the_seed_alone() -> None:
    first, second, other = (MiniRocket(5, length=40, num_features=840, seed=seed).kernels for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert {int(count) for count in (first[:, :, :, 0] != 0).sum(-1).flatten()} == {1, 2, 3, 4, 5}


def series(path: Path, count: int) -> Path:
    """Write sine waves of two frequencies, with noise and random phases."""
    generator = np.random.default_rng(count)
    labels = np.array(["slow", "fast"])[np.arange(count) % 2]
    times = np.arange(30) + 30 * generator.random((count, 1))
    waves = np.sin(times * np.where(labels == "slow", 0.5, 1.1)[:, None]) + generator.normal(0, 0.5, times.shape)
    np.savez(path, frames=waves[..., None].astype(np.float32), labels=labels)
    return path


def test_few_series_are_proposed_and_classified(tmp_path: Path, ensue: Ensue) -> None:
    train, test = series(tmp_path / "train.npz", 20), series(tmp_path / "test.npz", 60)
    assert "classify-minirocket" in ensue("data", train).out
    result = ensue("train", train, "--out", tmp_path / "run", "--set", "head.num_features=840")
    assert (result.status, "±" in result.out + result.err) == (0, True), result
    scores = json.loads(ensue("evaluate", tmp_path / "run", test, "--json").out)
    assert scores["accuracy"] > 0.9
    lines = ensue("predict", tmp_path / "run", test).out.splitlines()
    assert len(lines) == 60
    assert "cannot be exported" in ensue("export", tmp_path / "run", "--format", "onnx", "--out", tmp_path / "x").err
    assert "for predict and evaluate" in ensue("inspect", tmp_path / "run", test).err
    with pytest.raises(EnsueError, match="has no inspection page; a model of classify-frames"):
        package.load(tmp_path / "run").inspect(test)


def test_a_constant_series_has_the_same_features_in_every_batch() -> None:
    """Its outputs equal thresholds except for rounding, which depends on the sizes of a matrix product."""
    x = torch.randn(12, 40, 8, generator=torch.Generator().manual_seed(0))
    x[:6] = x[:6, :1]
    layer = MiniRocket(8, length=40, num_features=10 * NUM_KERNELS, seed=1)
    layer.fit(len(x), lambda rows: (x[rows], None))
    torch.testing.assert_close(layer(x), torch.cat([layer(row, None) for row in torch.split(x, 1)]), rtol=0, atol=1e-4)


def test_too_many_series_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.extensions.minirocket.classification.MAX_TEXTS", 10)
    with pytest.raises(EnsueError, match="at most 10 series; use classify-frames"):
        package.train("classify-minirocket", train=series(tmp_path / "a.npz", 20), out=tmp_path / "run")
    monkeypatch.setattr("ensue.extensions.minirocket.classification.MAX_VALUES", 90_000)
    with pytest.raises(EnsueError, match="the features of 10 series need too much memory; reduce head"):
        package.train("classify-minirocket", train=series(tmp_path / "b.npz", 10), out=tmp_path / "other")
