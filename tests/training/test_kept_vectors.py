"""The layers of other runs as features: kept in the cache or worked out, they are the same."""

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
from training.contextual import CPU, WORDS, features, of, silent, texts_of
from training.tiny import run_tiny
from training.tiny_texts import tagging


def test_kept_is_worked_out(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_pipelines, "CHUNK_WORDS", 4)
    (one,) = features(tagging(origin, features=of(origin, layers=[-1, 0]))).origins
    texts = texts_of(WORDS)
    words = Ragged(texts.words.ids, texts.starts)
    kept = one.load_or_compute(words, texts.words.values, silent)
    (computed,) = ContextualFeatures([one]).vectors_on_demand(WORDS)
    for rows in ([0, 1, 2, 3, 4], [4, 1], [1], [2, 0]):
        found, expected = kept.rows(np.array(rows)), computed.rows(np.array(rows))
        assert found.shape == expected.shape == (len(rows), max(len(WORDS[row]) for row in rows), 2, 8)
        np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=2e-3)
    (layers,) = one.pipeline.layers_of_words([WORDS[0]])
    np.testing.assert_allclose(kept.rows(np.array([0]))[0], layers[[2, 0]].transpose(1, 0, 2), atol=2e-3)
    assert isinstance(kept, word_pipelines.CachedVectors)
    assert len(kept.file) == 1 + 3 + 3 + 40  # a text that comes again is kept once
    part = one.load_or_compute(Ragged(texts.words.ids, texts.starts[2:]), texts.words.values, silent)
    np.testing.assert_array_equal(part.rows(np.array([0, 2])), kept.rows(np.array([2, 4])))


def test_what_is_kept_is_read_again_unless_it_is_damaged(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    (one,) = features(tagging(names, features=of(origin))).origins
    texts = texts_of(WORDS)
    words, row = Ragged(texts.words.ids, texts.starts), np.array([0])
    before = one.load_or_compute(words, texts.words.values, silent).rows(row)
    (entry,) = [found for found in cache.cached_files() if "vectors" in found.kind.noun]
    stamp = entry.path.stat().st_ino
    assert np.array_equal(one.load_or_compute(words, texts.words.values, silent).rows(row), before)
    assert entry.path.stat().st_ino == stamp
    entry.path.write_bytes(entry.path.read_bytes()[:-1])
    assert np.array_equal(one.load_or_compute(words, texts.words.values, silent).rows(row), before)
    assert entry.path.stat().st_size == entry.size
    (other,) = features(tagging(names, features=of(origin, pooling="last"))).origins
    other.load_or_compute(words, texts.words.values, silent)
    assert len([found for found in cache.cached_files() if "vectors" in found.kind.noun]) == 2


def test_it_is_told_how_much_is_worked_out(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENSUE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(word_pipelines, "CHUNK_WORDS", 4)
    (one,), texts = features(tagging(names, features=of(origin))).origins, texts_of(WORDS)
    told: list[tuple[str, float]] = []
    for _ in range(2):  # the second time it is there
        one.load_or_compute(Ragged(texts.words.ids, texts.starts), texts.words.values, lambda *what: told.append(what))
    assert [what for what, _ in told] == [f"layers of {origin}"] * 2
    assert [share for _, share in told] == [6 / 46, 1.0]


def test_what_the_cache_cannot_hold_is_worked_out_again(
    origin: Path, names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, and a line that says what is faster."""
    (one,), texts = features(tagging(names, features=of(origin))).origins, texts_of(WORDS)
    words, forms, rows = Ragged(texts.words.ids, texts.starts), texts.words.values, np.array([0, 3])
    kept = one.load_or_compute(words, forms, silent)
    monkeypatch.setattr(word_pipelines, "size_limit", lambda: 1_000)
    with pytest.warns(
        Notice, match=r"the layers of .*masked for 49 words are more than the cache holds, and are computed"
    ):
        again = one.load_or_compute(words, forms, silent)
    assert isinstance(again, word_pipelines.ComputedVectors)
    np.testing.assert_allclose(again.rows(rows).astype(float), kept.rows(rows).astype(float), atol=2e-3)


def test_layers_are_worked_out_on_the_device_of_the_run(
    origin: Path, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[torch.device] = []
    monkeypatch.setattr(word_pipelines.OriginVectors, "move", lambda self, device: devices.append(device))
    run_tiny(tagging(names, features=of(origin), steps=1), tmp_path / "run")
    assert devices == [CPU]
    with pytest.raises(EnsueError, match='no device "meta"'):
        run_tiny(tagging(names, features=of(origin), steps=1), tmp_path / "other", device="meta")


@pytest.mark.parametrize("pooling", POOLINGS)
def test_words_are_pooled_one_by_one(pooling: str) -> None:
    random = np.random.default_rng(0)
    counts, pool = [2, 0, 1, 3, 0], POOLINGS[pooling]
    vectors = random.normal(size=(2, 6, 4)).astype(np.float32)
    found = pool_words(vectors, counts, pool)
    assert found.shape == (2, 5, 4)
    for word, (begin, count) in enumerate(zip([0, 2, 2, 3, 6], counts, strict=True)):
        for layer in range(2):
            expected = pool(vectors[layer, begin : begin + count]) if count else np.zeros(4)
            np.testing.assert_array_equal(found[layer, word], expected)


def test_numbers_that_are_too_large_are_the_largest() -> None:
    found = to_float16(np.array([1e9, -1e9, 1.0], np.float32))
    assert found.tolist() == [65504.0, -65504.0, 1.0]
