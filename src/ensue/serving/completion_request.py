"""A completion request: its fields with their defaults, and what is checked before a model is asked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, SkipValidation, create_model

from ensue.arguments import settings_of
from ensue.decode.sampling import Sampling
from ensue.serving.api import OR_NULL, Fields, Ids, Number, Request
from ensue.serving.limits import CHOICES, STOP_CHARACTERS, STOPS, TOKEN_BYTES, Limits
from ensue.serving.refusal import wrong


class StreamOptions(Fields):
    """Whether a stream ends with the numbers of tokens."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def _sampled() -> dict[str, Any]:
    """The fields of requests that `Sampling` declares."""
    found: dict[str, Any] = {}
    for name, (kind, _, option) in settings_of(Sampling).items():
        if option.served is not None:
            least, most = option.served
            bounds = Field(ge=least, le=most if most < inf else None)
            number: Any = Annotated[Number if kind is float else kind, bounds]
            or_null = number | None if option.neutral is None else Annotated[number, OR_NULL]
            found[name] = (or_null, option.neutral)
    return found


if TYPE_CHECKING:
    SampledRequest = Request
else:
    SampledRequest = create_model("SampledRequest", __base__=Request, __module__=__name__, **_sampled())


class CompletionRequest(SampledRequest):
    """POST /v1/completions."""

    prompt: SkipValidation[str | list[str] | Ids | list[Ids]] = ""
    max_tokens: Annotated[int, Field(ge=0), OR_NULL] = 16
    n: Annotated[int, Field(ge=1, le=CHOICES), OR_NULL] = 1
    best_of: Annotated[int, Field(ge=1, le=CHOICES)] | None = None
    echo: Annotated[bool, OR_NULL] = False
    stream: Annotated[bool, OR_NULL] = False
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    stop: str | Annotated[list[str], Field(max_length=STOPS, fail_fast=True)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2), OR_NULL] = 0.0
    presence_penalty: Annotated[Number, Field(ge=-2, le=2), OR_NULL] = 0.0
    logit_bias: SkipValidation[dict[str, Annotated[Number, Field(ge=-100, le=100)]] | None] = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63), OR_NULL] = Field(
        default_factory=partial(secrets.randbits, 63)
    )
    session: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """A name under which the state is kept after the answer; a request with the same name goes on from there."""
    suffix: str | None = None
    user: str | None = None

    def checked(self, limits: Limits) -> Self:
        """The request. Raises Refusal for fields that do not fit together or are out of range, and for what no server
        with these limits answers, however empty it is.
        """
        if self.num_rows < self.n:
            raise wrong("best_of", f"{self.num_rows} is less than n, {self.n}")
        if self.stream and self.num_rows > self.n:
            raise wrong("best_of", "a stream cannot choose the best; leave out best_of, or stream")
        if self.max_tokens > limits.max_tokens:
            raise wrong("max_tokens", f"at most {limits.max_tokens}")
        if self.suffix:
            raise wrong("suffix", "these models only write on; they take no suffix", "unsupported_parameter")
        if self.stream_options is not None and not self.stream:
            raise wrong("stream_options", "only with stream")
        if len(self.prompts) > (most := limits.places // self.num_rows):
            said = f"{len(self.prompts)} prompts; at most {most} in a request with so many choices"
            raise wrong("prompt", said)
        if any(not 0 < len(each) <= STOP_CHARACTERS for each in self.stops):
            raise wrong("stop", f"expected strings of 1 to {STOP_CHARACTERS} characters")
        if self.session is not None and (len(self.prompts) > 1 or self.num_rows > 1 or self.echo):
            raise wrong("session", "a session takes one prompt, one choice and no echo")
        if self.most_tokens > limits.tokens:
            raise wrong("max_tokens", f"{self.most_tokens} tokens in all; at most {limits.tokens} in a request")
        if self.most_bytes > limits.answers:
            said = f"an answer of up to {self.most_bytes:,} bytes in memory; at most {limits.answers:,}"
            raise wrong("max_tokens", f"{said}: ask for fewer tokens, choices or logprobs")
        return self

    @property
    def sampling(self) -> Sampling:
        """The options of sampling. A `top_p` of 0 is the API's other word for a temperature of 0."""
        given = {name: getattr(self, name) for name in _sampled()}
        temperature = given["temperature"] if given["top_p"] else 0.0
        return Sampling(**{name: value or None for name, value in given.items()} | {"temperature": temperature})

    @cached_property
    def prompts(self) -> Sequence[str | list[int]]:
        """The prompts, each a text or ids. Raises Refusal for another value."""
        prompt: Any = self.prompt
        kinds = set(map(type, prompt)) if isinstance(prompt, list) else set()
        if isinstance(prompt, str) or (isinstance(prompt, list) and kinds <= {int}):
            prompt, kinds = [prompt], {type(prompt)}
        if kinds not in ({str}, {list}):
            raise wrong("prompt", "expected a text, ids, or a list of texts or of lists of ids")
        if kinds == {list} and not all(set(map(type, ids)) <= {int} for ids in prompt):
            raise wrong("prompt", "expected whole numbers as ids")
        found: Sequence[str | list[int]] = prompt
        return found

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def num_rows(self) -> int:
        """The texts that are written for each prompt, of which the best `n` are returned."""
        return self.n if self.best_of is None else self.best_of

    @property
    def places(self) -> int:
        """The number of texts."""
        return len(self.prompts) * self.num_rows

    @cached_property
    def read_tokens(self) -> int:
        """No fewer than the tokens of all prompts, before anything is tokenized."""
        return sum(
            len(prompt.encode("utf-8", "replace")) if isinstance(prompt, str) else len(prompt)
            for prompt in self.prompts
        )

    @property
    def most_tokens(self) -> int:
        """No fewer than the tokens of all texts."""
        return self.read_tokens + self.places * self.max_tokens

    @property
    def most_bytes(self) -> int:
        """The memory of the answer, at most about: of its tokens, with the logprobs of each."""
        tokens = self.places * self.max_tokens + (self.read_tokens * self.num_rows if self.echo else 0)
        return TOKEN_BYTES * tokens * (1 if self.logprobs is None else 2 * (self.logprobs + 2))
