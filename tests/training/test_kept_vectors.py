"""Layers of other runs as features are equal whether cached or computed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ensue import cache
from ensue.data.compact_texts import Ragged
from ensue.errors import EnsueError
from ensue.notices import Notice
from ensue.tasks.vectors.contextual import POOLINGS, pool_words
from ensue.tasks.words import pipeline as word_pipelines
from ensue.tasks.words.pipeline import ContextualFeatures, to_float16
from training.contextual import CPU, WORDS, features, features_of, ignore_progress, texts_of
from training.tiny import run_tiny
from training.tiny_texts import tagging


def test_cached_vectors_equal_computed_ones(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_pipelines, "CHUNK_WORDS", 4)
    (origin_vectors,) = features(tagging(origin, features=features_of(origin, layers=[-1, 0]))).origins
    texts = texts_of(WORDS)
    words = Ragged(texts.words.ids, texts.starts)
    cached = origin_vectors.load_or_compute(words, texts.words.values, ignore_progress)
    (computed,) = ContextualFeatures([origin_vectors]).vectors_on_demand(WORDS)
    for rows in ([0, 1, 2, 3, 4], [4, 1], [1], [2, 0]):
        vectors, expected = cached.rows(np.array(rows)), computed.rows(np.array(rows))
        assert vectors.shape == expected.shape == (len(rows), max(len(WORDS[row]) for row in rows), 2, 8)
        np.testing.assert_allclose(vectors.astype(float), expected.astype(float), atol=2e-3)
    (layers,) = origin_vectors.pipeline.layers_of_words([WORDS[0]])
    np.testing.assert_allclose(cached.rows(np.array([0]))[0], layers[[2, 0]].transpose(1, 0, 2), atol=2e-3)
    assert isinstance(cached, word_pipelines.CachedVectors)
    assert len(cached.file) == 1 + 3 + 3 + 40  # a repeated text is cached once
    words = Ragged(texts.words.ids, texts.starts[2:])
    part = origin_vectors.load_or_compute(words, texts.words.values, ignore_progress)
    np.testing.assert_array_equal(part.rows(np.array([0, 2])), cached.rows(np.array([2, 4])))


def test_cached_vectors_are_read_again_unless_they_are_damaged(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    (origin_vectors,) = features(tagging(names, features=features_of(origin))).origins
    texts = texts_of(WORDS)
    words, row = Ragged(texts.words.ids, texts.starts), np.array([0])
    before = origin_vectors.load_or_compute(words, texts.words.values, ignore_progress).rows(row)
    (entry,) = [file for file in cache.cached_files() if "vectors" in file.kind.noun]
    inode = entry.path.stat().st_ino
    assert np.array_equal(origin_vectors.load_or_compute(words, texts.words.values, ignore_progress).rows(row), before)
    assert entry.path.stat().st_ino == inode
    entry.path.write_bytes(entry.path.read_bytes()[:-1])
    assert np.array_equal(origin_vectors.load_or_compute(words, texts.words.values, ignore_progress).rows(row), before)
    assert entry.path.stat().st_size == entry.size
    (other,) = features(tagging(names, features=features_of(origin, pooling="last"))).origins
    other.load_or_compute(words, texts.words.values, ignore_progress)
    assert len([file for file in cache.cached_files() if "vectors" in file.kind.noun]) == 2


def test_progress_is_reported(origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(word_pipelines, "CHUNK_WORDS", 4)
    (origin_vectors,), texts = features(tagging(names, features=features_of(origin))).origins, texts_of(WORDS)
    reports: list[tuple[str, float]] = []
    for _ in range(2):  # the second call reads the cache
        words = Ragged(texts.words.ids, texts.starts)
        origin_vectors.load_or_compute(words, texts.words.values, lambda *report: reports.append(report))
    assert [what for what, _ in reports] == [f"layers of {origin}"] * 2
    assert [share for _, share in reports] == [6 / 46, 1.0]


def test_vectors_larger_than_the_cache_give_a_notice(
    origin: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (origin_vectors,), texts = features(tagging(names, features=features_of(origin))).origins, texts_of(WORDS)
    words, forms, rows = Ragged(texts.words.ids, texts.starts), texts.words.values, np.array([0, 3])
    cached = origin_vectors.load_or_compute(words, forms, ignore_progress)
    monkeypatch.setattr(word_pipelines, "size_limit", lambda: 1_000)
    with pytest.warns(
        Notice, match=r"the layers of .*masked for 49 words are more than the cache holds, and are computed"
    ):
        again = origin_vectors.load_or_compute(words, forms, ignore_progress)
    assert isinstance(again, word_pipelines.ComputedVectors)
    np.testing.assert_allclose(again.rows(rows).astype(float), cached.rows(rows).astype(float), atol=2e-3)


def test_layers_are_computed_on_the_device_of_the_run(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[torch.device] = []
    monkeypatch.setattr(word_pipelines.OriginVectors, "move", lambda self, device: devices.append(device))
    run_tiny(tagging(names, features=features_of(origin), steps=1), tmp_path / "run")
    assert devices == [CPU]
    with pytest.raises(EnsueError, match='no device "meta"'):
        run_tiny(tagging(names, features=features_of(origin), steps=1), tmp_path / "other", device="meta")


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pool_words_pools_the_vectors_of_each_word(pooling: str) -> None:
    random = np.random.default_rng(0)
    counts, pool = [2, 0, 1, 3, 0], POOLINGS[pooling]
    vectors = random.normal(size=(2, 6, 4)).astype(np.float32)
    pooled = pool_words(vectors, counts, pool)
    assert pooled.shape == (2, 5, 4)
    for word, (begin, count) in enumerate(zip([0, 2, 2, 3, 6], counts, strict=True)):
        for layer in range(2):
            expected = pool(vectors[layer, begin : begin + count]) if count else np.zeros(4)
            np.testing.assert_array_equal(pooled[layer, word], expected)


def test_numbers_beyond_float16_are_clipped() -> None:
    clipped = to_float16(np.array([1e9, -1e9, 1.0], np.float32))
    assert clipped.tolist() == [65504.0, -65504.0, 1.0]
