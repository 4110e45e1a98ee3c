"""Routes that say something of texts at a stroke: predict, score, inspect, embeddings."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ensue.errors import EnsueError
from ensue.extensions.serving import api
from ensue.extensions.serving.limits import INSPECTED, LONG_CHARACTERS
from ensue.extensions.serving.refusal import Refusal, wrong
from ensue.extensions.serving.service import Service
from ensue.extensions.serving.transport import Answer, around, as_text, received, unless_left, worked_out
from ensue.inspection.markup import json_pieces
from ensue.inspection.page import Inspection
from ensue.interruption import check_interrupted
from ensue.notices import say_once
from ensue.text.utf8 import without_surrogates

if TYPE_CHECKING:  # it needs torch, and a server answers before that is imported
    from ensue.extensions.serving.served import Served

SMALL = 512
"""Answers of so few characters are written to JSON at a stroke."""
LEAST_WORDS = 1_000
"""Words of requests before a model says what many of them lack."""
Text = str | tuple[str, ...]


async def predict(service: Service, request: Request) -> Response:
    """POST /v1/predict."""
    asked, model = await received(api.PredictRequest, request, service)
    pipeline, options = model.pipeline, _options(asked, model, "predict")
    behind = [] if asked.tagger is None else [service.model(asked.tagger)]
    for name, value in [*options.items(), *(("tagger", other.pipeline) for other in behind)]:
        try:
            if name == "tagger":
                pipeline = pipeline.before(value)
            elif name == "glossary":
                made = map(pipeline.with_glossary, [asked.checked_glossary(service.limits.terms)])
                (pipeline,) = await worked_out(made, 1, request, service, is_light=False)
            elif name == "keep_markup":
                pipeline = pipeline.with_markup()
            else:
                pipeline = pipeline.with_search(**{name: value})
        except EnsueError as error:
            raise wrong(name, _said(error, model, *behind)) from None
    texts = await _admitted(asked.inputs, service, request, model, {model.pipeline.num_texts})
    return await _outputs(service, request, model, texts, _told(model.name, pipeline, texts))


async def score(service: Service, request: Request) -> Response:
    """POST /v1/score."""
    asked, model = await received(api.TextsRequest, request, service)
    texts = await _admitted(asked.inputs, service, request, model, {model.pipeline.num_scored})
    return await _outputs(service, request, model, texts, map(model.pipeline.score_json, texts))


async def inspect(service: Service, request: Request) -> Response:
    """POST /v1/inspect."""
    asked, model = await received(api.InspectRequest, request, service)
    pipeline, options = model.pipeline, _options(asked, model, "inspect")
    counts, most = {pipeline.num_texts, pipeline.num_scored}, service.limits.inspected_characters
    texts = await _admitted(asked.inputs, service, request, model, counts, most=most)
    inputs = ((text,) if isinstance(text, str) else text for text in texts)
    found = (_parts(pipeline.inspect_texts(*some, **options), asked.parts) for some in inputs)
    return await _outputs(service, request, model, texts, found, are_plain=False)


async def embeddings(service: Service, request: Request) -> Response:
    """POST /v1/embeddings."""
    asked, model = await received(api.EmbeddingRequest, request, service)
    given = [asked.input] if isinstance(asked.input, str) else asked.input
    if given == []:
        raise wrong("input", "expected at least one text")
    texts = await _admitted(given, service, request, model, {1}, param="input")
    tokens = sum(len(text.split()) for text in texts)
    usage = api.Usage(prompt_tokens=tokens, total_tokens=tokens)
    answer = api.Embeddings(object="list", data=[], model=model.name, usage=usage)
    found = (
        api.Embedding(object="embedding", index=index, embedding=_written(model.pipeline.embed([text])[0], asked))
        for index, text in enumerate(texts)
    )
    return await _answer(service, request, model, texts, found, *around(answer, "data"))


async def _admitted(
    given: Any, service: Service, request: Request, model: Served, counts: set[int], *, most: int | None = None,
    param: str = "inputs",
) -> list[Any]:  # fmt: skip
    """The texts, or series of numbers, for which there is room."""
    limits, ticket = service.limits, request.scope["ticket"]
    most = most or limits.text_characters
    if not isinstance(given, list):
        raise wrong(param, "expected a list")
    if len(given) > limits.places:
        raise wrong(param, f"{len(given):,} texts; at most {limits.places:,} in a request")
    ticket.reserve(places=max(0, len(given) - 1))
    read = _frames if model.pipeline.reads_vectors else _input

    def admitted(one: Any) -> Any:
        text, size = read(one, counts, param)
        if size > most:
            said = f"an input has more than {most:,} characters, or numbers"
            raise Refusal(400, said, param=param, code="text_too_long")
        ticket.reserve(tokens=size)
        return text

    return await worked_out(map(admitted, given), len(given), request, service)


async def _outputs(
    service: Service, request: Request, model: Served, texts: Sequence[Any], found: Iterator[Any], *,
    are_plain: bool = True,
) -> Response:  # fmt: skip
    answer = api.Outputs(model=model.name, outputs=[])
    return await _answer(service, request, model, texts, found, *around(answer, "outputs"), are_plain=are_plain)


async def _answer(
    service: Service, request: Request, model: Served, texts: Sequence[Any], found: Iterator[Any], begin: str,
    end: str, *, are_plain: bool = True,
) -> Response:  # fmt: skip
    """The result for each of `texts`, written to JSON as it is found. `are_plain` says that it is JSON values."""
    answer = Answer(request.scope["ticket"], service.limits.answer_bytes)
    answer.add(begin)

    def write(number: int, text: Any) -> None:
        value = next(found)
        if number:
            answer.add(",")
        if are_plain and isinstance(text, str) and len(text) <= SMALL:
            answer.add(as_text(value))
            return
        for piece in json_pieces(value.model_dump() if isinstance(value, BaseModel) else value):
            check_interrupted()
            answer.add(piece)

    try:
        works, size = starmap(write, enumerate(texts)), request.scope["ticket"].held.tokens
        is_long = size * (1 if are_plain else INSPECTED) > LONG_CHARACTERS
        await unless_left(request.receive, model.worker.computed(works, len(texts), is_long=is_long))
    except EnsueError as error:
        raise Refusal(400, _said(error, model), param="inputs", code="invalid_value") from None
    answer.add(end)
    return answer.end()


def _said(error: EnsueError, *models: Served) -> str:
    """The message of an error, with the names of models in place of their paths. Words in quotes are a user's."""
    names = {str(model.pipeline.run): model.name for model in models}
    paths = "|".join(map(re.escape, names))
    return re.sub(
        rf'"[^"]*"|(?<![\w./-])(?:{paths})(?![\w/-])', lambda found: names.get(found[0], found[0]), str(error)
    )


