"""Malicious clients: nothing blocks the event loop, outlives its request or grows without bound."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from ensue.extensions.serving.api import APIError, CompletionRequest, InspectRequest, TextsRequest
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.service import Resources
from ensue.extensions.serving.transport import count_values, parse_request
from ensue.inspection.page import json_chunks
from ensue.interruption import Interrupted, check_interrupted, interruptible
from extensions.serving.client import Answer, Client
from extensions.serving.conftest import Shouter, language_pipeline
from extensions.serving.watchdog import MAX_CALLBACK_SECONDS, longest_callback
from pages import REPOSITORY


class Slow(Shouter):
    """A predictor that needs 10 ms for each text, and counts the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def predict(self, texts: Any) -> list[Any]:
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            check_interrupted()
            time.sleep(0.001)
        self.count += len(texts)
        return [text.upper() for text in texts]


def many(item: str, count: int) -> str:
    return ",".join([item] * count)


def keys(value: str, count: int) -> str:
    return ",".join(f'"k{number}":{value}' for number in range(count))


HOSTILE: list[tuple[str, str, int]] = [  # a path, a body, the status
    ("/v1/predict", f'{{"model":"shouter","inputs":[{many("{}", 20_000)}]}}', 400),
    ("/v1/predict", f'{{"model":"shouter","inputs":[{many("[]", 20_000)}]}}', 400),
    ("/v1/completions", f'{{"model":"lstm","prompt":[{many("{}", 20_000)}]}}', 400),
    ("/v1/completions", f'{{"model":"lstm","prompt":[{many("7", 70_000)}]}}', 400),
    ("/v1/completions", f'{{"model":"lstm","stop":[{many("1", 20_000)}]}}', 400),
    ("/v1/completions", f'{{"model":"lstm",{keys("0", 20_000)}}}', 400),
    ("/v1/completions", f'{{"model":"lstm","logit_bias":{{{keys("{}", 20_000)}}}}}', 400),
    ("/v1/completions", f'{{"model":"lstm","stream":true,"stream_options":{{{keys("0", 20_000)}}}}}', 400),
    ("/v1/completions", json.dumps({"model": "lstm", "prompt": "\n" * 40_000, "max_tokens": 0}), 200),
    ("/v1/inspect", f'{{"model":"lstm","inputs":["a"],"parts":[{many("1", 20_000)}]}}', 400),
    ("/v1/embeddings", f'{{"model":"shouter","input":[{many("[]", 20_000)}]}}', 400),
    ("/v1/predict", f'{{"model":"shouter","inputs":[{many("[", 20_000)}', 400),
]
LARGE: list[tuple[str, str, int]] = [  # of megabytes
    ("/v1/predict", f'{{"model":"shouter","inputs":[{many("{}", 1_390_000)}]}}', 413),
    ("/v1/predict", f'{{"model":"shouter","inputs":[{many("[]", 500_000)}]}}', 413),
    ("/v1/predict", f'{{"model":"shouter","inputs":[[{many("[1]", 340_000)}]]}}', 413),
    ("/v1/completions", f'{{"model":"lstm","prompt":[{many("1", 1_000_000)}]}}', 413),
    ("/v1/completions", '{"model":"lstm","prompt":"' + "\\n" * 2_090_000 + '"}', 400),
    ("/v1/completions", '{"model":"lstm","logit_bias":{' + keys("0", 300_000) + "}}", 413),
]


@pytest.mark.parametrize(
    ("path", "body", "status"), [*HOSTILE, *(pytest.param(*case, marks=pytest.mark.slow) for case in LARGE)]
)
def test_a_malicious_body_is_answered_within_a_second(
    sea: Client, bugs: list[BaseException], path: str, body: str, status: int
) -> None:
    def ask() -> Answer:
        start = time.process_time()
        answer = sea.post(path, body.encode())
        assert time.process_time() - start < 1
        return answer

    longest = longest_callback(ask, (status,), MAX_CALLBACK_SECONDS)
    assert longest[0] < MAX_CALLBACK_SECONDS, longest


