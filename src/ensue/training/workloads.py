"""Small training steps that stand for what recipes train. A machine's profile measures them.

A step is a whole step of a run, from ids to updated weights, with sizes at which it takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.models.encoders import build_encoder
from ensue.models.ngram_bag import NgramBag
from ensue.models.specification import ONE_WAY, Directions, EncoderSpecification, LSTMEncoder, TransformerEncoder
from ensue.nn import SoftmaxHead
from ensue.processor import Precision
from ensue.recipe import Recipe
from ensue.training.device import autocast
from ensue.training.optimizer import AdamW

Workload = Literal["narrow", "wide", "words", "attention", "reader", "bag"]
WORKLOADS: tuple[Workload, ...] = get_args(Workload)
WIDE = 384
"""From this `d_model` on, a language model counts as `wide` (512) and not as `narrow` (256)."""
MANY_WORDS = 5_000
"""From this vocabulary size on, a language model counts as `words`, since the softmax takes most of its step."""
CPU = torch.device("cpu")


def nearest_workload(recipe: Recipe, vocabulary_size: int) -> Workload:
    """The workload that stands for a recipe; `vocabulary_size` is that of a softmax over tokens, or 0."""
    encoder = recipe.layers
    if encoder is None or encoder.kind == "none":
        return "bag"
    if encoder.kind == "transformer":
        return "attention"
    if not vocabulary_size:
        return "reader"
    if vocabulary_size >= MANY_WORDS:
        return "words"
    return "wide" if encoder.d_model >= WIDE else "narrow"


def training_step(workload: Workload) -> Callable[[Precision], None]:
    """A function that makes a training step of this workload, with the same model and batch in each call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, loss = MAKERS[workload]()
    optimizer = AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(precision: Precision) -> None:
        with autocast(precision, CPU):
            total = loss()
        total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


Made = tuple[nn.Module, Callable[[], Tensor]]


def _encoder(
    specification: EncoderSpecification, *, d_in: int, rows: int, length: int, symbols: int,
    shortest: int | None = None, directions: Directions = ONE_WAY,
) -> Made:  # fmt: skip
    """A model of embeddings, layers and a softmax, with its batch. With `shortest`, rows have lengths from that on."""
    features, layers = nn.Embedding(symbols, d_in), build_encoder(specification, d_in=d_in, directions=directions)
    head = SoftmaxHead(layers.d_out, symbols)
    ids = torch.randint(symbols, (rows, length + 1))
    mask = None
    if shortest is not None:
        mask = torch.arange(length) < torch.linspace(shortest, length, rows).round().unsqueeze(1)

    def loss() -> Tensor:
        h, _ = layers(features(ids[:, :-1]), mask=mask)
        return head.total_nats(h, ids[:, 1:]) / ids.numel()

    return nn.ModuleList([features, layers, head]), loss


def _lstm(d: int, *, d_in: int, rows: int, length: int, symbols: int) -> Made:
    return _encoder(LSTMEncoder(kind="lstm", d_model=d), d_in=d_in, rows=rows, length=length, symbols=symbols)


def _attention() -> Made:
    specification = TransformerEncoder(kind="transformer", d_model=192, context=64, positions="learned")
    return _encoder(specification, d_in=192, rows=8, length=64, symbols=512)


def _reader() -> Made:
    return _encoder(
        LSTMEncoder(kind="lstm", d_model=128), d_in=128, rows=32, length=30, symbols=32, shortest=10,
        directions=Directions(),
    )  # fmt: skip


def _bag() -> Made:
    bag = NgramBag(2, longest=3, buckets=1 << 16)
    words, labels = torch.randint(1, 10_000, (32, 100)), torch.randint(2, (32,))
    return bag, lambda: F.cross_entropy(bag(words), labels)


MAKERS: dict[Workload, Callable[[], Made]] = {
    "narrow": lambda: _lstm(256, d_in=64, rows=32, length=32, symbols=64),
    "wide": lambda: _lstm(512, d_in=512, rows=32, length=8, symbols=64),
    "words": lambda: _lstm(200, d_in=200, rows=20, length=10, symbols=10_000),
    "attention": _attention,
    "reader": _reader,
    "bag": _bag,
}
