"""A map keeps distances as well as two axes can, and is the same each time."""

import numpy as np
import pytest

from ensue.extensions.word_vectors.neighbor_map import map_section, map_vectors
from inspection.small import parsed


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


def test_a_map_shows_all_words_and_labels_where_there_is_room() -> None:
    words = [f"<b>{n}" for n in range(30)]
    found = map_vectors(np.random.default_rng(0).normal(size=(30, 5)))
    titles = [f"title of {word}" for word in words]
    section = map_section(found, words, num_queries=2, titles=titles, heading="Map", about="About &")
    drawn = parsed(f"<div>{section.content}</div>")
    assert drawn.titles() == titles
    assert len(list(drawn.all("circle", "warm"))) == 2
    labels = [text.text for text in drawn.all("text")]
    assert set(labels) <= {"", *words}
    assert labels[0] == words[0]
    places = np.array([[float(c.attributes[axis] or 0) for axis in ("cx", "cy")] for c in drawn.all("circle")])
    scale = np.ptp(places[:, 0]) / np.ptp(found.places[:, 0])
    assert np.ptp(places[:, 1]) == pytest.approx(scale * np.ptp(found.places[:, 1]), abs=0.3)


def test_one_word_is_a_map() -> None:
    section = map_section(map_vectors(np.ones((1, 3))), ["sea"], num_queries=1, titles=["sea"], heading="Map", about="")
    assert "sea" in str(section.content)
