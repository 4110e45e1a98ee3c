"""The failure of one request does not change others, for each point of failure and each number in a request."""

import time
from collections.abc import Callable, Iterator
from itertools import repeat
from math import inf, nextafter
from typing import Any

import numpy as np
import pytest
import torch

from ensue.extensions.serving.loop import GenerationLoop, LiveBatch
from ensue.extensions.serving.routes import ROUTES
from ensue.extensions.serving.row import Row, RowSampler, SessionState, StopStrings
from ensue.extensions.serving.served_model import SessionStore, memory_bytes
from ensue.extensions.serving.service import Resources
from extensions.serving.client import Answer, Client
from extensions.serving.conftest import (
    BUGS,
    Shouter,
    frame_pipeline,
    language_pipeline,
    next_pipeline,
    translating_pipeline,
)

PATH = "/v1/completions"
POISON, TOKEN = "poison", 7


def is_bad(row: Row) -> bool:
    return row.request.user == POISON


PLACES: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "the prompt is read": (GenerationLoop, "_read_chunk", lambda _, prompt: any(map(is_bad, prompt.rows))),
    "the rows enter": (GenerationLoop, "_queue_rows", lambda _, prompt: any(map(is_bad, prompt.rows))),
    "the model steps": (LiveBatch, "step", lambda _, ids: TOKEN in ids),
    "the filters": (RowSampler, "_filter", lambda chooser, _: any(map(is_bad, chooser.rows))),
    "the random number": (Row, "draw", is_bad),
    "the log-probabilities": (RowSampler, "logprobs", lambda chooser, *_: any(map(is_bad, chooser.rows))),
    "the token": (Row, "append", lambda row, *_: is_bad(row)),
    "the end": (GenerationLoop, "_finish", lambda _, row, *rest: is_bad(row)),
}


def answers(serve: Any, has_bad: bool) -> list[Answer]:
    """Return the answers to four requests, and with `has_bad` to a request that generates only `TOKEN`."""
    client, service = serve({"lstm": language_pipeline()})
    good = [
        {"max_tokens": 20, "seed": n, "logprobs": n % 2, "temperature": n / 2, "top_p": 0.9, "logit_bias": {"7": -100}}
        for n in range(4)
    ]
    bad = {"max_tokens": 9, "user": POISON, "logit_bias": {"7": 100}, "top_p": 0.5}
    responses = client.all(PATH, [{"model": "lstm", "prompt": "The sea", **each} for each in [*good, *[bad] * has_bad]])
    assert service.admission.reserved == Resources()
    assert client.post(PATH, {"model": "lstm", "max_tokens": 3, "logit_bias": {"7": -100}}).status == 200
    return responses


@pytest.fixture(scope="module")
def expected(serve: Any) -> list[Any]:
    return [answer.json["choices"] for answer in answers(serve, has_bad=False)]


@pytest.mark.parametrize("place", [*PLACES, "scores that are not finite"])
def test_the_failure_of_a_row_does_not_change_other_answers(
    serve: Any, monkeypatch: pytest.MonkeyPatch, place: str, expected: list[Any]
) -> None:
    owner, name, is_hit = PLACES.get(place, (LiveBatch, "step", None))
    original = getattr(owner, name)

    def failing(*arguments: Any) -> Any:
        if is_hit is None:
            scores = original(*arguments).clone()
            scores[[id == TOKEN for id in arguments[1]]] = torch.nan
            return scores
        if is_hit(*arguments):
            raise ZeroDivisionError(place)
        return original(*arguments)

    monkeypatch.setattr(owner, name, failing)
    BUGS.clear()
    *good, bad = answers(serve, has_bad=True)
    assert [answer.json.get("choices") for answer in good] == expected
    assert bad.status == 500
    assert len(BUGS) == 1


NUMBERS = [
    5e-324, 1e-320, 1e-46, 1e-45, 1e-38, 1e-7, 0.5, 0.1 + 0.2, 1 - 1e-16, 1 + 1e-15, 1 + 1e-9, 2 + 1e-15, -1e-320, -0.0,
    0, 1, 2, 100 + 1e-13, 1e30, 3.4e38, 3.5e38, 1e308, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30,
]  # fmt: skip
LISTS: dict[str, Callable[[Any], Any]] = {  # fields that are lists or tables, with a number in them
    "logit_bias": lambda number: {"5": number}, "prompt": lambda number: [1, number], "inputs": lambda n: [[[0.5, n]]],
}  # fmt: skip
MODELS = {"inputs": ["motion", "next"], "n_best": ["ende", "shouter"]}
FIXED = {"prompt": "a", "max_tokens": 2, "inputs": ["the sea"], "input": "a", "session": "a"}


def numeric_fields() -> Iterator[tuple[str, str, list[float]]]:
    """Yield the path, the name and the bounds of every numeric field of a request."""
    for route in ROUTES:
        for name, schema in route.request.model_json_schema()["properties"].items() if route.request else ():
            kinds = [kind for kind in (schema, *schema.get("anyOf", ())) if kind.get("type") in ("number", "integer")]
            bounds = [kind[end] for kind in kinds for end in ("minimum", "maximum", "exclusiveMaximum") if end in kind]
            if kinds or name in LISTS:
                yield route.path, name, bounds


