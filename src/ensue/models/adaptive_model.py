"""A language model with a neural cache and dynamic evaluation.

The cache and the adapted weights are parts of the state, which is a value. So reading a text changes neither the model
nor other states, and earlier states remain valid.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue import types
from ensue.errors import EnsueError
from ensue.models.adaptation import Adaptation
from ensue.models.language_model import LanguageModel
from ensue.models.modules import copy_with_parameters, device_of

PADDING, UNREAD = -1, -2
"""Values in place of an id: no token, and a token that the model has not read yet."""
MAX_BLOCK_PRODUCTS = 1 << 22
"""The maximum number of dot products or probabilities in memory at a time."""
Quantity = Literal["h", "nats", "scores"]


class Cache(NamedTuple):
    """The last inputs h of the head, and the id of the token after each (`PADDING`: unused, `UNREAD`: the last h)."""

    h: Float[Tensor, "B S d"]
    ids: Int[Tensor, "B S"]

    @property
    def num_positions(self) -> int:
        """The length S."""
        return self.ids.shape[1]

    def resized(self, length: int) -> "Cache":
        """Return this cache with S = `length`; see `ensue.types.Growing`."""
        more = length - self.num_positions
        return Cache(F.pad(self.h, (0, 0, more, 0)), F.pad(self.ids, (more, 0), value=PADDING)) if more else self

    def num_unused(self) -> int:
        """Return the number of leading positions that are padding in all rows."""
        used = (self.ids != PADDING).any(0)
        return int(used.int().argmax()) if used.any() else len(used)


class AdaptedWeights(NamedTuple):
    """The weights of dynamic evaluation, and the incomplete segment after the last update."""

    weights: types.Shared
    """M vectors of all P weights, (M, P). Rows without updates share a vector."""
    start: types.State
    """The state of the layers before the segment."""
    ids: Int[Tensor, "B L"]
    """The ids of the segment so far, padded on the right with `PADDING`."""


class AdaptiveState(NamedTuple):
    """The state of the layers, the cache (None: off), and the adapted weights (None: no dynamic evaluation)."""

    inner: types.State
    cache: Cache | None
    adapted: AdaptedWeights | None


class AdaptiveModel(nn.Module):
    """A language model with a neural cache and dynamic evaluation, with the interface of `LanguageModel`.

    The cache (Grave et al. 2017) has the last N inputs h_i of the head, and the next tokens w_i:

        P(w) = (1 - λ) P_model(w) + λ Σ_{i: w_i = w} exp(θ h·h_i) / Σ_i exp(θ h·h_i)

    Dynamic evaluation (Krause et al. 2018) updates all weights W after each segment of L tokens:

        W ← W - η ∂/∂W (1/L Σ_t -log P_model(w_t)) + μ (W_trained - W)

    `read`, `nats` and `forward` update the weights; `step` does not, since it reads generated tokens. `model` has to be
    in evaluation mode, and is not changed. Raises EnsueError for a model with a limited context.
    """

    adapts = True
    context = None

    def __init__(self, model: LanguageModel, adaptation: Adaptation) -> None:
        super().__init__()
        if model.context is not None:
            raise EnsueError(
                "a neural cache and dynamic evaluation need a recurrent language model; this model has a context of "
                f"{model.context} tokens"
            )
        self.model, self.adaptation, self.vocabulary_size = model, adaptation, model.vocabulary_size
        trained = list(model.parameters()) if adaptation.dynamic else []
        with torch.inference_mode(False):
            self.trained = torch.cat([model.head.bias.detach()[:0], *(weight.detach().flatten() for weight in trained)])
        self._latest: tuple[Tensor | None, int, LanguageModel] = None, 0, model

    def init_state(self, batch_size: int, memory: types.Memory | None = None) -> AdaptiveState:
        """Return the state before the first token."""
        inner, cache, adapted = self.model.init_state(batch_size, memory), None, None
        ids = torch.full((batch_size, self.adaptation.dynamic_segment), PADDING, device=device_of(self))
        if self.adaptation.has_cache:
            cache = Cache(self.trained.new_zeros(batch_size, 0, self.model.head.d_in), ids[:, :0])
        if self.adaptation.dynamic:
            adapted = AdaptedWeights(types.Shared(self.trained[None], torch.zeros_like(ids[:, 0])), inner, ids)
        return AdaptiveState(inner, cache, adapted)

    def read(
        self, ids: Int[Tensor, "B T"], state: types.State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d"], types.State]:
        """Return the input of the head at each position, 0 at padding, and the final state."""
        return self._read_rows("h", ids, ids, state, mask)

    def nats(
        self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: types.State = None
    ) -> tuple[Float[Tensor, "B T"], types.State]:
        """Return the surprisal in nats of each target (the next token at each position), and the final state."""
        return self._read_rows("nats", ids, targets, state, None)

    def forward(
        self, ids: Int[Tensor, "B T"], state: types.State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T V"], types.State]:
        """Return the scores of next tokens (logits, or log-probabilities with a cache), and the final state."""
        return self._read_rows("scores", ids, ids, state, mask)

    @torch.no_grad()
    def step(self, ids_t: Int[Tensor, " B"], state: types.State = None) -> tuple[Float[Tensor, "B V"], types.State]:
        """Return the scores of the next token after one more token, and the state. The weights do not change."""
        inner, cache, adapted = self.init_state(len(ids_t)) if state is None else state
        results, order = [], []
        numbers = torch.zeros_like(ids_t) if adapted is None else adapted.weights.rows
        for number in numbers.unique().tolist():
            rows = (numbers == number).nonzero().squeeze(1)
            model = self._model_with_weights(adapted, number)
            h, after = model.layers.step(model.features(ids_t[rows]), types.select_rows(inner, rows))
            results.append((h, model.head(h), after))
            order.append(rows)
        h, scores, inner = types.select_rows(types.concatenate_rows(results), torch.cat(order).argsort())
        if adapted is not None:
            adapted = AdaptedWeights(adapted.weights, inner, torch.full_like(adapted.ids, PADDING))
        if cache is not None:
            columns = (tensor[:, None] for tensor in (ids_t, ids_t, h, scores))
            cache, mixed = self._mix_with_cache("scores", cache, *columns)
            scores = mixed[:, 0]
        return scores, AdaptiveState(inner, cache, adapted)

    @torch.no_grad()
    def finish_segments(self, state: types.State, next_ids: Int[Tensor, " B"]) -> types.State:
        """Return the state after an update by the incomplete segment of each row, followed by the token `next_ids`."""
        state = self.init_state(len(next_ids)) if state is None else state
        rows = zip(_split_rows(state, len(next_ids)), next_ids, strict=True)
        return types.concatenate_rows([self._adapt_to_segment(*row) for row in rows])

    def _adapt_to_segment(self, state: AdaptiveState, next_id: Tensor) -> AdaptiveState:
        adapted = state.adapted
        if adapted is None or not len(segment := _remove_padding(adapted.ids)):
            return state
        copy = _AdaptedCopy(self, adapted)
        _, nats, _ = copy.read(segment, torch.cat((segment[1:], next_id[None])), adapted.start)
        copy.update(nats)
        return state._replace(adapted=self._start_segment(copy.weights[None], state.inner, segment[:0]))

    @torch.no_grad()
    def _read_rows(
        self, quantity: Quantity, ids: Tensor, targets: Tensor, state: types.State, mask: Tensor | None
    ) -> tuple[Tensor, types.State]:
        state = self.init_state(len(ids)) if state is None else state
        lengths = [ids.shape[1]] * len(ids) if mask is None else mask.sum(1).tolist()
        rows = zip(ids[:, None], targets[:, None], _split_rows(state, len(ids)), lengths, strict=True)
        results = [self._read_row(quantity, ids[:, :n], targets[:, :n], before) for ids, targets, before, n in rows]
        states = [after for _, after in results]
        padded = [
            F.pad(values, (0, 0) * (values.dim() - 2) + (0, ids.shape[1] - values.shape[1])) for values, _ in results
        ]
        return torch.cat(padded), states[0] if len(states) == 1 else types.concatenate_rows(states)

    def _read_row(
        self, quantity: Quantity, ids: Tensor, targets: Tensor, state: AdaptiveState
    ) -> tuple[Tensor, AdaptiveState]:
        inner, cache, adapted = state
        model, start, size = self._model_with_weights(adapted, 0), 0, ids.shape[1]
        results: list[tuple[Tensor, Tensor]] = []
        if adapted is not None:
            pending, segment_start, copy = _remove_padding(adapted.ids), adapted.start, None
            while (stop := start + adapted.ids.shape[1] - len(pending)) < size:
                copy = copy or _AdaptedCopy(self, adapted)
                segment = torch.cat((pending, ids[0, start:stop]))
                h, nats, inner = copy.read(segment, torch.cat((segment[1:], ids[0, stop : stop + 1])), segment_start)
                new = slice(len(pending), None)
                values = nats[:, new] if quantity == "nats" else _compute_values(quantity, copy.model, h[:, new])
                results.append((h[:, new], values))
                copy.update(nats)
                pending, segment_start, start = segment[:0], inner, stop
            weights = adapted.weights.content if copy is None else copy.weights[None]
            adapted = self._start_segment(weights, segment_start, torch.cat((pending, ids[0, start:])))
            if copy is not None:
                model, self._latest = copy.model, (weights, 0, copy.model)
        h, inner = model.read(ids[:, start:], inner)
        results.append((h, _compute_values(quantity, model, h, targets[:, start:])))
        h, values = (torch.cat(tensors, 1).detach() for tensors in zip(*results, strict=True))
        if cache is not None:
            cache, values = self._mix_with_cache(quantity, cache, ids, targets, h, values)
        return values, AdaptiveState(types.copy_views(inner), cache, adapted)

    def _start_segment(self, weights: Tensor, segment_start: types.State, segment: Tensor) -> AdaptedWeights:
        ids = F.pad(segment, (0, self.adaptation.dynamic_segment - len(segment)), value=PADDING)
        return AdaptedWeights(types.Shared(weights, torch.zeros_like(ids[:1])), segment_start, ids[None])

    def _model_with_weights(self, adapted: AdaptedWeights | None, number: int) -> LanguageModel:
        """Return the model with weight vector number `number`. The last such model is cached."""
        if adapted is None:
            return self.model
        weights, latest = adapted.weights.content, self._latest
        if latest[0] is not weights or latest[1] != number:
            latest = self._latest = weights, number, self.build_model(weights[number])
        return latest[2]

    def build_model(self, weights: Float[Tensor, " P"]) -> LanguageModel:
        """Return a copy of the model, whose parameters are views of the vector `weights`."""
        parameters = dict(self.model.named_parameters())
        vectors = torch.split(weights, [parameter.numel() for parameter in parameters.values()])
        views = (vector.view_as(parameter) for vector, parameter in zip(vectors, parameters.values(), strict=True))
        return copy_with_parameters(self.model, dict(zip(parameters, views, strict=True))).eval()

    def _mix_with_cache(
        self, quantity: Quantity, cache: Cache, ids: Tensor, targets: Tensor, h: Tensor, values: Tensor
    ) -> tuple[Cache, Tensor]:
        """Return the cache extended by the vectors h (B, T, d), and the `quantity` of the mixture with the cache."""
        before, capacity, weight = cache.num_positions, self.adaptation.cache, self.adaptation.cache_weight
        next_id = torch.where(cache.ids[:, -1:] == UNREAD, ids[:, :1], PADDING) if before else ids[:, :0]
        following = torch.cat((cache.ids[:, :-1], next_id, ids[:, 1:], torch.full_like(ids[:, :1], UNREAD)), 1)
        vectors = torch.cat((cache.h, h), 1)
        after = Cache(*(tensor[:, -capacity:].clone() for tensor in (vectors, following)))
        if quantity == "h" or not ids.shape[1]:
            return after if ids.shape[1] else cache, values
        model_nats, mixed = values if quantity == "nats" else -values.log_softmax(-1), []
        size = max(1, MAX_BLOCK_PRODUCTS // max(capacity, self.vocabulary_size if quantity == "scores" else 1))
        for start in range(0, h.shape[1], size):
            stop = min(start + size, h.shape[1])
            first, last = max(0, before + start - capacity), before + stop - 1
            words = following[:, None, first:last]
            entries, queries = (torch.arange(*span, device=h.device) for span in ((first, last), (start, stop)))
            queries = queries[:, None] + before
            is_cached = (entries < queries) & (entries >= queries - capacity) & (words >= 0)
            products = self.adaptation.cache_flatness * h[:, start:stop] @ vectors[:, first:last].mT
            attention = products.masked_fill(~is_cached, -math.inf).softmax(-1).masked_fill(~is_cached, 0)
            surprisals = model_nats[:, start:stop]
            if quantity == "nats":
                p = (attention * (words == targets[:, start:stop, None])).sum(-1)
            else:
                words = words.clamp(min=0).expand_as(attention)
                p = torch.zeros_like(surprisals).scatter_add_(2, words, attention)
            has_any = is_cached.any(-1).view(*p.shape[:2], *[1] * (p.dim() - 2))
            log_p = torch.logaddexp(math.log1p(-weight) - surprisals, math.log(weight) + p.log())
            mixed.append(torch.where(has_any, log_p, -surprisals))
        mixture = torch.cat(mixed, 1)
        return after, -mixture if quantity == "nats" else mixture


def _compute_values(quantity: Quantity, model: LanguageModel, h: Tensor, targets: Tensor | None = None) -> Tensor:
    if quantity == "h":
        return h
    return model.head(h) if targets is None or quantity == "scores" else model.head.nats(h, targets)


def _remove_padding(ids: Tensor) -> Tensor:
    return ids[ids != PADDING]


def _split_rows(state: AdaptiveState, rows: int) -> Iterator[AdaptiveState]:
    """Yield the state of each row as a copy, so that the tensors of all rows can be freed."""
    for row in torch.arange(rows):
        yield state if rows == 1 else types.narrow(types.compacted(types.select_rows(state, row[None])))


class _AdaptedCopy:
    """A copy of a model for training. The tensors of the copy are not inference tensors, even inside inference mode."""

    def __init__(self, owner: AdaptiveModel, adapted: AdaptedWeights) -> None:
        self.adaptation, self.trained = owner.adaptation, owner.trained
        with torch.inference_mode(False):
            self.weights = adapted.weights.content[0].clone()
            self.model = owner.build_model(self.weights).requires_grad_()
        self.parameters = list(self.model.parameters())

    def read(self, segment: Tensor, following: Tensor, state: types.State) -> tuple[Tensor, Tensor, types.State]:
        """Return h (1, n, d), the nats (1, n) of the `following` ids, and the state, after a segment of n ids."""
        with torch.inference_mode(False), torch.enable_grad():
            h, after = self.model.read(segment[None].clone(), types.map_state(Tensor.clone, state))
            return h, self.model.head.nats(h, following[None].clone()), types.detach(after)

    def update(self, nats: Tensor) -> None:
        """Update the weights by the gradient of the nats of a segment, which may be incomplete."""
        adaptation = self.adaptation
        with torch.inference_mode(False), torch.enable_grad():
            loss = nats.sum() / adaptation.dynamic_segment
            gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        with torch.inference_mode(False), torch.no_grad():
            self.weights.lerp_(self.trained, adaptation.dynamic_decay)
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=adaptation.dynamic)
