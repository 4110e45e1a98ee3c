"""The types of requests and answers: what is checked, and what the OpenAPI document is made of.

The requests of completions, embeddings and models have the fields of OpenAI's API. A field that is not here is refused,
as it is there. `session`, `undo`, `top_k` and `min_p` are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from math import inf
from random import getrandbits
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, create_model, model_validator

from ensue.arguments import settings_of
from ensue.decode.sampling import Sampling
from ensue.extensions.serving.limits import (
    CHOICES,
    GLOSSARY_CHARACTERS,
    STOP_CHARACTERS,
    STOPS,
    TERM_CHARACTERS,
    TOKEN_BYTES,
    Limits,
)
from ensue.extensions.serving.refusal import unknown, wrong
from ensue.text.utf8 import without_surrogates

Number = Annotated[float, Field(allow_inf_nan=False)]
Ids = list[int]


class OrNull:
    """Of a field: null is the default."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "null"}]}


OR_NULL = OrNull()


class Fields(BaseModel):
    """The fields of a request, or of a part of one.

    pydantic collects an error for every key and item, so that a client could keep it busy for minutes. Unknown keys
    are therefore refused before; long lists and tables (`SkipValidation`) are checked where they are used.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def known(cls, given: Any) -> Any:
        """Raises Refusal for the first key that is no field; null where `OR_NULL` allows it is the default."""
        fields = cls.model_fields
        if not isinstance(given, dict):
            return given
        for key in given:
            if key not in fields:
                raise unknown(key)
        return {key: value for key, value in given.items() if value is not None or OR_NULL not in fields[key].metadata}


class ModelRequest(Fields):
    """A request to a model."""

    model: str
    """The name of a run directory that is served."""


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
    SampledRequest = ModelRequest
else:
    SampledRequest = create_model("SampledRequest", __base__=ModelRequest, __module__=__name__, **_sampled())


SAMPLED = tuple(_sampled())


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
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63), OR_NULL] = Field(default_factory=partial(getrandbits, 63))
    session: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """A name under which the state is kept after the answer; a request with the same name goes on from there."""
    undo: Annotated[int, Field(ge=0)] = 0
    """The latest requests of the session that are undone before this one."""
    suffix: str | None = None
    user: str | None = None

    def checked(self, limits: Limits) -> Self:
        """Return the request. Raises Refusal for inconsistent fields, and for values beyond these limits."""
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
        if self.undo and self.session is None:
            raise wrong("undo", "requests of a session are undone, and there is no session")
        if self.most_tokens > limits.tokens:
            raise wrong("max_tokens", f"{self.most_tokens} tokens in all; at most {limits.tokens} in a request")
        if self.most_bytes > limits.answers:
            said = f"an answer of up to {self.most_bytes:,} bytes in memory; at most {limits.answers:,}"
            raise wrong("max_tokens", f"{said}: ask for fewer tokens, choices or logprobs")
        return self

    @cached_property
    def sampling(self) -> Sampling:
        """The options of sampling. A `top_p` of 0 is the API's other word for a temperature of 0."""
        given = {name: getattr(self, name) for name in SAMPLED}
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


class Logprobs(BaseModel):
    """The tokens of a choice, with the natural logarithms of their probabilities."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class Choice(BaseModel):
    """A text that the model wrote."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int | None = None
    total_tokens: int


class Completion(BaseModel):
    """The answer to a completion, or a piece of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: Usage | None = None


class EmbeddingRequest(ModelRequest):
    """POST /v1/embeddings."""

    input: SkipValidation[str | Annotated[list[str], Field(min_length=1)]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class Embedding(BaseModel):
    """The vector of a text: numbers, or little-endian float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    """The answer to embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class TextsRequest(ModelRequest):
    """POST /v1/score. An input is a text; or a list of texts, where the model reads several; or for a
    model of frames a list of frames, each a list of numbers, or of the samples of a sound.
    """

    inputs: SkipValidation[list[str | list[str] | list[list[float]] | list[float]]]
    option_names: ClassVar[tuple[str, ...]] = ()
    """The fields that are options of the command, for models that have them."""

    @property
    def options(self) -> dict[str, Any]:
        """The options that are set."""
        values = {name: getattr(self, name) for name in self.option_names}
        clean = {name: without_surrogates(value) if isinstance(value, str) else value for name, value in values.items()}
        return {name: value for name, value in clean.items() if value is not None and value is not False}


class PredictRequest(TextsRequest):
    """POST /v1/predict. `tagger` is the model that stands behind a cutter. The fields after it are options of `ensue
    predict`, for models that have them. A `glossary` is a list of pairs `[source, target]`.
    """

    option_names = ("n_best", "at_least", "glossary", "keep_markup")
    tagger: str | None = None
    n_best: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    at_least: Annotated[float, Field(ge=0, le=1)] | None = None
    glossary: SkipValidation[list[Annotated[list[str], Field(min_length=2, max_length=2)]] | None] = None
    keep_markup: bool | None = None

    def checked_glossary(self, most: int) -> list[tuple[str, ...]]:
        """The pairs of the glossary. Raises Refusal for another value, and for more than `most` pairs."""
        pairs: Any = self.glossary
        if not isinstance(pairs, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and set(map(type, pair)) == {str} for pair in pairs
        ):
            raise wrong("glossary", "expected a list of pairs of texts, [source, target]")
        sizes = [len(text) for pair in pairs for text in pair]
        if len(pairs) > most or max(sizes, default=0) > TERM_CHARACTERS or sum(sizes) > GLOSSARY_CHARACTERS:
            said = f"texts of {TERM_CHARACTERS:,} characters, {GLOSSARY_CHARACTERS:,} together"
            raise wrong("glossary", f"at most {most:,} pairs of {said}")
        return [tuple(map(without_surrogates, pair)) for pair in pairs]


class InspectRequest(TextsRequest):
    """POST /v1/inspect. An input may have a target behind its texts, where `score` takes one.

    `parts` says what is answered beside the title: the numbers (`view`), an HTML document (`page`), or what stands in
    it without style and script (`content`).
    """

    parts: Annotated[list[Literal["view", "page", "content"]], Field(max_length=3, fail_fast=True)] = ["view", "page"]
    at: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    token: str | None = None
    off: str | None = None
    option_names = ("at", "token", "off")


class Outputs(BaseModel):
    """The answer for each input, in order, as `ensue predict --json` and `ensue score --json` write it."""

    model: str
    outputs: list[Any]


class Inspected(BaseModel):
    """The inside of a model that reads a text."""

    title: str
    view: Any = None
    """The numbers, in a form of the task's own; null for what is no finite number.

    In the place of a large array stands its shape: `{"shape": [4000, 1024]}`."""
    page: str | None = None
    """An HTML document that needs no network."""
    content: str | None = None
    """The part that changes from page to page."""


class Inspections(BaseModel):
    """The answer for each input, in order."""

    model: str
    outputs: list[Inspected]


class Model(BaseModel):
    """A run that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    routes: list[str]
    """The routes that take this model."""
    num_texts: int
    """The texts of an input."""
    num_scored: int
    """The texts of an input of `score`: one more where a target comes behind them."""
    reads_frames: bool
    """Whether an input is a list of frames, each a list of numbers, in place of texts."""


class Models(BaseModel):
    """GET /v1/models."""

    object: Literal["list"]
    data: list[Model]


class Health(BaseModel):
    """GET /health and /ready."""

    status: Literal["ok", "ready", "loading", "draining"]
