"""The types of requests and answers: what is checked, and what the OpenAPI document is made of.

The requests of completions, embeddings and models have the fields of OpenAI's API. A field that is not here is refused,
as it is there. `session`, `top_k` and `min_p` are ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError, model_validator

from ensue.parsing import YIELDING, ParseError, parse_json
from ensue.serving.limits import KEY_VALUES
from ensue.serving.refusal import Refusal, of_validation, unknown
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
        for key in given if isinstance(given, dict) else ():
            if key not in cls.model_fields:
                raise unknown(key)
        if not isinstance(given, dict):
            return given
        return {
            key: value
            for key, value in given.items()
            if value is not None or OR_NULL not in cls.model_fields[key].metadata
        }


class Request(Fields):
    """A request to a model."""

    model: str
    """The name of a run directory that is served."""


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


class EmbeddingRequest(Request):
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


class TextsRequest(Request):
    """POST /v1/score. An input is a text; or a list of texts, where the model reads several; or for a
    model of frames a list of frames, each a list of numbers, or of the samples of a sound.
    """

    inputs: SkipValidation[list[str | list[str] | list[list[float]] | list[float]]]


class PredictRequest(TextsRequest):
    """POST /v1/predict. `n_best` and `at_least` are the options of `ensue predict`, for models that have them."""

    n_best: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    at_least: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options that are given."""
        return {name: value for name in ("n_best", "at_least") if (value := getattr(self, name)) is not None}


class InspectRequest(TextsRequest):
    """POST /v1/inspect. An input may have a target behind its texts, where `score` takes one.

    `parts` says what is answered beside the title: the numbers (`view`), an HTML document (`page`), or what stands in
    it without style and script (`content`).
    """

    parts: Annotated[list[Literal["view", "page", "content"]], Field(max_length=3, fail_fast=True)] = ["view", "page"]
    at: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    token: str | None = None
    off: str | None = None
    """Options of `ensue inspect`, for models that have them."""

    @property
    def options(self) -> dict[str, Any]:
        """The options that are given."""
        given = self.model_dump(include={"at", "token", "off"}, exclude_none=True)
        return {name: without_surrogates(value) if isinstance(value, str) else value for name, value in given.items()}


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


SomeRequest = TypeVar("SomeRequest", bound=Request)


def num_values(part: bytes) -> int:
    """No fewer than the values in a part of a body: its commas, brackets and braces, those in texts too.

    A key takes long to read, so it counts as `KEY_VALUES`: a colon behind a quote, a blank or the end of another part.
    """
    keys = 0
    if b":" in part:
        keys = part.startswith(b":") + sum(map(part.count, (b'":', b" :", b"\t:", b"\n:", b"\r:")))
    return len(part) - len(part.translate(None, b",[{")) + KEY_VALUES * keys


def parsed(kind: type[SomeRequest], body: bytes) -> SomeRequest:
    """The request in a body; raises Refusal if there is none of this kind."""
    try:
        value = parse_json(body, YIELDING)
    except ParseError as error:
        raise Refusal(400, f"the body is {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise Refusal(400, "the body is no JSON object", code="invalid_json")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise of_validation(error) from None
