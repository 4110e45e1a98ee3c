"""A map keeps distances as well as two axes can, and is the same each time."""

import numpy as np
import pytest

from ensue.inspection.map_page import map_vectors


def test_what_lies_in_a_plane_keeps_its_distances() -> None:
    angles = np.random.default_rng(0).uniform(0, 6, 12)
    plane = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 7)))[0][:2]
    vectors = 3 * np.column_stack((np.cos(angles), np.sin(angles))) @ plane
    found = map_vectors(vectors.astype(np.float32))
    assert found.share == pytest.approx(1)
    distances = np.linalg.norm(found.places[:, None] - found.places[None], axis=-1)
    assert distances == pytest.approx(2 * np.abs(np.sin((angles[:, None] - angles) / 2)), abs=1e-5)
    assert (found.places.max(0) >= -found.places.min(0)).all()


def test_axes_are_principal_components_of_directions() -> None:
    vectors = np.random.default_rng(2).normal(size=(20, 6))
    found = map_vectors(vectors)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    variances = np.linalg.eigvalsh(np.cov(units.T, bias=True))[::-1]
    assert found.places.var(0) == pytest.approx(variances[:2])
    assert found.share == pytest.approx(variances[:2].sum() / variances.sum())
    assert found.places == pytest.approx(map_vectors(9 * vectors).places)
    nearest = (units @ units.T - 2 * np.eye(20)).argmax(1)
    assert {frozenset(pair) for pair in found.links.tolist()} == {frozenset((n, int(k))) for n, k in enumerate(nearest)}
    assert len(found.links) == len({tuple(pair) for pair in found.links.tolist()})


@pytest.mark.parametrize("vectors", [np.ones((1, 3)), np.zeros((3, 2)), np.ones((4, 1)), [[1.0, 0], [0, 1]]])
def test_few_and_equal_vectors(vectors: object) -> None:
    found = map_vectors(np.asarray(vectors))
    assert found.places.shape == (len(vectors), 2)  # type: ignore[arg-type]
    assert np.isfinite(found.places).all()
    assert 0 <= found.share <= 1 + 1e-9