def _told(name: str, pipeline: Any, texts: Sequence[Any]) -> Iterator[Any]:
    """The answers of a model. A notice says what the texts so far lack, once for a model."""
    for answer in pipeline.each_json(texts):
        if lacking := pipeline.lacking(least=LEAST_WORDS):
            say_once(f"lacking {name}", f"{name}: {lacking}")
        yield answer


def _frames(given: Any, counts: set[int], param: str) -> tuple[list[Any], int]:
    """A list of numbers, or of lists of them, and how many there are. Raises Refusal for another value."""
    rows = given if isinstance(given, list) and given and all(isinstance(row, list) for row in given) else [given]
    for row in rows:
        if not isinstance(row, list) or not set(map(type, row)) <= {int, float}:
            said = "an input of this model is a list of frames, each a list of numbers"
            raise wrong(param, f"{said}; found {_named(given)}")
    return given, sum(map(len, rows))


def _input(given: Any, counts: set[int], param: str) -> tuple[Text, int]:
    """A text, or as many as one of `counts`, and their characters. Raises Refusal for another number or value."""
    texts = given if isinstance(given, list) else [given]
    if len(texts) not in counts or not set(map(type, texts)) <= {str}:
        wanted = " or ".join("a text" if count == 1 else f"a list of {count} texts" for count in sorted(counts))
        raise wrong(param, f"an input of this model is {wanted}; found {_named(given)}")
    clean = tuple(map(without_surrogates, texts))
    return clean[0] if len(clean) == 1 else clean, sum(map(len, clean))


def _named(given: Any) -> str:
    """The kind of a value, for a refusal."""
    if isinstance(given, list):
        kinds = set(map(type, given))
        return f"{len(given):,} texts" if kinds <= {str} else "numbers" if kinds <= {int, float} else "another list"
    return "a text" if isinstance(given, str) else "another value"


def _options(asked: api.TextsRequest, model: Served, command: str) -> dict[str, Any]:
    """The options that are given. Raises Refusal for one that the model does not have."""
    options = asked.options
    if options and (unknown := sorted(options.keys() - model.entry.options(command))):
        said = f"the model '{model.name}' has no option {unknown[0]}"
        raise Refusal(400, said, param=unknown[0], code="model_not_supported")
    return options


def _parts(found: Inspection, parts: Sequence[str]) -> dict[str, Any]:
    """The parts of an inspection that were asked for."""
    made = {part: getattr(found, part) for part in ("view", "page", "content") if part in parts}
    return {name: value for name, value in api.Inspected(title=found.title, **made) if name == "title" or name in made}


def _written(vector: np.ndarray[Any, Any], asked: api.EmbeddingRequest) -> list[float] | str:
    """The vector in the format that is asked for. Raises Refusal for another number of dimensions."""
    if asked.dimensions not in (None, len(vector)):
        raise wrong("dimensions", f"this model's vectors have {len(vector)} numbers")
    if asked.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.astype(np.float32).tolist()
    return numbers