def test_a_key_counts_as_eight_values() -> None:
    assert [count_values(part) for part in (b'{"a": 1, "b" :[2]}', b":3", b'"a:b"')] == [3 + 2 * 8, 8, 0]


@pytest.mark.parametrize("kind", [CompletionRequest, TextsRequest, InspectRequest])
def test_only_the_first_error_of_a_request_is_reported(kind: type[Any]) -> None:
    wrong = {"inputs": [{}] * 3, "prompt": [{}] * 3, "at": "x", "n": "x", "max_tokens": [], "parts": [1, 2, 3]}
    parameters = {name: value for name, value in wrong.items() if name in kind.model_fields}
    with pytest.raises(APIError) as error:
        parse_request(kind, json.dumps({"model": 3, **parameters}).encode())
    assert error.value.param == "model"


ANSWERED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"model": "lstm", "n": 32, "max_tokens": 60, "logprobs": 5}),
    ("/v1/completions", {"model": "lstm", "n": 32, "max_tokens": 60, "logprobs": 5, "stream": True}),
    ("/v1/completions", {"model": "lstm", "prompt": "sea " * 500, "echo": True, "logprobs": 5, "max_tokens": 1}),
    ("/v1/inspect", {"model": "lstm", "inputs": ["The sea was calm. " * 20]}),
    ("/v1/score", {"model": "lstm", "inputs": ["The sea was calm. " * 100]}),
    ("/v1/predict", {"model": "shouter", "inputs": ["a"] * 1024}),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("path", "content"), ANSWERED)
def test_a_large_answer_does_not_block_the_event_loop(
    serve: Any, bugs: list[BaseException], path: str, content: dict[str, Any]
) -> None:
    client, service = serve({"lstm": language_pipeline(), "shouter": Shouter()})
    longest = longest_callback(lambda: client.post(path, content), (200,), MAX_CALLBACK_SECONDS)
    assert longest[0] < MAX_CALLBACK_SECONDS, longest
    assert service.admission.reserved == Resources()


def test_computation_ends_when_its_client_leaves(serve: Any, bugs: list[BaseException]) -> None:
    slow = Slow()
    client, service = serve({"slow": slow})

    async def scenario() -> list[int]:
        parameters = {"model": "slow", "inputs": ["a"] * 1000}
        abandoned = asyncio.ensure_future(client.ask("/v1/predict", parameters, leaves_in=0.05))
        await asyncio.sleep(0.02)
        assert service.admission.reserved.places == 1000
        short = await client.ask("/v1/predict", {"model": "slow", "inputs": ["b"]})
        assert short.status == 200  # the short request does not wait for the thousand texts
        await abandoned
        assert service.admission.reserved == Resources()
        counts = [slow.count]
        await asyncio.sleep(0.1)
        return [*counts, slow.count]

    before, after = asyncio.run(scenario())
    assert after <= before + 1 < 100


def test_computation_ends_after_the_time_of_a_request(serve: Any, bugs: list[BaseException]) -> None:
    slow = Slow()
    client, service = serve({"slow": slow}, request_seconds=0.1)
    answer = client.post("/v1/predict", {"model": "slow", "inputs": ["a"] * 1000})
    assert (answer.status, answer.error["code"]) == (503, "timeout")
    assert service.admission.reserved == Resources()
    count = slow.count
    time.sleep(0.05)
    assert slow.count <= count + 1 < 50


LONG: list[Callable[[Any], Any]] = [
    lambda pipeline: pipeline.search("The", max_tokens=5),
    lambda pipeline: list(pipeline.generate("The", max_tokens=5)),
    lambda pipeline: pipeline.score("The sea"),
    lambda pipeline: pipeline.inspect("The sea", at=3),
]


@pytest.mark.parametrize("compute", LONG)
def test_long_loops_can_be_interrupted(compute: Callable[[Any], Any]) -> None:
    pipeline = language_pipeline()
    compute(pipeline)
    with interruptible(lambda: True), pytest.raises(Interrupted):
        compute(pipeline)


