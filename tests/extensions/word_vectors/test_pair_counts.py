"""Counts of pairs of words against a plain loop, in one segment and in many."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ensue.data.mapped_file import TokenFile
from ensue.errors import DataError
from ensue.extensions.word_vectors import pair_counts
from ensue.extensions.word_vectors.pair_counts import open_pair_counts, write_pair_counts

IDS = np.random.default_rng(0).integers(0, 12, 120)


def count_pairs(window: int, line_end: int | None) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    before: list[tuple[int, int]] = []
    line = 0
    for id in IDS.tolist():
        line += id == line_end
        if id >= 2:
            for distance, (other, of_line) in enumerate(reversed(before[-window:]), start=1):
                if of_line == line:
                    counts[other, id] += 1 / distance  # type: ignore[assignment]
                    counts[id, other] += 1 / distance  # type: ignore[assignment]
            before.append((id, line))
    return counts


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line_end", [1, None])
@pytest.mark.parametrize(("max_pairs", "window"), [(1 << 20, 3), (40, 3), (7, 9)])
def test_counts_are_those_of_a_plain_loop(
    max_pairs: int, window: int, line_end: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_counts, "_MAX_PAIRS", max_pairs)
    monkeypatch.setattr(pair_counts, "_MIN_SEGMENT_WORDS", 5)
    path = tmp_path / "x.pairs"
    write_pair_counts(path, TokenFile(IDS), size=12, window=window, first_word=2, line_end=line_end)
    counts = open_pair_counts(path)
    pairs = list(zip(counts["word"].tolist(), counts["context"].tolist(), strict=True))
    expected = count_pairs(window, line_end)
    assert sorted(pairs) == sorted(expected)
    np.testing.assert_allclose(counts["count"], [expected[pair] for pair in pairs], rtol=1e-6)
    assert pairs != sorted(pairs)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pairs"
    write_pair_counts(path, TokenFile(IDS), size=12, window=2, first_word=2, line_end=1)
    valid = path.read_bytes()
    for content in (valid[:-1], valid[:40] + b"\xff" + valid[41:], valid[:10], b"ensueids" + valid[8:]):
        path.write_bytes(content)
        with pytest.raises(DataError):
            open_pair_counts(path)
