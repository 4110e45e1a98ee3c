"""Beam search over any model that can step, for many inputs at once.

score = Σ ln P / length^α + coverage penalty (Wu et al. 2016). After each token the `width` best continuations of all
hypotheses of an input are kept. Those among them that end are set aside, the others go on. An input is done when it has
`n_best` ended hypotheses and none that goes on can exceed the last of them: its log-probability can only fall, so its
score stays below that log-probability / (longest length allowed)^α (Huang et al. 2017). `docs/beam-search.md` explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.decode.blocks import Forbidden, block_repeated
from ensue.decode.candidates import best_ids, best_places
from ensue.decode.hypotheses import Hypothesis, NBest, Phrase
from ensue.decode.requirements import Requirements
from ensue.decode.search import BeamSearch, Task
from ensue.errors import EnsueError
from ensue.models.modules import evaluating
from ensue.types import State, select_rows, widest

SMALLEST = 1e-38
"""The least attention of which a logarithm is taken."""


class Stepper(Protocol):
    """What can be searched: a language model, an encoder-decoder, an ensemble.

    The scores are logits or log-probabilities of the next token. For a coverage penalty it also has
    `step_with_attention`, which returns the attention (R, S) to the source as a third part.
    """

    def step(self, ids_t: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """The scores of the next token after one more token in each row, and the state after it."""


class Beams(NamedTuple):
    """What belongs to each live hypothesis, as a state: a row for each, those of an input side by side."""

    model: State
    history: Int[Tensor, "R t"]
    progress: Int[Tensor, "R C"]
    """The states of the required phrases."""
    coverage: Float[Tensor, "R S"] | None = None
    """The attention to each position of the source so far."""


class Chosen(NamedTuple):
    """The continuations of each of B inputs that were chosen, K of them, the best first."""

    parents: Int[Tensor, "B K"]
    """The slots of the hypotheses that they continue."""
    ids: Int[Tensor, "B K"]
    totals: Float[Tensor, "B K"]
    """Their log-probabilities; -∞ where there was nothing more to choose."""
    progress: Int[Tensor, "B K C"]


def beam_search(
    model: Stepper,
    state: State,
    starts: Int[Tensor, " B"],
    *,
    end_id: int | None,
    search: BeamSearch,
    prefixes: Sequence[Sequence[int]] | None = None,
    max_tokens: Sequence[int] | None = None,
    required: Sequence[Sequence[Phrase]] | None = None,
    mask: Bool[Tensor, "B S"] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of B inputs, for each input at most `n_best`, the best first.

    `state` has a row for each input, and `starts` are the ids that are read first. Each input may have a prefix, which
    its hypotheses begin with, a `max_tokens` and more `required` phrases of its own. `mask` marks the real positions of
    the source, for the coverage penalty. Without an `end_id`, hypotheses have `max_tokens` tokens.

    Complete hypotheses come first; if there are fewer than `n_best`, incomplete ones follow. The result does not depend
    on the other inputs, up to the rounding of the model. Raises EnsueError for demands that cannot be met, and for
    scores that are not finite.
    """
    size = len(starts)
    parts = prefixes or [()] * size, max_tokens or [search.max_tokens] * size, required or [()] * size
    tasks = [search.for_input(*demands) for demands in zip(*parts, strict=True)]
    assert len(tasks) == size, "demands of other inputs"
    if search.coverage_penalty and not hasattr(model, "step_with_attention"):
        raise EnsueError("the coverage penalty needs a model with attention to a source")
    if not tasks:
        return []
    with torch.inference_mode(), evaluating(model) if isinstance(model, nn.Module) else nullcontext():
        return _Run(model, search, tasks, end_id, mask).results(state, starts)


