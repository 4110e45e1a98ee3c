"""Tokens that may not follow: those that would complete a forbidden phrase, or an n-gram for the second time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ensue.decode.hypotheses import Phrase


class Forbidden:
    """Phrases that must not occur; those of one length are compared together."""

    def __init__(self, phrases: Sequence[Phrase], device: torch.device) -> None:
        lengths = sorted({len(phrase) for phrase in phrases})
        self.groups = [
            torch.tensor([phrase for phrase in phrases if len(phrase) == length], device=device) for length in lengths
        ]

    def block(self, scores: Float[Tensor, "R V"], history: Int[Tensor, "R t"]) -> None:
        """Gives -∞ to the tokens that would complete a phrase after `history`, in place."""
        for group in self.groups:
            before = group.shape[1] - 1
            if before <= history.shape[1]:
                ends = history[:, history.shape[1] - before :]
                rows, phrases = (ends.unsqueeze(1) == group[:, :-1]).all(2).nonzero(as_tuple=True)
                scores[rows, group[phrases, -1]] = -math.inf


def block_repeated(scores: Float[Tensor, "R V"], history: Int[Tensor, "R t"], n: int) -> None:
    """Gives -∞ to the tokens that would complete an n-gram that `history` has (Paulus et al. 2018), in place."""
    if history.shape[1] >= n:
        windows = history.unfold(1, n, 1)
        ends = history[:, history.shape[1] - n + 1 :].unsqueeze(1)
        rows, places = (windows[:, :, :-1] == ends).all(2).nonzero(as_tuple=True)
        scores[rows, windows[rows, places, -1]] = -math.inf
