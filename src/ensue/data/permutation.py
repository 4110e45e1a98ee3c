"""A pseudo-random permutation of 0..n-1 in constant memory, with random access.

A Feistel network permutes the numbers of b bits, where b ≥ 2 is the smallest even number with 2^b ≥ n. A result above
n - 1 is permuted again until it is below n (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). The
permutation is not cryptographically secure.
"""

import numpy as np
from numpy.typing import NDArray

_NUM_ROUNDS = 6
_MASK = (1 << 64) - 1
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Permutation:
    """A permutation of 0..size-1, chosen by `key`. A call with `indices` returns the numbers at these indices."""

    def __init__(self, size: int, key: int) -> None:
        assert size >= 1
        self.size = size
        self._half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
        self._round_keys = list(_scramble(np.arange(_NUM_ROUNDS, dtype=np.uint64) + np.uint64(key & _MASK)))

    def __call__(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = self._network(indices.astype(np.uint64))
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
    """Return a 64-bit hash of numbers and their order."""
    result = np.zeros(1, np.uint64)
    for number in numbers:
        result = _scramble(result ^ np.array([number & _MASK], np.uint64))
    return int(result[0])


def mix_each(key: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash `mix(..., number)` of each number, where `key` is `mix(...)`."""
    return _scramble(np.uint64(key & _MASK) ^ numbers.astype(np.uint64))


def random_numbers(key: int | NDArray[np.uint64], indices: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return the 64-bit random numbers at `indices` of the SplitMix64 stream with the seed `key`.

    If `key` is an array (..., 1), the result has a row for each seed.
    """
    return _scramble(np.asarray(key & _MASK, np.uint64) + indices.astype(np.uint64) * _GAMMA)


def _scramble(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    numbers = numbers + _GAMMA
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def uniform_floats(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Convert 64-bit random numbers to floats in [0, 1)."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
