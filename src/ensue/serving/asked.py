"""What a completion request asks for, checked against the model: prompts as ids, numbers of choices, ways to choose."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.models.modules import device_of
from ensue.serving.api import MOST_CHOICES, CompletionRequest
from ensue.serving.limits import Limits
from ensue.serving.refusal import Refusal
from ensue.serving.row import Choosing
from ensue.text.utf8 import without_surrogates

DEFAULT_TOKENS = 16
MOST_STOPS = 4
MOST_STOP_CHARACTERS = 1024


def wrong(param: str, message: str, code: str = "invalid_value") -> Refusal:
    """A refusal because of one field."""
    return Refusal(400, f"{param}: {message}", param=param, code=code)


@dataclass(frozen=True)
class Given:
    """A prompt: its ids without the start symbol, and its text."""

    ids: NDArray[np.int64]
    text: str


@dataclass(frozen=True)
class Asked:
    """A request whose fields are filled in; `wishes` has those that need no more words."""

    wishes: CompletionRequest
    n: int
    best_of: int
    max_tokens: int
    stops: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, wishes: CompletionRequest, limits: Limits) -> Asked:
        """Raises Refusal for fields that do not fit together or are out of range."""
        n = wishes.n or 1
        best_of = n if wishes.best_of is None else wishes.best_of
        max_tokens = DEFAULT_TOKENS if wishes.max_tokens is None else wishes.max_tokens
        if best_of < n:
            raise wrong("best_of", f"{best_of} is less than n, {n}")
        if wishes.stream and best_of > n:
            raise wrong("best_of", "a stream cannot choose the best; leave out best_of, or stream")
        if max_tokens > limits.max_tokens:
            raise wrong("max_tokens", f"at most {limits.max_tokens}")
        if wishes.suffix:
            raise wrong("suffix", "these models only write on; they take no suffix", "unsupported_parameter")
        if wishes.stream_options is not None and not wishes.stream:
            raise wrong("stream_options", "only with stream")
        asked = cls(wishes, n, best_of, max_tokens, _stops(wishes.stop), _seed(wishes.seed))
        if wishes.session is not None and (len(asked.prompts) > 1 or best_of > 1 or wishes.echo):
            raise wrong("session", "a session takes one prompt, one choice and no echo")
        return asked

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """The prompts, each a text or ids."""
        prompt: Any = self.wishes.prompt
        is_one = isinstance(prompt, str) or not prompt or isinstance(prompt[0], int)
        return [prompt] if is_one else prompt

    @property
    def places(self) -> int:
        """The number of texts."""
        return len(self.prompts) * self.best_of

    @property
    def most_tokens(self) -> int:
        """No fewer than the tokens of all texts, before anything is tokenized."""
        read = sum(len(prompt.encode("utf-8", "replace")) if isinstance(prompt, str) else len(prompt)
                   for prompt in self.prompts)  # fmt: skip
        return read + self.places * self.max_tokens

    def check(self, limits: Limits) -> None:
        """Raises Refusal for what no server with these limits answers, however empty it is."""
        if self.places > min(limits.places, MOST_CHOICES * MOST_CHOICES):
            raise wrong("prompt", f"{self.places} texts; at most {limits.places} in a request")
        if self.most_tokens > limits.tokens:
            raise wrong("max_tokens", f"{self.most_tokens} tokens in all; at most {limits.tokens} in a request")

    def choosing(self, model: Any) -> Choosing:
        """How tokens are chosen."""
        wishes = self.wishes
        return Choosing(
            temperature=1.0 if wishes.temperature is None else wishes.temperature,
            top_p=1.0 if wishes.top_p is None else wishes.top_p,
            top_k=wishes.top_k,
            min_p=wishes.min_p,
            frequency_penalty=wishes.frequency_penalty or 0.0,
            presence_penalty=wishes.presence_penalty or 0.0,
            bias=_bias(wishes.logit_bias, model),
        )


def encoded(prompt: str | list[int], tokenizer: Any, limits: Limits, context: int | None) -> Given:
    """A prompt as ids. Raises Refusal for ids that are none, and for more tokens than are read."""
    if isinstance(prompt, str):
        text = without_surrogates(prompt)
        ids = tokenizer.encode(text).astype(np.int64)
    else:
        if any(not 0 <= id < tokenizer.vocabulary_size for id in prompt):
            raise wrong("prompt", f"an id is not from 0 to {tokenizer.vocabulary_size - 1}")
        ids, text = np.array(prompt, np.int64), tokenizer.decode(prompt)
    most = limits.prompt_tokens if context is None else min(context, limits.prompt_tokens)
    if len(ids) > most:
        raise wrong("prompt", f"{len(ids)} tokens; this model reads at most {most}", "context_length_exceeded")
    return Given(ids, text)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MOST_STOPS:
        raise wrong("stop", f"at most {MOST_STOPS} strings")
    if any(not 0 < len(each) <= MOST_STOP_CHARACTERS for each in stops):
        raise wrong("stop", f"expected strings of 1 to {MOST_STOP_CHARACTERS} characters")
    return stops


def _seed(seed: int | None) -> int:
    return secrets.randbits(63) if seed is None else seed % (1 << 63)


def _bias(given: dict[str, float] | None, model: Any) -> torch.Tensor | None:
    if not given:
        return None
    bias = torch.zeros(model.vocabulary_size)
    for name, value in given.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(bias)):
            raise wrong("logit_bias", f"expected ids from 0 to {len(bias) - 1}")
        bias[int(name)] = value
    return bias.to(device_of(model))
