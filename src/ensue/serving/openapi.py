"""A route of a server, and the OpenAPI document of all routes, made from the types of requests and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from ensue.serving.refusal import ErrorBody
from ensue.serving.service import Service
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
