"""Compare the scores of an export with those of its run."""

import pytest


def assert_same_scores(lines: list[str], expected: list[str]) -> None:
    for ours, theirs in zip(expected, lines, strict=True):
        nats, symbol = ours.split("\t", 1)
        assert theirs.split("\t", 1)[1] == symbol
        assert float(theirs.split("\t")[0]) == pytest.approx(float(nats), abs=2e-4)