FIELDS = [
    pytest.param(*field, marks=[pytest.mark.slow] * (field[:2] == ("/v1/inspect", "inputs")), id=" ".join(field[:2]))
    for field in numeric_fields()
]


@pytest.fixture(scope="module")
def numbers(serve: Any) -> Client:
    pipelines = {"lstm": language_pipeline(), "ende": translating_pipeline(), "motion": frame_pipeline()}
    client, _ = serve({**pipelines, "next": next_pipeline(), "shouter": Shouter()}, max_tokens=40)
    return Client(client.app)


@pytest.mark.parametrize(("path", "name", "bounds"), FIELDS)
def test_each_number_is_used_or_refused(
    numbers: Client, bugs: list[BaseException], path: str, name: str, bounds: list[float]
) -> None:
    """The bounds are checked for the value that is used, also after rounding to float32."""
    route = next(route for route in ROUTES if route.path == path)
    assert route.request is not None
    fixed = {key: value for key, value in FIXED.items() if key in route.request.model_fields and key != "session"}
    fixed |= {"session": "a"} if name == "undo" else {}
    neighbors_of_bounds = [nextafter(bound, to) for bound in bounds for to in (-inf, inf)]
    fixed |= {"parts": ["view"]} if "parts" in route.request.model_fields else {}
    for model in MODELS.get(name, ["lstm"]):
        values = [
            LISTS.get(name, lambda n: n)(n)
            for n in (*NUMBERS, *bounds, *neighbors_of_bounds, *(-one for one in NUMBERS[::3]))
        ]
        requests = [{"model": model, **fixed, name: value} for value in values]
        answers = map(numbers.post, repeat(path), requests) if "session" in fixed else numbers.all(path, requests)
        for request, answer in zip(requests, answers, strict=True):
            assert answer.status in (200, 400), (request, answer.body)


def test_the_smallest_nucleus_is_the_most_probable_token(numbers: Client) -> None:
    fields = {"model": "lstm", "prompt": "The sea", "max_tokens": 20}
    expected = numbers.post(PATH, {**fields, "temperature": 0}).json["choices"]
    for top_p in (5e-324, 1e-46, 1e-30):
        assert numbers.post(PATH, {**fields, "top_p": top_p}).json["choices"] == expected


def test_the_time_per_character_does_not_depend_on_the_stop_strings() -> None:
    hard = ["a" * 1023 + "b", *("b" + "a" * 1022 + last for last in "xyz")]

    def seconds(stops: list[str]) -> float:
        watch, start = StopStrings(stops), time.process_time()
        assert "".join(watch.feed("a")[0] for _ in range(4000)) in ("a" * 4000, "a" * (4000 - 1023))
        return time.process_time() - start

    seconds(hard)
    assert min(seconds(hard) for _ in range(3)) < 10 * min(seconds(["bx"] * 4) for _ in range(3)) < 1


def state(size: int) -> SessionState:
    return SessionState((torch.zeros(1, size),), np.zeros(1, np.int64))


def store(sessions: SessionStore, name: str, size: int) -> None:
    sessions.begin(name)
    sessions.end(name, state(size))


def test_sessions_are_bounded_in_bytes() -> None:
    sessions = SessionStore(64, 60, 8, 10_000)
    for number in range(100):
        store(sessions, f"{number % 7}", 500)
        states = [one for _, states in sessions._sessions.values() for one in states]
        assert memory_bytes(states) <= 10_000
        assert len(sessions) >= 1
    store(sessions, "large", 50_000)  # a session above the bound stays until the next one is stored
    assert (list(sessions._sessions), len(sessions._sessions["large"][1])) == (["large"], 1)
    store(sessions, "small", 10)
    assert list(sessions._sessions) == ["small"]
    shared = state(1000)
    assert memory_bytes([shared, shared, None]) == 4016


def test_a_model_that_adapts_has_few_copies_of_its_weights(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any number of waiting requests, and prompts that are read in chunks."""
    client, _ = serve({"lstm": language_pipeline().with_adaptation(dynamic=0.5, dynamic_segment=4)}, rows=2)
    counts, iterate = [0], GenerationLoop._iterate

    def count_after_iteration(loop: GenerationLoop) -> None:
        iterate(loop)
        read = [one for one in loop._reading if one.unread[0].read]
        counts.append(len({*read, *loop._waiting, *(one for _, one in loop._live)}))

    monkeypatch.setattr(GenerationLoop, "_iterate", count_after_iteration)
    monkeypatch.setattr("ensue.extensions.serving.loop.CHUNK_TOKENS", 8)
    fields = {"model": "lstm", "prompt": "The sea was calm.", "max_tokens": 6}
    responses = client.all(PATH, [fields | {"n": 1 + n % 3, "seed": n} for n in range(8)])
    assert [answer.status for answer in responses] == [200] * 8
    assert max(counts) == 2