def test_an_answer_is_bounded(serve: Any, bugs: list[BaseException]) -> None:
    client, service = serve({"lstm": language_pipeline()}, answer_bytes=20_000, inspected_characters=1000)
    content = {"model": "lstm", "inputs": ["The sea was calm. " * 20]}
    answer = client.post("/v1/inspect", content)
    assert (answer.status, answer.error["code"]) == (400, "answer_too_large")
    assert client.post("/v1/inspect", {**content, "parts": []}).status == 200
    longer = client.post("/v1/inspect", {**content, "inputs": ["a" * 1001]})
    assert (longer.status, longer.error["code"]) == (400, "text_too_long")
    assert service.admission.reserved == Resources()


def test_the_memory_of_a_completion_is_reserved(serve: Any, bugs: list[BaseException]) -> None:
    client, service = serve({"lstm": language_pipeline()}, answers=100_000)
    parameters = {"model": "lstm", "max_tokens": 100, "logprobs": 5}
    refused = client.post("/v1/completions", {**parameters, "n": 2})
    assert (refused.status, refused.error["param"]) == (400, "max_tokens")
    statuses = [answer.status for answer in client.all("/v1/completions", [parameters] * 3)]
    assert sorted(statuses) == [200, 429, 429]
    assert service.admission.reserved == Resources()


def test_a_place_is_held_until_the_answer_is_sent(serve: Any, bugs: list[BaseException]) -> None:
    pipeline = language_pipeline()
    pipeline.score("The sea")  # compilation may take longer than a request
    client, service = serve({"lstm": pipeline}, request_seconds=1, linger_seconds=0.05)

    async def scenario() -> list[Answer]:
        parameters = {"model": "lstm", "inputs": ["The sea"]}
        unread = [asyncio.ensure_future(client.ask("/v1/score", parameters, reads=False)) for _ in range(5)]
        while not service.admission.reserved.answers and not any(task.done() for task in unread):
            await asyncio.sleep(0.01)
        assert (service.admission.reserved.places, len(service.open_tasks)) == (5, 5)
        assert service.admission.reserved.answers > 0
        return list(await asyncio.gather(*unread))

    asyncio.run(scenario())
    assert (service.admission.reserved, len(service.open_tasks)) == (Resources(), 0)


def test_several_hosts_are_refused(sea: Client, bugs: list[BaseException]) -> None:
    for hosts in (["localhost", "evil.example"], ["evil.example", "localhost"], ["localhost", "localhost"]):
        answer = asyncio.run(sea.ask("/v1/models", None, more=[("host", host) for host in hosts[1:]], host=hosts[0]))
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("key", ["", " "])
def test_an_empty_key_is_refused(serve: Any, key: str) -> None:
    with pytest.raises(ValueError, match="empty"):
        serve({"shouter": Shouter()}, key=key)
    client, _ = serve({"shouter": Shouter()}, key="secret")
    for header in ("Bearer", "Bearer ", f"Bearer {key}", ""):
        assert client.post("/v1/predict", {"model": "shouter", "inputs": ["a"]}, authorization=header).status == 401


def test_all_limits_are_documented() -> None:
    page = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
    for field in fields(Limits):
        assert f"| `{field.name}` | {field.default:,} |" in page, field


def test_chunks_of_json_are_the_whole_document(monkeypatch: pytest.MonkeyPatch) -> None:
    from ensue.inspection import page  # noqa: PLC0415

    view = language_pipeline().inspect("The sea was calm.").view
    expected = page.as_json(view)
    monkeypatch.setattr(page, "NUM_ITEMS_PER_CHUNK", 5)
    pieces = list(json_chunks({"view": view, "empty": [[], {}, ()], "texts": ["é"] * 7, "none": None}))
    assert json.loads("".join(pieces)) == {
        "view": expected, "empty": [[], {}, []], "texts": ["é"] * 7, "none": None
    }  # fmt: skip
    assert max(map(len, pieces)) < 200
