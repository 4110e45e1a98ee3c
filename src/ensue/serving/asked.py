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
from ensue.serving.api import CompletionRequest
from ensue.serving.limits import STOP_CHARACTERS, TOKEN_BYTES, Limits
from ensue.serving.refusal import wrong
from ensue.serving.row import Choosing
from ensue.text.utf8 import without_surrogates

DEFAULT_TOKENS = 16


@dataclass(frozen=True)
class Given:
    """A prompt: its ids without the start symbol, and its text."""

    ids: NDArray[np.int64]
    text: str


@dataclass(frozen=True)
class Asked:
    """A request whose fields are filled in; `wishes` has those that need no more words."""

    wishes: CompletionRequest
    prompts: Sequence[str | list[int]]
    n: int
    best_of: int
    max_tokens: int
    stops: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, wishes: CompletionRequest, limits: Limits) -> Asked:
        """Raises Refusal for fields that do not fit together or are out of range, and for what no server with these
        limits answers, however empty it is.
        """
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
        prompts = _prompts(wishes.prompt, limits.places // best_of)
        asked = cls(wishes, prompts, n, best_of, max_tokens, _stops(wishes.stop), _seed(wishes.seed))
        if wishes.session is not None and (len(prompts) > 1 or best_of > 1 or wishes.echo):
            raise wrong("session", "a session takes one prompt, one choice and no echo")
        if asked.most_tokens > limits.tokens:
            raise wrong("max_tokens", f"{asked.most_tokens} tokens in all; at most {limits.tokens} in a request")
        if asked.most_bytes > limits.answers:
            said = f"an answer of up to {asked.most_bytes:,} bytes in memory; at most {limits.answers:,}"
            raise wrong("max_tokens", f"{said}: ask for fewer tokens, choices or logprobs")
        return asked

    @property
    def places(self) -> int:
        """The number of texts."""
        return len(self.prompts) * self.best_of

    @property
    def read_tokens(self) -> int:
        """No fewer than the tokens of all prompts, before anything is tokenized."""
        return sum(len(prompt.encode("utf-8", "replace")) if isinstance(prompt, str) else len(prompt)
                   for prompt in self.prompts)  # fmt: skip

    @property
    def most_tokens(self) -> int:
        """No fewer than the tokens of all texts."""
        return self.read_tokens + self.places * self.max_tokens

    @property
    def most_bytes(self) -> int:
        """The memory of the answer, at most about: of its tokens, with what is looked at for each."""
        tokens = self.places * self.max_tokens + (self.read_tokens * self.best_of if self.wishes.echo else 0)
        return TOKEN_BYTES * tokens * (1 if self.wishes.logprobs is None else 2 * (self.wishes.logprobs + 2))

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
        if len(prompt) > limits.text_characters:
            raise wrong("prompt", f"more than {limits.text_characters:,} characters", "context_length_exceeded")
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


def _prompts(prompt: Any, most: int) -> Sequence[str | list[int]]:
    """Each a text or ids. Raises Refusal for another value, and for more than `most`."""
    kinds = set(map(type, prompt)) if isinstance(prompt, list) else set()
    if isinstance(prompt, str) or (isinstance(prompt, list) and kinds <= {int}):
        prompt, kinds = [prompt], {type(prompt)}
    if kinds not in ({str}, {list}):
        raise wrong("prompt", "expected a text, ids, or a list of texts or of lists of ids")
    if len(prompt) > most:
        raise wrong("prompt", f"{len(prompt)} prompts; at most {most} in a request with so many choices")
    if kinds == {list} and not all(set(map(type, ids)) <= {int} for ids in prompt):
        raise wrong("prompt", "expected whole numbers as ids")
    found: Sequence[str | list[int]] = prompt
    return found


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if any(not 0 < len(each) <= STOP_CHARACTERS for each in stops):
        raise wrong("stop", f"expected strings of 1 to {STOP_CHARACTERS} characters")
    return stops


def _seed(seed: int | None) -> int:
    return secrets.randbits(63) if seed is None else seed % (1 << 63)


def _bias(given: Any, model: Any) -> torch.Tensor | None:
    if not given:
        return None
    size = model.vocabulary_size
    if not isinstance(given, dict):
        raise wrong("logit_bias", "expected a table of ids and numbers")
    bias = np.zeros(size, np.float32)
    for name, value in given.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < size):
            raise wrong("logit_bias", f"expected ids from 0 to {size - 1}")
        if type(value) not in (int, float) or not -100 <= value <= 100:
            raise wrong("logit_bias", "expected numbers from -100 to 100")
        bias[int(name)] = value
    return torch.from_numpy(bias).to(device_of(model))
