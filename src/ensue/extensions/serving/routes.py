"""The routes of a server, all in one table: paths, the types of requests and answers, and what answers them.

The door, the log, the OpenAPI document and the list of models read this table. It is there before torch is imported,
so that a server answers while its models are loaded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from ensue.extensions.serving import api, texts
from ensue.extensions.serving.metrics import TEXT
from ensue.extensions.serving.refusal import ErrorBody
from ensue.extensions.serving.service import Service
from ensue.extensions.serving.transport import answered
from ensue.inspection.page import live_page, policy
from ensue.version import VERSION


class Route(NamedTuple):
    """A method of a path. `{model}` at the end of a path is a parameter."""

    method: str
    path: str
    request: type[BaseModel] | None
    answer: type[BaseModel] | str
    """The type of the answer, or its media type where it has no type."""
    handler: Callable[[Service, Request], Awaitable[Response]]
    about: str
    command: str | None = None
    """The command of a task's entry that does the same; a model has the route if its task has the command."""
    is_open: bool = False
    """Whether the route needs no key and no model."""

    @property
    def parameter(self) -> str:
        """The name of the parameter in the path; "" if there is none."""
        return self.path.partition("{")[2].rstrip("}")

    def match(self, path: str) -> dict[str, str] | None:
        """The parameters of a path; None if it is none of this route."""
        prefix, _, rest = self.path.partition("{")
        if not rest:
            return {} if path == self.path else None
        return {self.parameter: path.removeprefix(prefix)} if path.startswith(prefix) else None


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document as JSON values."""
    requests = [(one.request, "validation") for one in routes if one.request is not None]
    answers = [(one.answer, "serialization") for one in routes if not isinstance(one.answer, str)]
    kinds: Any = [*requests, *answers, (ErrorBody, "serialization")]
    names, definitions = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    paths: dict[str, Any] = {}
    for one in routes:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, names)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ensue", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(one: Route, names: Any) -> dict[str, Any]:
    def content(kind: type[BaseModel], mode: str = "serialization") -> dict[str, Any]:
        return {"content": {"application/json": {"schema": names[kind, mode]}}}

    answer = {"content": {one.answer: {}}} if isinstance(one.answer, str) else content(one.answer)
    found: dict[str, Any] = {
        "summary": one.about,
        "responses": {
            "200": {"description": "Done", **answer},
            "default": {"description": "Refused", **content(ErrorBody)},
        },
    }
    if one.request is not None:
        found["requestBody"] = {"required": True, **content(one.request, "validation")}
    if one.parameter:
        schema = {"name": one.parameter, "in": "path", "required": True, "schema": {"type": "string"}}
        found["parameters"] = [schema]
    return found


PAGE_HEADERS = {
    "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def complete(service: Service, request: Request) -> Response:
    """Writes on from prompts."""
    from ensue.extensions.serving import completions  # noqa: PLC0415  # torch takes seconds

    return await completions.complete(service, request)


async def models(service: Service, request: Request) -> Response:
    """All models."""
    service.check_open()
    return answered(api.Models(object="list", data=[model.described() for model in service.models.values()]))


async def model(service: Service, request: Request) -> Response:
    """One model."""
    service.check_open()
    return answered(service.model(request.path_params["model"]).described())


async def inspector(service: Service, request: Request) -> Response:
    """The page of the inspector. It has nothing of the models, so that it needs no key."""
    return Response(live_page(), headers=PAGE_HEADERS, media_type="text/html")


async def health(service: Service, request: Request) -> Response:
    """Whether the process answers."""
    return answered(api.Health(status="ok"))


async def ready(service: Service, request: Request) -> Response:
    """Whether requests are taken."""
    return answered(api.Health(status=service.state), 200 if service.state == "ready" else 503)


async def document(service: Service, request: Request) -> Response:
    """The OpenAPI document."""
    return answered(openapi_document(ROUTES))


async def metrics(service: Service, request: Request) -> Response:
    """The numbers of the server."""
    service.gauge()
    return Response(service.metrics.text(), media_type=TEXT)


JSON = "application/json"
ROUTES = (
    Route("POST", "/v1/completions", api.CompletionRequest, api.Completion, complete,
          "Writes on from prompts.", "generate"),
    Route("POST", "/v1/embeddings", api.EmbeddingRequest, api.Embeddings, texts.embeddings,
          "A vector for each text.", "embed"),
    Route("POST", "/v1/predict", api.PredictRequest, api.Outputs, texts.predict,
          "Labels, classes, translations, filled masks.", "predict"),
    Route("POST", "/v1/score", api.TextsRequest, api.Outputs, texts.score,
          "The surprisal of tokens or targets, in nats.", "score"),
    Route("POST", "/v1/inspect", api.InspectRequest, api.Inspections, texts.inspect,
          "What happens in the model, in numbers and as a page.", "inspect"),
    Route("GET", "/v1/models", None, api.Models, models, "The models, and the routes that take them."),
    Route("GET", "/v1/models/{model}", None, api.Model, model, "One model."),
    Route("GET", "/", None, "text/html", inspector, "The inspector, a page for a browser.", is_open=True),
    Route("GET", "/health", None, api.Health, health, "Whether the process answers.", is_open=True),
    Route("GET", "/ready", None, api.Health, ready,
          "Whether requests are taken; 503 while loading and draining.", is_open=True),
    Route("GET", "/openapi.json", None, JSON, document, "This document."),
    Route("GET", "/metrics", None, "text/plain", metrics, "Numbers in the format of Prometheus."),
)  # fmt: skip

PATHS = {route.command: route.path for route in ROUTES if route.command is not None}
"""The path of each command of a task's entry that has one."""
BY_PATH = {route.path: route for route in ROUTES if not route.parameter}


def route_of(path: str) -> tuple[Route | None, dict[str, str]]:
    """The route of a path, None if there is none, and the parameters in the path."""
    if path in BY_PATH:
        return BY_PATH[path], {}
    for route in ROUTES:
        if (parameters := route.match(path)) is not None:
            return route, parameters
    return None, {}
