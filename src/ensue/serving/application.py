"""The application: the paths of a server and what answers them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from ensue.errors import nearest
from ensue.serving.completions import Completions
from ensue.serving.metrics import TEXT
from ensue.serving.openapi import document
from ensue.serving.refusal import Refusal
from ensue.serving.service import Service
from ensue.serving.texts import TextRoutes
from ensue.serving.transport import answered


def application(service: Service) -> ASGIApp:
    """The ASGI application behind the door of a server."""
    texts, writes, description = TextRoutes(service), Completions(service), document()

    async def models(request: Request) -> Response:
        service.check_open()
        return answered({"object": "list", "data": [model.as_json() for model in service.models.values()]})

    async def model(request: Request) -> Response:
        service.check_open()
        name = request.path_params["model"]
        if name not in service.models:
            message = f"The model '{name[:64]}' does not exist{nearest(name[:64], service.models)}"
            raise Refusal(404, message, param="model", code="model_not_found")
        return answered(service.models[name].as_json())

    async def metrics(request: Request) -> Response:
        service.gauge()
        return Response(service.metrics.text(), media_type=TEXT)

    async def described(request: Request) -> Response:
        return answered(description)

    routes = [
        Route("/v1/completions", writes.__call__, methods=["POST"]),
        Route("/v1/embeddings", texts.embeddings, methods=["POST"]),
        Route("/v1/predict", texts.predict, methods=["POST"]),
        Route("/v1/score", texts.score, methods=["POST"]),
        Route("/v1/inspect", texts.inspect, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{model:path}", model),
        Route("/metrics", metrics),
        Route("/openapi.json", described),
    ]
    return Router(routes, redirect_slashes=False)
