"""From the table `[head]` to heads of tags and to poolings, whatever features they read."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ensue.models.feature_specification import PathHeadSpecification, PoolingHeadSpecification
from ensue.models.tag_heads import CRFTagHead, SoftmaxTagHead, TagHead, ViterbiTagHead
from ensue.nn import (
    AttentionPooling,
    FirstPooling,
    LastPooling,
    LegalTags,
    MaxPooling,
    MeanPooling,
    Pooling,
    Poolings,
)
from ensue.text.labels import Labels

POOLINGS: dict[str, Callable[[int, bool], Pooling]] = {
    "first": lambda d_in, _: FirstPooling(d_in),
    "last": lambda d_in, both_ways: LastPooling(d_in, bidirectional=both_ways),
    "mean": lambda d_in, _: MeanPooling(d_in),
    "max": lambda d_in, _: MaxPooling(d_in),
    "attention": lambda d_in, _: AttentionPooling(d_in),
}


def build_tag_head(specification: PathHeadSpecification, d_in: int, labels: Labels) -> TagHead:
    """The head of a tagger that reads `d_in` features."""
    tables = labels.legal() if specification.legal else None
    legal = None if tables is None else LegalTags(*map(torch.from_numpy, tables))
    match specification.kind:
        case "crf":
            return CRFTagHead(d_in, len(labels), legal=legal)
        case "viterbi":
            return ViterbiTagHead(
                d_in,
                len(labels),
                legal=legal,
                weight=specification.bigram_weight,
                label_smoothing=specification.label_smoothing,
            )
    return SoftmaxTagHead(d_in, len(labels), label_smoothing=specification.label_smoothing)


def build_poolings(head: PoolingHeadSpecification, d_in: int, *, both_ways: bool, is_causal: bool) -> Poolings | None:
    """The poolings of `d_in` features side by side; None for none. `both_ways`: a half of the features is of one
    direction each.

    Raises ValueError for a pooling that these layers cannot have.
    """
    if "first" in head.pooling and is_causal:
        raise ValueError('head.pooling = "first" is for layers that read in both directions; expected "last"')
    return Poolings([POOLINGS[kind](d_in, both_ways) for kind in head.pooling]) if head.pooling else None
