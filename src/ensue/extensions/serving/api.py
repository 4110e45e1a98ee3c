"""The request and response schemas of the API, from which the OpenAPI document is generated.

Completions, embeddings and models have the fields of OpenAI's API, and reject unknown fields like OpenAI. The fields
`session`, `undo`, `top_k` and `min_p` are extensions of OpenAI's API.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from math import inf
from random import getrandbits
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError, create_model, model_validator

from ensue.decode.sampling import Sampling
from ensue.errors import numeric_settings
from ensue.extensions.serving.limits import (
    BYTES_PER_TOKEN,
    MAX_CHOICES,
    MAX_GLOSSARY_CHARACTERS,
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
    MAX_TERM_CHARACTERS,
    Limits,
)
from ensue.text.tokenizer import replace_surrogates

Number = Annotated[float, Field(allow_inf_nan=False)]
Ids = list[int]


class OrNull:
    """A marker of fields in which null stands for the default."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "null"}]}


OR_NULL = OrNull()


class RequestFields(BaseModel):
    """A strict JSON object in a request.

    pydantic would collect an error for each key and item, which can take minutes for a malicious body. Therefore,
    unknown keys are rejected before validation, and long lists and objects (`SkipValidation`) are checked elsewhere.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def reject_unknown_fields(cls, body: Any) -> Any:
        """Raise APIError for the first unknown key, and drop nulls of fields with `OR_NULL`."""
        fields = cls.model_fields
        if not isinstance(body, dict):
            return body
        for key in body:
            if key not in fields:
                message = f"Unrecognized request argument supplied: {key[:64]}"  # as OpenAI's API answers
                raise APIError(400, message, param=key[:64], code="unknown_parameter")
        return {key: value for key, value in body.items() if value is not None or OR_NULL not in fields[key].metadata}


class ModelRequest(RequestFields):
    """A request that names a model."""

    model: str
    """The id of a served model: the name of its run directory."""


class StreamOptions(RequestFields):
    """The options of a stream. With `include_usage`, its last event has the token counts."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


def _sampling_fields() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, (kind, _, option) in numeric_settings(Sampling).items():
        if option.in_api is not None:
            minimum, maximum = option.in_api
            bounds = Field(ge=minimum, le=maximum if maximum < inf else None)
            number: Any = Annotated[Number if kind is float else kind, bounds]
            nullable = number | None if option.no_effect_value is None else Annotated[number, OR_NULL]
            fields[name] = (nullable, option.no_effect_value)
    return fields


if TYPE_CHECKING:
    SampledRequest = ModelRequest
else:
    SampledRequest = create_model("SampledRequest", __base__=ModelRequest, __module__=__name__, **_sampling_fields())

SAMPLING_FIELDS = tuple(_sampling_fields())


