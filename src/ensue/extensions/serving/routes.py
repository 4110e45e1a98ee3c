"""The table of routes: paths, schemas of requests and responses, and the handlers of routes that do not stream.

The application, the log, the OpenAPI document and the list of models use this table. This module does not import torch,
so that the server responds while its models are loading.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from ensue.errors import EnsueError
from ensue.extensions.serving import api, transport
from ensue.extensions.serving.api import APIError, ErrorBody, reject
from ensue.extensions.serving.limits import INSPECTION_FACTOR, MIN_LONG_CHARACTERS
from ensue.extensions.serving.metrics import METRICS_MEDIA_TYPE
from ensue.extensions.serving.service import Service
from ensue.inspection.page import Inspection, json_chunks, live_page, policy
from ensue.interruption import check_interrupted
from ensue.notices import warn_once
from ensue.text.tokenizer import replace_surrogates
from ensue.version import VERSION

if TYPE_CHECKING:  # this import takes seconds, since it imports torch
    from ensue.extensions.serving.served_model import ServedModel

MAX_SMALL_CHARACTERS = 512
"""The maximum length of a text whose output is written as JSON in one call."""
MIN_NOTICE_WORDS = 1_000
"""The minimum number of words before a notice about unknown words."""
Text = str | tuple[str, ...]


async def predict(service: Service, request: Request) -> Response:
    body, model = await transport.receive_request(api.PredictRequest, request, service)
    pipeline, options = model.pipeline, _check_options(body, model, "predict")
    taggers = [] if body.tagger is None else [service.model(body.tagger)]
    for name, value in [*options.items(), *(("tagger", tagger.pipeline) for tagger in taggers)]:
        try:
            if name == "tagger":
                pipeline = pipeline.before(value)
            elif name == "glossary":
                adapted = map(pipeline.with_glossary, [body.checked_glossary(service.limits.terms)])
                (pipeline,) = await transport.compute(adapted, 1, request, service, is_light=False)
            elif name == "keep_markup":
                pipeline = pipeline.with_markup()
            else:
                pipeline = pipeline.with_search(**{name: value})
        except EnsueError as error:
            raise reject(name, _hide_paths(error, model, *taggers)) from None
    texts = await _reserve_inputs(body.inputs, service, request, model, {model.pipeline.num_texts})
    return await _respond(service, request, model, texts, _warn_of_unknown(model.name, pipeline, texts))


async def score(service: Service, request: Request) -> Response:
    body, model = await transport.receive_request(api.TextsRequest, request, service)
    texts = await _reserve_inputs(body.inputs, service, request, model, {model.pipeline.num_scored})
    return await _respond(service, request, model, texts, map(model.pipeline.score_json, texts))


async def inspect(service: Service, request: Request) -> Response:
    body, model = await transport.receive_request(api.InspectRequest, request, service)
    pipeline, options = model.pipeline, _check_options(body, model, "inspect")
    counts, max_size = {pipeline.num_texts, pipeline.num_scored}, service.limits.inspected_characters
    texts = await _reserve_inputs(body.inputs, service, request, model, counts, max_size=max_size)
    inputs = ((text,) if isinstance(text, str) else text for text in texts)
    results = (_select_fields(pipeline.inspect_texts(*row, **options), body.parts) for row in inputs)
    return await _respond(service, request, model, texts, results, are_plain=False)


async def embeddings(service: Service, request: Request) -> Response:
    body, model = await transport.receive_request(api.EmbeddingRequest, request, service)
    inputs = [body.input] if isinstance(body.input, str) else body.input
    if inputs == []:
        raise reject("input", "expected at least one text")
    texts = await _reserve_inputs(inputs, service, request, model, {1}, param="input")
    tokens = sum(len(text.split()) for text in texts)
    usage = api.Usage(prompt_tokens=tokens, total_tokens=tokens)
    answer = api.Embeddings(object="list", data=[], model=model.name, usage=usage)
    results = (
        api.Embedding(object="embedding", index=index, embedding=_encode_vector(model.pipeline.embed([text])[0], body))
        for index, text in enumerate(texts)
    )
    return await _respond(service, request, model, texts, results, parts=transport.split_around(answer, "data"))


async def _reserve_inputs(
    inputs: Any, service: Service, request: Request, model: ServedModel, counts: set[int], *,
    max_size: int | None = None, param: str = "inputs",
) -> list[Any]:  # fmt: skip
    """Check and return the inputs, and reserve resources. `counts` are the allowed numbers of texts per input."""
    limits, reservation = service.limits, request.scope["reservation"]
    max_size = max_size or limits.text_characters
    if not isinstance(inputs, list):
        raise reject(param, "expected a list")
    if len(inputs) > limits.places:
        raise reject(param, f"{len(inputs):,} texts; at most {limits.places:,} in a request")
    reservation.reserve(places=max(0, len(inputs) - 1))
    parse = _parse_frames if model.pipeline.reads_vectors else _parse_texts

    def reserve(value: Any) -> Any:
        text, size = parse(value, counts, param)
        if size > max_size:
            message = f"an input has more than {max_size:,} characters or numbers"
            raise APIError(400, message, param=param, code="text_too_long")
        reservation.reserve(tokens=size)
        return text

    return await transport.compute(map(reserve, inputs), len(inputs), request, service)


async def _respond(
    service: Service, request: Request, model: ServedModel, texts: Sequence[Any], results: Iterator[Any], *,
    parts: Sequence[str] = (), are_plain: bool = True,
) -> Response:  # fmt: skip
    """Return a response with all results between two `parts` of JSON text, by default the parts of `api.Outputs`.

    If not `are_plain`, the results are inspections.
    """
    begin, end = parts or transport.split_around(api.Outputs(model=model.name, outputs=[]), "outputs")
    answer = transport.Answer(request.scope["reservation"], service.limits.answer_bytes)
    answer.add(begin)

    def write(number: int, text: Any) -> None:
        value = next(results)
        if number:
            answer.add(",")
        if are_plain and isinstance(text, str) and len(text) <= MAX_SMALL_CHARACTERS:
            answer.add(transport.json_text(value))
            return
        for piece in json_chunks(value.model_dump() if isinstance(value, BaseModel) else value):
            check_interrupted()
            answer.add(piece)

    try:
        items, size = starmap(write, enumerate(texts)), request.scope["reservation"].reserved.tokens
        is_long = size * (1 if are_plain else INSPECTION_FACTOR) > MIN_LONG_CHARACTERS
        await transport.cancel_on_disconnect(request.receive, model.worker.compute(items, len(texts), is_long=is_long))
    except EnsueError as error:
        raise APIError(400, _hide_paths(error, model), param="inputs", code="invalid_value") from None
    answer.add(end)
    return answer.end()


def _hide_paths(error: EnsueError, *models: ServedModel) -> str:
    """Return the message of an error. Outside of quoted text, the paths of models are replaced by their names."""
    names = {str(model.pipeline.run): model.name for model in models}
    paths = "|".join(map(re.escape, names))
    return re.sub(rf'"[^"]*"|(?<![\w./-])(?:{paths})(?![\w/-])', lambda path: names.get(path[0], path[0]), str(error))


def _warn_of_unknown(name: str, pipeline: Any, texts: Sequence[Any]) -> Iterator[Any]:
    """Yield the outputs of a model. Print a notice, once for each model, if many words are unknown."""
    for output in pipeline.each_json(texts):
        if notice := pipeline.lacking(least=MIN_NOTICE_WORDS):
            warn_once(f"lacking {name}", f"{name}: {notice}")
        yield output


def _parse_frames(value: Any, counts: set[int], param: str) -> tuple[list[Any], int]:
    rows = value if isinstance(value, list) and value and all(isinstance(row, list) for row in value) else [value]
    for row in rows:
        if not isinstance(row, list) or not set(map(type, row)) <= {int, float}:
            message = "an input of this model is a list of frames, each a list of numbers"
            raise reject(param, f"{message}; found {_describe_value(value)}")
    return value, sum(map(len, rows))


def _parse_texts(value: Any, counts: set[int], param: str) -> tuple[Text, int]:
    texts = value if isinstance(value, list) else [value]
    if len(texts) not in counts or not set(map(type, texts)) <= {str}:
        expected = " or ".join("a text" if count == 1 else f"a list of {count} texts" for count in sorted(counts))
        raise reject(param, f"an input of this model is {expected}; found {_describe_value(value)}")
    clean = tuple(map(replace_surrogates, texts))
    return clean[0] if len(clean) == 1 else clean, sum(map(len, clean))


def _describe_value(value: Any) -> str:
    if isinstance(value, list):
        kinds = set(map(type, value))
        return f"{len(value):,} texts" if kinds <= {str} else "numbers" if kinds <= {int, float} else "another list"
    return "a text" if isinstance(value, str) else "another value"


def _check_options(body: api.TextsRequest, model: ServedModel, command: str) -> dict[str, Any]:
    options = body.options
    if options and (unknown := sorted(options.keys() - model.entry.options(command))):
        message = f"the model '{model.name}' has no option {unknown[0]}"
        raise APIError(400, message, param=unknown[0], code="model_not_supported")
    return options


def _select_fields(inspection: Inspection, names: Sequence[str]) -> dict[str, Any]:
    fields = {name: getattr(inspection, name) for name in ("view", "page", "content") if name in names}
    return {name: item for name, item in api.Inspected(title=inspection.title, **fields) if name in ("title", *fields)}


def _encode_vector(vector: np.ndarray[Any, Any], body: api.EmbeddingRequest) -> list[float] | str:
    if body.dimensions not in (None, len(vector)):
        raise reject("dimensions", f"this model's vectors have {len(vector)} numbers")
    if body.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.astype(np.float32).tolist()


class Route(NamedTuple):
    """A route: a method, a path that may end in a parameter such as `{model}`, and a handler."""

    method: str
    path: str
    request: type[BaseModel] | None
    answer: type[BaseModel] | str
    """The schema of the response, or the media type of a response that is not JSON."""
    handler: Callable[[Service, Request], Awaitable[Response]]
    summary: str
    command: str | None = None
    """The command with the same result. A model has the route if its task has the command."""
    is_open: bool = False
    """Whether the route needs neither a key nor loaded models."""

    @property
    def parameter(self) -> str:
        return self.path.partition("{")[2].rstrip("}")

    def match(self, path: str) -> dict[str, str] | None:
        """Return the parameters in a path, or None for a path of another route."""
        prefix, _, rest = self.path.partition("{")
        if not rest:
            return {} if path == self.path else None
        return {self.parameter: path.removeprefix(prefix)} if path.startswith(prefix) else None


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of the routes."""
    requests = [(route.request, "validation") for route in routes if route.request is not None]
    answers = [(route.answer, "serialization") for route in routes if not isinstance(route.answer, str)]
    kinds: Any = [*requests, *answers, (ErrorBody, "serialization")]
    names, definitions = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, names)
    security = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0", "info": {"title": "ensue", "version": VERSION}, "paths": paths,
        "components": {"schemas": definitions["$defs"], "securitySchemes": security}, "security": [{"key": []}],
    }  # fmt: skip


