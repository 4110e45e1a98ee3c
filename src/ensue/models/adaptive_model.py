"""A language model that adapts to what it reads, with a neural cache and by dynamic evaluation.

Both are parts of the state, which is a value. So a text that is read changes neither the model nor what another reading
gets, in another thread, say. To undo is to take the state from before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.errors import EnsueError
from ensue.models.adaptation import Adaptation
from ensue.models.language_model import LanguageModel
from ensue.models.modules import copied, device_of
from ensue.types import (
    Memory,
    Shared,
    State,
    compacted,
    concatenate_rows,
    detach,
    map_state,
    narrowed,
    owned,
    select_rows,
)

PADDING, NOT_YET = -1, -2
"""In place of an id: there is none, or it has not been read yet."""
BLOCK_PRODUCTS = 1 << 22
"""The most products of states, or probabilities of tokens, that are held at a time."""
Wanted = Literal["h", "nats", "scores"]


class Cache(NamedTuple):
    """The vectors h that the head read last, and the id after each: `PADDING` on the left, and at last `NOT_YET`."""

    h: Float[Tensor, "B S d"]
    ids: Int[Tensor, "B S"]

    @property
    def grows(self) -> int:
        """S, which is 0 at the beginning."""
        return self.ids.shape[1]

    def resized(self, length: int) -> Cache:
        """This state with S = `length`; see `ensue.types.Growing`."""
        more = length - self.grows
        return Cache(F.pad(self.h, (0, 0, more, 0)), F.pad(self.ids, (more, 0), value=PADDING)) if more else self

    def unused(self) -> int:
        """How many positions on the left are real in no row."""
        used = (self.ids != PADDING).any(0)
        return int(used.int().argmax()) if used.any() else len(used)


class Lessons(NamedTuple):
    """The weights that dynamic evaluation has learned, and the segment that it learns from next."""

    weights: Shared
    """All weights of a model in one vector (M, P); rows that have learned nothing yet share it."""
    begun: State
    """The state of the layers before the segment."""
    ids: Int[Tensor, "B L"]
    """The ids of the segment that were read, then `PADDING`."""


class AdaptiveState(NamedTuple):
    """The state of the layers, with what the model remembers and has learned; None for what is off."""

    inner: State
    cache: Cache | None
    lessons: Lessons | None


class AdaptiveModel(nn.Module):
    """A language model with a neural cache and dynamic evaluation, to be used in the place of the model.

    The cache (Grave et al. 2017) has the last N vectors h_i of the head's input, and the tokens w_i that followed:

        P(w) = (1 - λ) P_model(w) + λ Σ_{i: w_i = w} exp(θ h·h_i) / Σ_i exp(θ h·h_i)

    Dynamic evaluation (Krause et al. 2018) changes all weights W after each segment of L tokens that was read:

        W ← W - η ∂/∂W (1/L Σ_t -log P_model(w_t)) + μ (W_trained - W)

    It learns from what `read`, `nats` and `forward` are given, and not from what `step` reads, which a model has
    written itself. `model` is in evaluation mode and never changed. Raises EnsueError for a model that reads windows.
    """

    reads_alone = True
    context = None

    def __init__(self, model: LanguageModel, adaptation: Adaptation) -> None:
        super().__init__()
        if model.context is not None:
            said = f"this one reads {model.context} tokens at a time"
            raise EnsueError(f"a neural cache and dynamic evaluation are for models that carry a state; {said}")
        self.model, self.adaptation, self.vocabulary_size = model, adaptation, model.vocabulary_size
        learning = list(model.parameters()) if adaptation.dynamic else []
        with torch.inference_mode(False):
            self.trained = torch.cat(
                [model.head.bias.detach()[:0], *(weight.detach().flatten() for weight in learning)]
            )
        self._latest: tuple[Tensor | None, int, LanguageModel] = None, 0, model

    def init_state(self, batch_size: int, memory: Memory | None = None) -> AdaptiveState:
        """The state before the first token."""
        inner, cache, lessons = self.model.init_state(batch_size, memory), None, None
        ids = torch.full((batch_size, self.adaptation.dynamic_segment), PADDING, device=device_of(self))
        if self.adaptation.remembers:
            cache = Cache(self.trained.new_zeros(batch_size, 0, self.model.head.d_in), ids[:, :0])
        if self.adaptation.dynamic:
            lessons = Lessons(Shared(self.trained[None], torch.zeros_like(ids[:, 0])), inner, ids)
        return AdaptiveState(inner, cache, lessons)

    def read(
        self, ids: Int[Tensor, "B T"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d"], State]:
        """The input of the head at each position, zeros at padding, and the final state."""
        return self._rows("h", ids, ids, state, mask)

    def nats(
        self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State = None
    ) -> tuple[Float[Tensor, "B T"], State]:
        """The surprisal in nats of each target, the token after the id in its place; and the final state."""
        return self._rows("nats", ids, targets, state, None)

    def forward(
        self, ids: Int[Tensor, "B T"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T V"], State]:
        """The scores of each position's next token, logits or with a cache log-probabilities; and the final state."""
        return self._rows("scores", ids, ids, state, mask)

    @torch.no_grad()
    def step(self, ids_t: Int[Tensor, " B"], state: State = None) -> tuple[Float[Tensor, "B V"], State]:
        """The scores of the next token after one more in each row, and the state after it. Nothing is learned."""
        inner, cache, lessons = self.init_state(len(ids_t)) if state is None else state
        parts, order = [], []
        numbers = torch.zeros_like(ids_t) if lessons is None else lessons.weights.rows
        for number in numbers.unique().tolist():
            rows = (numbers == number).nonzero().squeeze(1)
            model = self._with_weights(lessons, number)
            h, after = model.layers.step(model.features(ids_t[rows]), select_rows(inner, rows))
            parts.append((h, model.head(h), after))
            order.append(rows)
        h, scores, inner = select_rows(concatenate_rows(parts), torch.cat(order).argsort())
        if lessons is not None:
            lessons = Lessons(lessons.weights, inner, torch.full_like(lessons.ids, PADDING))
        if cache is not None:
            cache, mixed = self._with_cache(
                "scores", cache, ids_t[:, None], ids_t[:, None], h[:, None], scores[:, None]
            )
            scores = mixed[:, 0]
        return scores, AdaptiveState(inner, cache, lessons)

    @torch.no_grad()
    def settled(self, state: State, next_ids: Int[Tensor, " B"]) -> State:
        """The state in which the beginning of a segment is learned too; `next_ids` are the tokens that come next."""
        state = self.init_state(len(next_ids)) if state is None else state
        rows = zip(_single_rows(state, len(next_ids)), next_ids, strict=True)
        return concatenate_rows([self._settled(*row) for row in rows])

    def _settled(self, state: AdaptiveState, next_id: Tensor) -> AdaptiveState:
        lessons = state.lessons
        if lessons is None or not len(segment := _real(lessons.ids)):
            return state
        pupil = _Pupil(self, lessons)
        _, nats, _ = pupil.read(segment, torch.cat((segment[1:], next_id[None])), lessons.begun)
        pupil.learn(nats)
        return state._replace(lessons=self._lessons(pupil.weights[None], state.inner, segment[:0]))

    @torch.no_grad()
    def _rows(
        self, wanted: Wanted, ids: Tensor, targets: Tensor, state: State, mask: Tensor | None
    ) -> tuple[Tensor, State]:
        """The values that are wanted of each row, which is read by itself."""
        state = self.init_state(len(ids)) if state is None else state
        lengths = [ids.shape[1]] * len(ids) if mask is None else mask.sum(1).tolist()
        of_rows = zip(ids[:, None], targets[:, None], _single_rows(state, len(ids)), lengths, strict=True)
        found = [self._row(wanted, ids[:, :n], targets[:, :n], before) for ids, targets, before, n in of_rows]
        padded = [
            F.pad(values, (0, 0) * (values.dim() - 2) + (0, ids.shape[1] - values.shape[1])) for values, _ in found
        ]
        return torch.cat(padded), found[0][1] if len(found) == 1 else concatenate_rows([after for _, after in found])

    def _row(self, wanted: Wanted, ids: Tensor, targets: Tensor, state: AdaptiveState) -> tuple[Tensor, AdaptiveState]:
        inner, cache, lessons = state
        model, start, size = self._with_weights(lessons, 0), 0, ids.shape[1]
        found: list[tuple[Tensor, Tensor]] = []
        if lessons is not None:
            pending, begun, pupil = _real(lessons.ids), lessons.begun, None
            while (stop := start + lessons.ids.shape[1] - len(pending)) < size:
                pupil = pupil or _Pupil(self, lessons)
                segment = torch.cat((pending, ids[0, start:stop]))
                h, nats, inner = pupil.read(segment, torch.cat((segment[1:], ids[0, stop : stop + 1])), begun)
                new = slice(len(pending), None)
                found.append((h[:, new], nats[:, new] if wanted == "nats" else _values(wanted, pupil.model, h[:, new])))
                pupil.learn(nats)
                pending, begun, start = segment[:0], inner, stop
            weights = lessons.weights.content if pupil is None else pupil.weights[None]
            lessons = self._lessons(weights, begun, torch.cat((pending, ids[0, start:])))
            if pupil is not None:
                model, self._latest = pupil.model, (weights, 0, pupil.model)
        h, inner = model.read(ids[:, start:], inner)
        found.append((h, _values(wanted, model, h, targets[:, start:])))
        h, values = (torch.cat(parts, 1).detach() for parts in zip(*found, strict=True))
        if cache is not None:
            cache, values = self._with_cache(wanted, cache, ids, targets, h, values)
        return values, AdaptiveState(owned(inner), cache, lessons)

    def _lessons(self, weights: Tensor, begun: State, segment: Tensor) -> Lessons:
        ids = F.pad(segment, (0, self.adaptation.dynamic_segment - len(segment)), value=PADDING)
        return Lessons(Shared(weights, torch.zeros_like(ids[:1])), begun, ids[None])

    def _with_weights(self, lessons: Lessons | None, number: int) -> LanguageModel:
        """The model with the weights of one of the rows' vectors. The latest one is kept, since steps follow steps."""
        if lessons is None:
            return self.model
        weights, latest = lessons.weights.content, self._latest
        if latest[0] is not weights or latest[1] != number:
            latest = self._latest = weights, number, self.model_of(weights[number])
        return latest[2]

    def model_of(self, weights: Float[Tensor, " P"]) -> LanguageModel:
        """A copy of the model with the weights in this vector, which are not copied."""
        parameters = dict(self.model.named_parameters())
        parts = torch.split(weights, [parameter.numel() for parameter in parameters.values()])
        views = (part.view_as(parameter) for part, parameter in zip(parts, parameters.values(), strict=True))
        return copied(self.model, dict(zip(parameters, views, strict=True))).eval()

    def _with_cache(
        self, wanted: Wanted, cache: Cache, ids: Tensor, targets: Tensor, h: Tensor, values: Tensor
    ) -> tuple[Cache, Tensor]:
        """The cache after vectors h (B, T, d), and the values, in which the cache has its share."""
        before, most, share = cache.grows, self.adaptation.cache, self.adaptation.cache_weight
        known = torch.where(cache.ids[:, -1:] == NOT_YET, ids[:, :1], PADDING) if before else ids[:, :0]
        following = torch.cat((cache.ids[:, :-1], known, ids[:, 1:], torch.full_like(ids[:, :1], NOT_YET)), 1)
        vectors = torch.cat((cache.h, h), 1)
        after = Cache(*(part[:, -most:].clone() for part in (vectors, following)))
        if wanted == "h" or not ids.shape[1]:
            return after if ids.shape[1] else cache, values
        own, mixed = values if wanted == "nats" else -values.log_softmax(-1), []
        size = max(1, BLOCK_PRODUCTS // max(most, self.vocabulary_size if wanted == "scores" else 1))
        for start in range(0, h.shape[1], size):
            stop = min(start + size, h.shape[1])
            first, last = max(0, before + start - most), before + stop - 1
            words = following[:, None, first:last]
            places, behind = (torch.arange(*span, device=h.device) for span in ((first, last), (start, stop)))
            behind = behind[:, None] + before
            can_see = (places < behind) & (places >= behind - most) & (words >= 0)
            products = self.adaptation.cache_flatness * h[:, start:stop] @ vectors[:, first:last].mT
            shares = products.masked_fill(~can_see, -math.inf).softmax(-1).masked_fill(~can_see, 0)
            if wanted == "nats":
                p = (shares * (words == targets[:, start:stop, None])).sum(-1)
            else:
                p = own.new_zeros(own[:, start:stop].shape).scatter_add_(
                    2, words.clamp(min=0).expand_as(shares), shares
                )
            has_any = can_see.any(-1).view(*p.shape[:2], *[1] * (p.dim() - 2))
            both = torch.logaddexp(math.log1p(-share) - own[:, start:stop], math.log(share) + p.log())
            mixed.append(torch.where(has_any, both, -own[:, start:stop]))
        found = torch.cat(mixed, 1)
        return after, -found if wanted == "nats" else found


def _values(wanted: Wanted, model: LanguageModel, h: Tensor, targets: Tensor | None = None) -> Tensor:
    if wanted == "h":
        return h
    return model.head(h) if targets is None or wanted == "scores" else model.head.nats(h, targets)


def _real(ids: Tensor) -> Tensor:
    """The ids (n,) of one row (1, L) that are there."""
    return ids[ids != PADDING]


def _single_rows(state: AdaptiveState, rows: int) -> Iterator[AdaptiveState]:
    """The states of the rows, each without what only others have."""
    for row in torch.arange(rows):
        yield state if rows == 1 else narrowed(compacted(select_rows(state, row[None])))


class _Pupil:
    """A copy of a model that learns. Whatever it is given may come from inference mode, in which nothing is learned."""

    def __init__(self, owner: AdaptiveModel, lessons: Lessons) -> None:
        self.adaptation, self.trained = owner.adaptation, owner.trained
        with torch.inference_mode(False):
            self.weights = lessons.weights.content[0].clone()
            self.model = owner.model_of(self.weights).requires_grad_()
        self.parameters = list(self.model.parameters())

    def read(self, segment: Tensor, following: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Of n ids and the ids that follow them: h (1, n, d), the nats (1, n) of the latter, and the state after it."""
        with torch.inference_mode(False), torch.enable_grad():
            h, after = self.model.read(segment[None].clone(), map_state(Tensor.clone, state))
            return h, self.model.head.nats(h, following[None].clone()), detach(after)

    def learn(self, nats: Tensor) -> None:
        """Changes the weights by the nats of a segment, or of its beginning."""
        own = self.adaptation
        with torch.inference_mode(False), torch.enable_grad():
            loss = nats.sum() / own.dynamic_segment
            gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        with torch.inference_mode(False), torch.no_grad():
            self.weights.lerp_(self.trained, own.dynamic_decay)
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=own.dynamic)