class CompletionRequest(SampledRequest):
    """POST /v1/completions."""

    prompt: SkipValidation[str | list[str] | Ids | list[Ids]] = ""
    max_tokens: Annotated[int, Field(ge=0), OR_NULL] = 16
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), OR_NULL] = 1
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    echo: Annotated[bool, OR_NULL] = False
    stream: Annotated[bool, OR_NULL] = False
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2), OR_NULL] = 0.0
    presence_penalty: Annotated[Number, Field(ge=-2, le=2), OR_NULL] = 0.0
    logit_bias: SkipValidation[dict[str, Annotated[Number, Field(ge=-100, le=100)]] | None] = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63), OR_NULL] = Field(default_factory=partial(getrandbits, 63))
    session: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """The name under which the state is stored after the response, and from which the next request continues."""
    undo: Annotated[int, Field(ge=0)] = 0
    """The number of latest requests of the session to undo before this request."""
    suffix: str | None = None
    user: str | None = None

    def check(self, limits: Limits) -> Self:
        """Return the request. Raises APIError for inconsistent fields, and for values above the limits."""
        if self.num_rows < self.n:
            raise reject("best_of", f"{self.num_rows} is less than n, {self.n}")
        if self.stream and self.num_rows > self.n:
            raise reject("best_of", f"a stream needs best_of equal to n, {self.n}; found {self.num_rows}")
        if self.max_tokens > limits.max_tokens:
            raise reject("max_tokens", f"at most {limits.max_tokens}")
        if self.suffix:
            raise reject("suffix", "unsupported; these models only continue a prompt", "unsupported_parameter")
        if self.stream_options is not None and not self.stream:
            raise reject("stream_options", "needs stream")
        if len(self.prompts) > (maximum := limits.places // self.num_rows):
            raise reject("prompt", f"{len(self.prompts)} prompts; at most {maximum} with {self.num_rows} choices each")
        if any(not 0 < len(stop) <= MAX_STOP_CHARACTERS for stop in self.stops):
            raise reject("stop", f"expected strings of 1 to {MAX_STOP_CHARACTERS} characters")
        if self.session is not None and (len(self.prompts) > 1 or self.num_rows > 1 or self.echo):
            raise reject("session", "a session takes one prompt, one choice and no echo")
        if self.undo and self.session is None:
            raise reject("undo", "undo needs a session")
        if self.max_total_tokens > limits.tokens:
            raise reject("max_tokens", f"{self.max_total_tokens} tokens in all; at most {limits.tokens} in a request")
        if self.max_answer_bytes > limits.answers:
            size = f"a response of up to {self.max_answer_bytes:,} bytes in memory; at most {limits.answers:,}"
            raise reject("max_tokens", f"{size}: ask for fewer tokens, choices or logprobs")
        return self

    @cached_property
    def sampling(self) -> Sampling:
        """The options of sampling; in the API a `top_p` of 0 means greedy decoding."""
        options = {name: getattr(self, name) for name in SAMPLING_FIELDS}
        temperature = options["temperature"] if options["top_p"] else 0.0
        return Sampling(**{name: value or None for name, value in options.items()} | {"temperature": temperature})

    @cached_property
    def prompts(self) -> Sequence[str | list[int]]:
        """The prompts, each a text or a list of ids. Raises APIError for another value."""
        prompt: Any = self.prompt
        kinds = set(map(type, prompt)) if isinstance(prompt, list) else set()
        if isinstance(prompt, str) or (isinstance(prompt, list) and kinds <= {int}):
            prompt, kinds = [prompt], {type(prompt)}
        if kinds not in ({str}, {list}):
            raise reject("prompt", "expected a text, ids, or a list of texts or of lists of ids")
        if kinds == {list} and not all(set(map(type, ids)) <= {int} for ids in prompt):
            raise reject("prompt", "expected whole numbers as ids")
        return prompt

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def num_rows(self) -> int:
        """The number of completions sampled for each prompt. The response has the best `n` completions."""
        return self.n if self.best_of is None else self.best_of

    @property
    def places(self) -> int:
        """The number of texts to generate; `Limits.places` bounds their sum over requests."""
        return len(self.prompts) * self.num_rows

    @cached_property
    def max_prompt_tokens(self) -> int:
        """An upper bound on the tokens of all prompts before tokenization: the number of bytes or ids."""
        return sum(
            len(prompt.encode("utf-8", "replace")) if isinstance(prompt, str) else len(prompt)
            for prompt in self.prompts
        )

    @property
    def max_total_tokens(self) -> int:
        """An upper bound on the tokens of all prompts and completions."""
        return self.max_prompt_tokens + self.places * self.max_tokens

    @property
    def max_answer_bytes(self) -> int:
        """An upper estimate of the memory for the response: the tokens with their logprobs, in bytes."""
        tokens = self.places * self.max_tokens + (self.max_prompt_tokens * self.num_rows if self.echo else 0)
        return BYTES_PER_TOKEN * tokens * (1 if self.logprobs is None else 2 * (self.logprobs + 2))


class Logprobs(BaseModel):
    """The tokens of a choice with their log-probabilities (natural logarithm)."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class Choice(BaseModel):
    """A completion of a prompt."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int | None = None
    total_tokens: int


class Completion(BaseModel):
    """The response of POST /v1/completions, or one event of its stream."""

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
    """The vector of a text as numbers, or as little-endian float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(BaseModel):
    """The response of POST /v1/embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class TextsRequest(ModelRequest):
    """POST /v1/score.

    An input is a text. For a model of several texts, it is a list of texts; for a model of frames, it is a list of
    frames (lists of numbers) or a list of audio samples.
    """

    inputs: SkipValidation[list[str | list[str] | list[list[float]] | list[float]]]
    option_names: ClassVar[tuple[str, ...]] = ()
    """The fields that are options of the command of the route. Models without such an option reject the field."""

    @property
    def options(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.option_names}
        clean = {name: replace_surrogates(value) if isinstance(value, str) else value for name, value in values.items()}
        return {name: value for name, value in clean.items() if value is not None and value is not False}


class PredictRequest(TextsRequest):
    """POST /v1/predict.

    If `model` is a sentence splitter, `tagger` is the id of a model that labels its sentences. The other fields are
    options of `ensue predict`. A `glossary` is a list of pairs `[source, target]`.
    """

    option_names = ("n_best", "at_least", "glossary", "keep_markup")
    tagger: str | None = None
    n_best: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    at_least: Annotated[float, Field(ge=0, le=1)] | None = None
    glossary: SkipValidation[list[Annotated[list[str], Field(min_length=2, max_length=2)]] | None] = None
    keep_markup: bool | None = None

    def checked_glossary(self, max_terms: int) -> list[tuple[str, ...]]:
        """Return the pairs of the glossary. Raises APIError for another value, and for more than `max_terms` pairs."""
        pairs: Any = self.glossary
        if not isinstance(pairs, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and set(map(type, pair)) == {str} for pair in pairs
        ):
            raise reject("glossary", "expected a list of pairs of texts, [source, target]")
        lengths = [len(text) for pair in pairs for text in pair]
        sizes = len(pairs), max(lengths, default=0), sum(lengths)
        bounds = max_terms, MAX_TERM_CHARACTERS, MAX_GLOSSARY_CHARACTERS
        if any(size > bound for size, bound in zip(sizes, bounds, strict=True)):
            raise reject("glossary", "at most {:,} pairs, {:,} characters a text, {:,} in all".format(*bounds))
        return [tuple(map(replace_surrogates, pair)) for pair in pairs]


class InspectRequest(TextsRequest):
    """POST /v1/inspect. If the route `score` of the model takes a target, an input may have the target after its texts.

    `parts` selects the fields of the response besides the title: the numbers (`view`), an HTML document (`page`), and
    the body of this document without style and script (`content`).
    """

    parts: Annotated[list[Literal["view", "page", "content"]], Field(max_length=3, fail_fast=True)] = ["view", "page"]
    at: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    token: str | None = None
    off: str | None = None
    option_names = ("at", "token", "off")


class Outputs(BaseModel):
    """One output per input, in order, equal to the output of `ensue predict --json` or `ensue score --json`."""

    model: str
    outputs: list[Any]


class Inspected(BaseModel):
    """The inspection of a model with one input."""

    title: str
    view: Any = None
    """The numbers, in a form that depends on the task. A number that is not finite is null, and a large array is
    replaced by its shape, such as `{"shape": [4000, 1024]}`."""
    page: str | None = None
    """A self-contained HTML document."""
    content: str | None = None
    """The body of the document, without style and script."""


class Inspections(BaseModel):
    """One inspection per input, in order."""

    model: str
    outputs: list[Inspected]


class Model(BaseModel):
    """A served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: str
    routes: list[str]
    """The routes that accept this model."""
    num_texts: int
    """The number of texts of an input."""
    num_scored: int
    """The number of texts of an input of `score`, including a target."""
    reads_frames: bool
    """Whether an input is a list of frames (lists of numbers) instead of texts."""


class Models(BaseModel):
    """GET /v1/models."""

    object: Literal["list"]
    data: list[Model]


class Health(BaseModel):
    """GET /health and /ready."""

    status: Literal["ok", "ready", "loading", "draining"]


ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Error(BaseModel):
    """The error of a request."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of each error response."""

    error: Error


class APIError(Exception):
    """An exception that becomes an error response. Its message has no details of the machine, such as paths."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def body(self) -> ErrorBody:
        """Return the body of the response, with question marks for lone surrogates."""
        kind = ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message, param = (text and text.encode("utf-8", "replace").decode() for text in (self.message, self.param))
        return ErrorBody(error=Error(message=message or "", type=kind, param=param, code=self.code))


def retry_later(status: int, message: str, code: str, seconds: int = 1) -> APIError:
    """Return the error for a request that may succeed after some seconds."""
    return APIError(status, message, code=code, headers={"Retry-After": str(seconds)})


def reject(param: str, message: str, code: str = "invalid_value") -> APIError:
    """Return the error (400) for an invalid value of the field `param`."""
    return APIError(400, f"{param}: {message}", param=param, code=code)


def internal_error() -> APIError:
    """Return the error for a bug, whose traceback is in the log."""
    return APIError(500, "internal error", code="internal_error", headers={"x-should-retry": "false"})


def from_validation_error(error: ValidationError) -> APIError:
    """Return the error for the first invalid field."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = errors[0]
    param = str(first["loc"][0])[:64] if first["loc"] else None
    if first["type"] == "missing":
        return APIError(400, f"{param} is missing", param=param, code="missing_parameter")
    messages = [str(other["msg"]) for other in errors if other["loc"][:1] == first["loc"][:1]]
    message = "; or ".join(dict.fromkeys(messages))
    return APIError(400, f"{param or 'the request'}: {message}", param=param, code="invalid_value")