class _Run:
    """One search of B inputs, of which `inputs` are not done; each of these has S slots for live hypotheses."""

    inputs: Int[Tensor, " B"]
    totals: Float[Tensor, "B S"]
    """Their log-probabilities; -∞ in a slot that is free."""
    beams: Beams

    def __init__(
        self, model: Any, search: BeamSearch, tasks: list[Task], end_id: int | None, mask: Tensor | None
    ) -> None:
        self.model, self.search, self.tasks, self.end_id, self.mask = model, search, tasks, end_id, mask
        self.complete = [NBest(search.n_best) for _ in tasks]
        self.incomplete = [NBest(search.n_best) for _ in tasks]

    def results(self, state: State, starts: Tensor) -> list[list[Hypothesis]]:
        """The hypotheses of all inputs."""
        self._begin(state, starts)
        ids = starts
        for length in count(1):
            log_p = self._read(ids)
            if length == 1:
                for task in self.tasks:
                    task.check_ids(log_p.shape[1], self.end_id, self.search.forbidden)
            self._block(log_p, length)
            ids = self._advance(log_p, length)
            if not len(self.inputs):
                break
        pairs = zip(self.complete, self.incomplete, strict=True)
        return [(best.hypotheses + rest.hypotheses)[: self.search.n_best] for best, rest in pairs]

    def _begin(self, state: State, starts: Tensor) -> None:
        device, size = starts.device, len(self.tasks)
        self.limits = torch.tensor([task.max_tokens for task in self.tasks], device=device)
        longest = [float(task.max_tokens + (self.end_id is not None)) for task in self.tasks]
        penalties = [length**self.search.length_penalty for length in longest]
        self.penalties = torch.tensor(penalties, dtype=widest(device), device=device)
        self.prefixes = torch.full((size, max(len(task.prefix) for task in self.tasks)), -1, device=device)
        for row, task in zip(self.prefixes, self.tasks, strict=True):
            row[: len(task.prefix)] = torch.tensor(task.prefix, dtype=torch.long, device=device)
        self.forbidden = Forbidden(self.search.forbidden, device)
        self.required = Requirements([task.required for task in self.tasks], device)
        progress = starts.new_zeros(size, self.required.count)
        self.beams = Beams(state, starts.new_empty(size, 0), progress)
        self.inputs = torch.arange(size, device=device)
        self.totals = torch.zeros(size, 1, dtype=widest(device), device=device)

    def _read(self, ids: Tensor) -> Float[Tensor, "R V"]:
        """The log-probabilities of the next token after `ids` (R,)."""
        if self.search.coverage_penalty:
            scores, state, weights = self.model.step_with_attention(ids, self.beams.model)
            coverage = weights if self.beams.coverage is None else self.beams.coverage + weights
            self.beams = self.beams._replace(model=state, coverage=coverage)
        else:
            scores, state = self.model.step(ids, self.beams.model)
            self.beams = self.beams._replace(model=state)
        log_p: Tensor = scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        if not log_p.amax(-1).isfinite().all():
            raise EnsueError("the model's scores of the next token are not finite: its training has diverged")
        return log_p

    def _block(self, log_p: Tensor, length: int) -> None:
        """Gives -∞ to what may not be the token number `length`, in place."""
        slots, history = self.totals.shape[1], self.beams.history
        forced = tokens = values = torch.empty(0, dtype=torch.long, device=log_p.device)
        if length <= self.prefixes.shape[1]:
            tokens = self.prefixes[self.inputs, length - 1].repeat_interleave(slots)
            forced = (tokens >= 0).nonzero().squeeze(1)
            tokens = tokens[forced]
            values = log_p[forced, tokens]
        if self.search.no_repeat_ngram:
            block_repeated(log_p, history, self.search.no_repeat_ngram)
        self.forbidden.block(log_p, history)
        if self.end_id is not None and length <= self.search.min_tokens:
            log_p[:, self.end_id] = -math.inf
        elif self.end_id is not None and self.required.count:
            lacks = (self.beams.progress < self.required.lengths[self.inputs].repeat_interleave(slots, 0)).any(1)
            log_p[lacks, self.end_id] = -math.inf
        if len(forced):
            log_p[forced] = -math.inf
            log_p[forced, tokens] = values

    def _advance(self, log_p: Tensor, length: int) -> Tensor:
        """Chooses the best continuations, sets aside those that end, and returns the last ids of the others (R,)."""
        chosen, stuck = self._chosen(log_p)
        limits = self.limits[self.inputs].unsqueeze(1)
        alive, within = chosen.totals > -math.inf, length <= limits
        ended = alive & (length == limits if self.end_id is None else chosen.ids == self.end_id)
        has_ended = torch.zeros_like(stuck).scatter_reduce(1, chosen.parents, ended, "amax")
        self._set_aside(chosen, ended, length)
        self._set_aside_incomplete(stuck | (~within & (self.totals > -math.inf) & ~has_ended), length - 1)
        return self._go_on(chosen, alive & ~ended & within)

    def _chosen(self, log_p: Tensor) -> tuple[Chosen, Tensor]:
        """The best continuations of each input, and which slots (B, S) have none."""
        inputs, shape = self.inputs, self.totals.shape
        ids, values = self._continuations(log_p)
        ids, values = ids.view(*shape, -1), values.view(*shape, -1)
        totals = self.totals.unsqueeze(2) + values
        progress = self.required.after(inputs, self.beams.progress.view(*shape, self.required.count), ids)
        banks = progress.sum(-1).flatten(1) if self.required.count else None
        places = best_places(totals.flatten(1), self.search.width, banks)
        chosen = Chosen(
            places.div(ids.shape[2], rounding_mode="floor"),
            ids.flatten(1).gather(1, places),
            totals.flatten(1).gather(1, places),
            progress.flatten(1, 2)[torch.arange(len(inputs), device=places.device).unsqueeze(1), places],
        )
        return chosen, (totals.amax(2) == -math.inf) & (self.totals > -math.inf)

    def _continuations(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """For each row the ids (R, M) that may be chosen, in ascending order, and their log-probabilities.

        They are the `width` best ones; where phrases are required, all tokens of these, and the `width` best others.
        """
        if not self.required.count:
            ids = best_ids(log_p, self.search.width)
            return ids, log_p.gather(1, ids)
        alphabet = self.required.alphabet[self.inputs].repeat_interleave(self.totals.shape[1], 0)
        wanted = log_p.gather(1, alphabet.clamp(min=0)).masked_fill(alphabet < 0, -math.inf)
        rows, places = (alphabet >= 0).nonzero(as_tuple=True)
        log_p[rows, alphabet[rows, places]] = -math.inf
        others = best_ids(log_p, self.search.width)
        ids, order = torch.cat((others, alphabet.clamp(min=0)), 1).sort(dim=1, stable=True)
        return ids, torch.cat((log_p.gather(1, others), wanted), 1).gather(1, order)

    def _set_aside(self, chosen: Chosen, ended: Tensor, length: int) -> None:
        """Keeps the hypotheses that have ended, if they are among the best of their inputs."""
        for place, slot in ended.nonzero().tolist():
            number, row = int(self.inputs[place]), place * self.totals.shape[1] + int(chosen.parents[place, slot])
            lacks = self.required.lacked(number, chosen.progress[place, slot])
            best = (self.incomplete if lacks else self.complete)[number]
            total = float(chosen.totals[place, slot])
            ids = (*self.beams.history[row].tolist(), int(chosen.ids[place, slot]))
            score = self._score(total, length, number, row)
            best.add(Hypothesis(ids[: length - (self.end_id is not None)], score, total, not lacks, lacks))

    def _set_aside_incomplete(self, which: Tensor, length: int) -> None:
        """Keeps those hypotheses (B, S) of `length` tokens that were cut, or that nothing can follow."""
        for place, slot in which.nonzero().tolist():
            number, row = int(self.inputs[place]), place * self.totals.shape[1] + slot
            total = float(self.totals[place, slot])
            lacks = self.required.lacked(number, self.beams.progress[row])
            ids = tuple(self.beams.history[row].tolist())
            score = self._score(total, max(length, 1), number, row)
            self.incomplete[number].add(Hypothesis(ids, score, total, False, lacks))

    def _score(self, total: float, length: int, number: int, row: int) -> float:
        """The score of a hypothesis of an input that comes from a row."""
        score: float = total / float(length) ** self.search.length_penalty
        if self.beams.coverage is None:
            return score
        attended = self.beams.coverage[row] if self.mask is None else self.beams.coverage[row][self.mask[number]]
        return score + self.search.coverage_penalty * float(attended.double().clamp(SMALLEST, 1).log().sum())

    def _go_on(self, chosen: Chosen, live: Tensor) -> Tensor:
        """Drops inputs that are done and slots that are free; returns the ids that the others have read last."""
        slots, totals = self.totals.shape[1], chosen.totals.masked_fill(~live, -math.inf)
        bounds = (totals.amax(1) / self.penalties[self.inputs]).tolist()
        best = [self.complete[number].last_score for number in self.inputs.tolist()]
        stays = [place for place, (bound, score) in enumerate(zip(bounds, best, strict=True)) if bound > score]
        kept = torch.tensor(stays, dtype=torch.long, device=live.device)
        order = (~live[kept]).byte().sort(dim=1, stable=True).indices
        order = order[:, : int(live[kept].sum(1).max()) if stays else 0]
        parents, ids, self.totals = (part[kept].gather(1, order) for part in (chosen.parents, chosen.ids, totals))
        self.inputs = self.inputs[kept]
        self.beams = select_rows(self.beams, (kept.unsqueeze(1) * slots + parents).flatten())
        self.beams = self.beams._replace(
            history=torch.cat((self.beams.history, ids.view(-1, 1)), 1),
            progress=chosen.progress[kept.unsqueeze(1), order].flatten(0, 1),
        )
        return ids.flatten()
