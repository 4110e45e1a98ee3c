"""Routes that say something of texts at a stroke: predict, score, inspect, embeddings."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ensue.errors import EnsueError
from ensue.inspection.inspection import Inspection
from ensue.serving.admission import Amounts, Ticket
from ensue.serving.api import EmbeddingRequest, InspectRequest, SomeRequest, TextsRequest, parsed
from ensue.serving.refusal import Refusal
from ensue.serving.served import Served
from ensue.serving.service import Service
from ensue.serving.transport import answered, read_body, unless_left
from ensue.text.utf8 import without_surrogates

Text = str | tuple[str, ...]
SomeTexts = TypeVar("SomeTexts", bound=TextsRequest)


class TextRoutes:
    """The endpoints. A request waits for those before it, and is computed alone: its answer depends on no other."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def predict(self, request: Request) -> Response:
        """POST /v1/predict."""

        def work(model: Served, texts: list[Any], _: TextsRequest) -> list[Any]:
            return list(model.pipeline.predict_json(texts))

        return await self._texts(request, TextsRequest, work, lambda model: {model.pipeline.num_texts})

    async def score(self, request: Request) -> Response:
        """POST /v1/score."""

        def work(model: Served, texts: list[Any], _: TextsRequest) -> list[Any]:
            return [model.pipeline.score_json(text) for text in texts]

        return await self._texts(request, TextsRequest, work, lambda model: {model.pipeline.num_scored})

    async def inspect(self, request: Request) -> Response:
        """POST /v1/inspect."""

        def work(model: Served, texts: list[Any], asked: InspectRequest) -> list[Any]:
            inputs = [(text,) if isinstance(text, str) else text for text in texts]
            options = _options(asked, model)
            return [_parts(model.pipeline.inspect_texts(*some, **options), asked.parts) for some in inputs]

        def counts(model: Served) -> set[int]:
            return {model.pipeline.num_texts, model.pipeline.num_scored}

        return await self._texts(request, InspectRequest, work, counts)

    async def embeddings(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        with self.service.admission.ticket() as ticket:
            asked, model = await self._asked(request, EmbeddingRequest, ticket)
            given = [asked.input] if isinstance(asked.input, str) else asked.input
            texts = [without_surrogates(text) for text in given]
            characters = self._admitted(texts, ticket)
            vectors = await self._computed(request, model, partial(model.pipeline.embed, texts), characters)
            if asked.dimensions not in (None, vectors.shape[1]):
                said = f"this model's vectors have {vectors.shape[1]} numbers"
                raise Refusal(400, said, param="dimensions", code="invalid_value")
            tokens = sum(len(text.split()) for text in given)
            data = [
                {"object": "embedding", "index": index, "embedding": _written(vector, asked.encoding_format)}
                for index, vector in enumerate(vectors)
            ]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            return answered({"object": "list", "data": data, "model": model.name, "usage": usage})

    async def _texts(
        self, request: Request, kind: type[SomeTexts], work: Callable[[Served, list[Any], SomeTexts], list[Any]],
        counts: Callable[[Served], set[int]],
    ) -> Response:  # fmt: skip
        with self.service.admission.ticket() as ticket:
            asked, model = await self._asked(request, kind, ticket)
            reads_frames = model.pipeline.reads_frames
            texts = [_frames(given) if reads_frames else _input(given, counts(model)) for given in asked.inputs]
            characters = self._admitted(texts, ticket)
            call = partial(work, model, texts, asked)
            outputs = await self._computed(request, model, call, characters) if texts else []
            return answered({"model": model.name, "outputs": outputs})

    async def _asked(self, request: Request, kind: type[SomeRequest], ticket: Ticket) -> tuple[SomeRequest, Served]:
        self.service.check_open()
        ticket.reserve(Amounts(places=1))
        asked = parsed(kind, await read_body(request, ticket, self.service.limits))
        model = self.service.model(asked.model, request.url.path)
        request.scope["noted"]["model"] = model.name
        return asked, model

    def _admitted(self, inputs: Sequence[Any], ticket: Ticket) -> int:
        """The number of characters of texts, or of numbers of series, for which there is room."""
        most, sizes = 8 * self.service.limits.prompt_tokens, list(map(_size, inputs))
        if any(size > most for size in sizes):
            raise Refusal(400, f"an input has more than {most:,} characters, or numbers", code="text_too_long")
        ticket.reserve(Amounts(places=max(0, len(sizes) - 1), tokens=sum(sizes)))
        return sum(sizes)

    async def _computed(self, request: Request, model: Served, work: Callable[[], Any], characters: int) -> Any:
        try:
            kind = request.scope["path"]
            if model.worker.is_quick(kind, characters):
                return model.worker.at_once(work, kind, characters)
            return await unless_left(request.receive, model.worker.computed(work, kind, characters))
        except EnsueError as error:
            said = str(error).replace(str(model.pipeline.run), model.name)
            raise Refusal(400, said, param="inputs", code="invalid_value") from None


def _frames(given: Any) -> list[Any]:
    """Lists of numbers. Raises Refusal for texts."""
    if isinstance(given, str) or any(isinstance(part, str) for part in given):
        said = "an input of this model is a list of frames, each a list of numbers"
        raise Refusal(400, f"{said}; found a text", param="inputs", code="invalid_value")
    return list(given)


def _size(given: Any) -> int:
    """The number of characters or numbers in an input."""
    if isinstance(given, str):
        return len(given)
    return sum(map(_size, given)) if isinstance(given, list | tuple) else 1


def _input(given: Any, counts: set[int]) -> Text:
    """A text, or as many as one of `counts`. Raises Refusal for another number, and for frames."""
    texts = (given,) if isinstance(given, str) else tuple(given)
    are_texts = all(isinstance(text, str) for text in texts)
    if len(texts) not in counts or not are_texts:
        wanted = " or ".join("a text" if count == 1 else f"a list of {count} texts" for count in sorted(counts))
        found = len(texts) if are_texts else "numbers"
        raise Refusal(400, f"an input of this model is {wanted}; found {found}", param="inputs", code="invalid_value")
    clean = tuple(map(without_surrogates, texts))
    return clean[0] if len(clean) == 1 else clean


def _options(asked: InspectRequest, model: Served) -> dict[str, Any]:
    """The options that are given. Raises Refusal for one that the model does not have."""
    options = asked.options
    if unknown := sorted(options.keys() - model.entry.commands["inspect"]):
        said = f"the model '{model.name}' has no option {unknown[0]}"
        raise Refusal(400, said, param=unknown[0], code="model_not_supported")
    return options


def _parts(found: Inspection, parts: Sequence[str]) -> dict[str, Any]:
    """The parts of an inspection that were asked for."""
    made = {"title": found.title}
    if "view" in parts:
        made["view"] = found.as_json()
    return made | {part: getattr(found, part) for part in ("page", "content") if part in parts}


def _written(vector: np.ndarray[Any, Any], format: str | None) -> list[float] | str:
    if format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.astype(np.float32).tolist()
    return numbers