def _describe_operation(route: Route, names: Any) -> dict[str, Any]:
    def content(kind: type[BaseModel], mode: str = "serialization") -> dict[str, Any]:
        return {"content": {"application/json": {"schema": names[kind, mode]}}}

    answer = {"content": {route.answer: {}}} if isinstance(route.answer, str) else content(route.answer)
    responses = {"200": {"description": "Done", **answer}, "default": {"description": "Refused", **content(ErrorBody)}}
    operation: dict[str, Any] = {"summary": route.summary, "responses": responses}
    if route.request is not None:
        operation["requestBody"] = {"required": True, **content(route.request, "validation")}
    if route.parameter:
        schema = {"name": route.parameter, "in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [schema]
    return operation


PAGE_HEADERS = {
    "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'", "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
}  # fmt: skip


async def complete(service: Service, request: Request) -> Response:
    """POST /v1/completions."""
    from ensue.extensions.serving import completions  # noqa: PLC0415  # imports torch

    return await completions.complete(service, request)


async def models(service: Service, request: Request) -> Response:
    service.check_ready()
    return transport.json_response(
        api.Models(object="list", data=[model.describe() for model in service.models.values()])
    )


async def model(service: Service, request: Request) -> Response:
    service.check_ready()
    return transport.json_response(service.model(request.path_params["model"]).describe())


async def inspector(service: Service, request: Request) -> Response:
    """GET /: the inspector. The page needs no key, since it has no content of the models."""
    return Response(live_page(), headers=PAGE_HEADERS, media_type="text/html")


async def health(service: Service, request: Request) -> Response:
    """GET /health: the process responds."""
    return transport.json_response(api.Health(status="ok"))


async def ready(service: Service, request: Request) -> Response:
    """GET /ready: the status is 503 while models are loading and after SIGTERM."""
    return transport.json_response(api.Health(status=service.state), 200 if service.state == "ready" else 503)


async def document(service: Service, request: Request) -> Response:
    return transport.json_response(openapi_document(ROUTES))


async def metrics(service: Service, request: Request) -> Response:
    service.update_gauges()
    return Response(service.metrics.text(), media_type=METRICS_MEDIA_TYPE)


JSON = "application/json"
ROUTES = (
    Route("POST", "/v1/completions", api.CompletionRequest, api.Completion, complete,
          "Continue prompts.", "generate"),
    Route("POST", "/v1/embeddings", api.EmbeddingRequest, api.Embeddings, embeddings,
          "Compute a vector for each text.", "embed"),
    Route("POST", "/v1/predict", api.PredictRequest, api.Outputs, predict,
          "Predict labels, classes, translations or masked tokens.", "predict"),
    Route("POST", "/v1/score", api.TextsRequest, api.Outputs, score,
          "Compute the surprisal of tokens or targets, in nats.", "score"),
    Route("POST", "/v1/inspect", api.InspectRequest, api.Inspections, inspect,
          "Inspect a model: its activations and predictions, as numbers and as a page.", "inspect"),
    Route("GET", "/v1/models", None, api.Models, models, "List the models and their routes."),
    Route("GET", "/v1/models/{model}", None, api.Model, model, "Describe a model."),
    Route("GET", "/", None, "text/html", inspector, "The inspector, a page for a browser.", is_open=True),
    Route("GET", "/health", None, api.Health, health, "Whether the process responds.", is_open=True),
    Route("GET", "/ready", None, api.Health, ready,
          "Whether requests are accepted; 503 while loading and draining.", is_open=True),
    Route("GET", "/openapi.json", None, JSON, document, "Return this document."),
    Route("GET", "/metrics", None, "text/plain", metrics, "Return the metrics in Prometheus's format."),
)  # fmt: skip

COMMAND_PATHS = {route.command: route.path for route in ROUTES if route.command is not None}
"""The paths of commands that have a route."""
ROUTES_BY_PATH = {route.path: route for route in ROUTES if not route.parameter}


def find_route(path: str) -> tuple[Route | None, dict[str, str]]:
    """Return the route of a path, or None, and the parameters in the path."""
    if path in ROUTES_BY_PATH:
        return ROUTES_BY_PATH[path], {}
    matches = ((route, parameters) for route in ROUTES if (parameters := route.match(path)) is not None)
    return next(matches, (None, {}))
