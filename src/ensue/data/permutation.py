"""A pseudo-random order of 0..n-1 that needs no memory: any place in it can be asked for by itself.

A Feistel network permutes the numbers of the next even count of bits; a number that falls outside n walks on through
the network until it falls inside (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). Not for secrets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6
_MASK = (1 << 64) - 1
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Permutation:
    """The `key`-th order of 0..size-1: `Permutation(size, key)(places)` gives the numbers at these places."""

    def __init__(self, size: int, key: int) -> None:
        assert size >= 1
        self.size = size
        self._half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
        self._round_keys = list(_scramble(np.arange(_ROUNDS, dtype=np.uint64) + np.uint64(key & _MASK)))

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = self._network(places.astype(np.uint64))
        while (outside := numbers >= self.size).any():
            numbers[outside] = self._network(numbers[outside])
        return numbers.astype(np.int64)

    def _network(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        low_bits = np.uint64((1 << int(self._half)) - 1)
        left, right = numbers >> self._half, numbers & low_bits
        for key in self._round_keys:
            left, right = right, left ^ (_scramble(right + key) & low_bits)
        return (left << self._half) | right


def mix(*numbers: int) -> int:
    """A 64-bit number that depends on all bits of `numbers` and on their order."""
    mixed = np.zeros(1, np.uint64)
    for number in numbers:
        mixed = _scramble(mixed ^ np.array([number & _MASK], np.uint64))
    return int(mixed[0])


def mixed(key: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """`mix(..., number)` for each of the `numbers`, if `key` is `mix(...)`."""
    return _scramble(np.uint64(key & _MASK) ^ numbers.astype(np.uint64))


def random_numbers(key: int | NDArray[np.uint64], places: NDArray[np.integer]) -> NDArray[np.uint64]:
    """The numbers of 64 bits at these `places`, from 0, in the stream `key`: those of SplitMix64. With an array of keys
    (..., 1) there is a row of numbers for each.
    """
    return _scramble(np.asarray(key & _MASK, np.uint64) + places.astype(np.uint64) * _GAMMA)


def _scramble(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea & Flood 2014)."""
    numbers = numbers + _GAMMA
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def shares(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random numbers of 64 bits as numbers from 0 to below 1."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
