"""The OpenAPI document of a server, made from the types that it checks requests with."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ensue.serving import api
from ensue.version import VERSION


class Operation(NamedTuple):
    """A method of a path: what it reads and what it answers."""

    method: str
    path: str
    request: type[BaseModel] | None
    answer: type[BaseModel] | None
    about: str


OPERATIONS = (
    Operation("post", "/v1/completions", api.CompletionRequest, api.Completion, "Writes on from prompts."),
    Operation("post", "/v1/embeddings", api.EmbeddingRequest, api.Embeddings, "A vector for each text."),
    Operation("post", "/v1/predict", api.TextsRequest, api.Outputs, "Labels, classes, translations, filled masks."),
    Operation("post", "/v1/score", api.TextsRequest, api.Outputs, "The surprisal of tokens or targets, in nats."),
    Operation(
        "post",
        "/v1/inspect",
        api.InspectRequest,
        api.Inspections,
        "What happens in the model, in numbers and as a page.",
    ),
    Operation("get", "/v1/models", None, api.Models, "The models, and the routes that take them."),
    Operation("get", "/v1/models/{model}", None, api.Model, "One model."),
    Operation("get", "/", None, None, "The inspector, a page for a browser."),
    Operation("get", "/health", None, api.Health, "Whether the process answers."),
    Operation("get", "/ready", None, api.Health, "Whether requests are taken; 503 while loading and draining."),
    Operation("get", "/openapi.json", None, None, "This document."),
    Operation("get", "/metrics", None, None, "Numbers in the format of Prometheus."),
)

PLAIN = {"/": "text/html", "/metrics": "text/plain"}
"""What is answered where it is no JSON."""


def document() -> dict[str, Any]:
    """The document as JSON values."""
    asked = [(one.request, "validation") for one in OPERATIONS if one.request is not None]
    said = [(one.answer, "serialization") for one in OPERATIONS if one.answer is not None]
    kinds: Any = [*asked, *said, (api.ErrorBody, "serialization")]
    names, definitions = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _operation(one, names)
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


def _operation(one: Operation, names: Any) -> dict[str, Any]:
    kind = PLAIN.get(one.path, "application/json")
    answer = _content(names[one.answer, "serialization"]) if one.answer else {"content": {kind: {}}}
    refused = _content(names[api.ErrorBody, "serialization"])
    found: dict[str, Any] = {
        "summary": one.about,
        "responses": {"200": {"description": "Done", **answer}, "default": {"description": "Refused", **refused}},
    }
    if one.request is not None:
        found["requestBody"] = {"required": True, **_content(names[one.request, "validation"])}
    if "{model}" in one.path:
        found["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    return found


def _content(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
