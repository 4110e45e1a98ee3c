"""Maps of vectors in two dimensions by principal components."""

import numpy as np
import pytest

from ensue.extensions.word_vectors.neighbor_map import map_section, map_vectors
from inspection.small import parsed


def test_vectors_in_a_plane_keep_their_distances() -> None:
    angles = np.random.default_rng(0).uniform(0, 6, 12)
    plane = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 7)))[0][:2]
    vectors = 3 * np.column_stack((np.cos(angles), np.sin(angles))) @ plane
    neighbor_map = map_vectors(vectors.astype(np.float32))
    assert neighbor_map.share == pytest.approx(1)
    distances = np.linalg.norm(neighbor_map.places[:, None] - neighbor_map.places[None], axis=-1)
    assert distances == pytest.approx(2 * np.abs(np.sin((angles[:, None] - angles) / 2)), abs=1e-5)
    assert (neighbor_map.places.max(0) >= -neighbor_map.places.min(0)).all()


def test_axes_are_principal_components_of_directions() -> None:
    vectors = np.random.default_rng(2).normal(size=(20, 6))
    neighbor_map = map_vectors(vectors)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    variances = np.linalg.eigvalsh(np.cov(units.T, bias=True))[::-1]
    assert neighbor_map.places.var(0) == pytest.approx(variances[:2])
    assert neighbor_map.share == pytest.approx(variances[:2].sum() / variances.sum())
    assert neighbor_map.places == pytest.approx(map_vectors(9 * vectors).places)
    nearest = (units @ units.T - 2 * np.eye(20)).argmax(1)
    links = [frozenset(pair) for pair in neighbor_map.links.tolist()]
    assert {*links} == {frozenset((n, int(k))) for n, k in enumerate(nearest)}
    assert len(links) == len({*links})


@pytest.mark.parametrize("vectors", [np.ones((1, 3)), np.zeros((3, 2)), np.ones((4, 1)), [[1.0, 0], [0, 1]]])
def test_few_or_equal_vectors_have_finite_places(vectors: object) -> None:
    neighbor_map = map_vectors(np.asarray(vectors))
    assert neighbor_map.places.shape == (len(vectors), 2)  # type: ignore[arg-type]
    assert np.isfinite(neighbor_map.places).all()
    assert 0 <= neighbor_map.share <= 1 + 1e-9


def test_a_map_draws_all_words_and_labels_those_with_room() -> None:
    words = [f"<b>{n}" for n in range(30)]
    neighbor_map = map_vectors(np.random.default_rng(0).normal(size=(30, 5)))
    titles = [f"title of {word}" for word in words]
    section = map_section(neighbor_map, words, num_queries=2, titles=titles, heading="Map", about="About &")
    drawn = parsed(f"<div>{section.content}</div>")
    assert drawn.titles() == titles
    assert len(list(drawn.all("circle", "warm"))) == 2
    labels = [text.text for text in drawn.all("text")]
    assert set(labels) <= {"", *words}
    assert labels[0] == words[0]
    places = np.array([[float(c.attributes[axis] or 0) for axis in ("cx", "cy")] for c in drawn.all("circle")])
    scale = np.ptp(places[:, 0]) / np.ptp(neighbor_map.places[:, 0])
    assert np.ptp(places[:, 1]) == pytest.approx(scale * np.ptp(neighbor_map.places[:, 1]), abs=0.3)


def test_a_single_word_can_be_drawn() -> None:
    section = map_section(map_vectors(np.ones((1, 3))), ["sea"], num_queries=1, titles=["sea"], heading="Map", about="")
    assert "sea" in str(section.content)
