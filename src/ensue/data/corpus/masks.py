"""Which tokens of an example are hidden, and what stands in their place. A pure function of the example's key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensue.data.permutation import random_numbers, shares

NOT_HIDDEN = -1
"""The target where nothing was hidden."""
_CHOICE, _PLACE, _TOKEN = 0, 1, 2  # what a random number of a position is for


@dataclass(frozen=True)
class Masking:
    """A share of the tokens is hidden: `share` of those that can be, but one at least (Devlin et al. 2019).

    `masked` of the hidden ones become the mask, `random` of them any token of `text_ids`, the others stay. With
    `begins_word`, whole words are hidden, in random order, as long as they do not exceed the share; one at least.
    """

    mask_id: int
    text_ids: NDArray[np.int64]
    """Ids (N,) of tokens that can be hidden, and can stand in for others."""
    can_hide: NDArray[np.bool_]
    """For each id of the vocabulary."""
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    begins_word: NDArray[np.bool_] | None = None
    """For each id of the vocabulary; None: tokens are hidden one by one."""

    def hide(self, ids: NDArray[np.int64], keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets (B, T) of the rows of `ids`, for a key each; targets elsewhere are `NOT_HIDDEN`."""
        places = np.arange(ids.shape[1])
        hidden = self._chosen(ids, _numbers(keys, places, _PLACE))
        targets = np.where(hidden, ids, NOT_HIDDEN)
        choice = _numbers(keys, places, _CHOICE)
        others = self.text_ids[(_numbers(keys, places, _TOKEN) * len(self.text_ids)).astype(np.int64)]
        inputs = np.where(hidden & (choice < self.masked), self.mask_id, ids)
        is_random = hidden & (choice >= self.masked) & (choice < self.masked + self.random)
        return np.where(is_random, others, inputs), targets

    def _chosen(self, ids: NDArray[np.int64], order: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Where something is hidden; the tokens with the lowest numbers of `order` come first."""
        possible = self.can_hide[ids]
        count = possible.sum(1, keepdims=True)
        most = np.maximum(1, np.rint(self.share * count)) * (count > 0)
        if self.begins_word is None:
            return np.asarray(_ranks(np.where(possible, order, 2.0)) < most)
        places = np.arange(ids.shape[1])
        begins = self.begins_word[ids] | ~possible
        begins[:, 1:] |= ~possible[:, :-1]
        begins[:, :1] = True
        first = np.maximum.accumulate(np.where(begins, places, 0), axis=1)
        ends = np.ones_like(begins)
        ends[:, :-1] = begins[:, 1:]
        last = np.minimum.accumulate(np.where(ends, places, ids.shape[1])[:, ::-1], axis=1)[:, ::-1]
        ranks = _ranks(np.where(possible, np.take_along_axis(order, first, 1), 2.0))
        is_first_word = np.take_along_axis(ranks, first, 1) == 0
        fits = np.take_along_axis(ranks, last, 1) < most
        return np.asarray(possible & (fits | is_first_word))


def _numbers(keys: NDArray[np.uint64], places: NDArray[np.int64], purpose: int) -> NDArray[np.float64]:
    """Random numbers (B, T) from 0 to below 1."""
    return shares(random_numbers(keys[:, None], 3 * places + purpose))


def _ranks(order: NDArray[np.float64]) -> NDArray[np.int64]:
    """The place (B, T) of each number among the sorted ones of its row; of equal ones the first comes first."""
    sorted_places = np.argsort(order, axis=1, kind="stable")
    ranks = np.empty_like(sorted_places)
    np.put_along_axis(ranks, sorted_places, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    return ranks
