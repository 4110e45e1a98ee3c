"""Completions: the API, sessions, streams, and independence of concurrent requests."""

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from ensue.extensions.serving.api import APIError
from ensue.extensions.serving.row import SessionState
from ensue.extensions.serving.served_model import SessionStore
from ensue.extensions.serving.service import Resources
from extensions.serving.client import Client
from extensions.serving.conftest import TEXT, language_pipeline

PATH = "/v1/completions"


def fields_of(model: str = "lstm", **wishes: Any) -> dict[str, Any]:
    return {"model": model, "prompt": "The sea", "max_tokens": 12, "seed": 3, **wishes}


def complete(client: Client, **wishes: Any) -> Any:
    answer = client.post(PATH, fields_of(**wishes))
    assert answer.status == 200, answer.body
    return answer.json


def various_requests(count: int, model: str) -> list[dict[str, Any]]:
    """Return requests with different prompts, lengths and sampling options."""
    samplings: list[dict[str, Any]] = [
        {}, {"temperature": 0.3}, {"temperature": 0}, {"top_p": 0.6},
        {"frequency_penalty": 1.2, "presence_penalty": -1},
        {"logit_bias": {"3": 5, "4": -100}}, {"top_k": 4, "min_p": 0.05}, {"n": 2}, {"echo": True},
    ]  # fmt: skip
    return [
        fields_of(
            model, prompt=TEXT[: 7 * n % 24], max_tokens=3 + 5 * n % 40, seed=n, logprobs=n % 3, **samplings[n % 9]
        )
        for n in range(count)
    ]


def check_independence(client: Client, model: str, count: int, num_checked: int) -> None:
    requests = various_requests(count, model)
    answers = client.all(PATH, requests)
    for request, answer in list(zip(requests, answers, strict=True))[:: count // num_checked]:
        alone = client.post(PATH, request)
        assert answer.status == 200
        assert answer.json["choices"] == alone.json["choices"]  # all bits of the log-probabilities


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_an_answer_does_not_depend_on_the_others(sea: Client, model: str) -> None:
    check_independence(sea, model, 9, 9 if model == "lstm" else 3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_an_answer_does_not_depend_on_63_others(serve: Any, model: str) -> None:
    kinds: dict[str, Any] = {
        "lstm": {"d_embedding": 32, "d_model": 64},
        "transformer": {"kind": "transformer", "d_model": 64, "num_heads": 4, "context": 32},
    }
    client, _ = serve({model: language_pipeline(**kinds[model])})
    check_independence(client, model, 64, 64)


def test_an_answer_has_the_fields_of_the_api(sea: Client) -> None:
    completion = complete(sea)
    assert (completion["object"], completion["model"]) == ("text_completion", "lstm")
    assert completion["id"].startswith("cmpl-")
    (choice,) = completion["choices"]
    assert (choice["index"], len(choice["text"]), choice["finish_reason"], choice["logprobs"]) == (
        0, 12, "length", None,
    )  # fmt: skip
    assert completion["usage"] == {"prompt_tokens": 7, "completion_tokens": 12, "total_tokens": 19}
    assert complete(sea)["choices"] == completion["choices"]
    assert complete(sea, seed=4)["choices"] != completion["choices"]


def test_greedy_completions_are_those_of_generate(sea: Client) -> None:
    for model, pipeline in {
        "lstm": language_pipeline(),
        "transformer": language_pipeline(kind="transformer", d_model=12, num_heads=2, context=24),
    }.items():
        expected = "".join(pipeline.generate("The sea", max_tokens=25, temperature=0))
        assert complete(sea, model=model, temperature=0, max_tokens=25)["choices"][0]["text"] == expected


def test_logprobs_are_those_of_score(sea: Client) -> None:
    """With echo and no new tokens, like a scorer: the first token has no score, and offsets are those of the text."""
    prompt = TEXT[:240]
    shown = complete(sea, prompt=prompt, echo=True, max_tokens=0, logprobs=1)["choices"][0]["logprobs"]
    nats = [-score.nats for score in language_pipeline().score(prompt)]
    assert shown["token_logprobs"][0] is None
    assert shown["top_logprobs"][0] is None
    assert shown["token_logprobs"][1:] == pytest.approx(nats[1:], abs=1e-5)
    assert "".join(shown["tokens"]) == prompt
    assert shown["text_offset"] == list(range(240))
    best = zip(shown["token_logprobs"][1:], shown["top_logprobs"][1:], strict=True)
    assert all(log_p == top[token] <= max(top.values())
               for (log_p, top), token in zip(best, shown["tokens"][1:], strict=True))  # fmt: skip
    more = complete(sea, prompt=prompt, echo=True, max_tokens=1, logprobs=1)["choices"][0]["logprobs"]
    assert len(more["tokens"]) == 241
    assert more["token_logprobs"][:240] == shown["token_logprobs"]


def test_prompts_may_be_texts_ids_or_lists(sea: Client) -> None:
    tokenizer = language_pipeline().tokenizer
    texts = ["The sea", "calm"]
    ids = [tokenizer.encode(text).tolist() for text in texts]
    one = complete(sea, prompt=ids[0])["choices"]
    assert one == complete(sea, prompt=texts[0])["choices"]
    both = complete(sea, prompt=texts, n=2)["choices"]
    assert both == complete(sea, prompt=ids, n=2)["choices"]
    assert [choice["index"] for choice in both] == [0, 1, 2, 3]
    assert both[0] == one[0]
    assert len({choice["text"] for choice in both}) == 4
    assert complete(sea, prompt="", echo=True)["choices"][0]["text"]


def test_best_of_returns_the_most_probable_choices(sea: Client) -> None:
    def mean(choice: Any) -> float:
        logs = choice["logprobs"]["token_logprobs"]
        return float(sum(logs) / len(logs))

    all_of_them = complete(sea, n=6, logprobs=0)["choices"]
    best = complete(sea, n=2, best_of=6, logprobs=0)
    expected = sorted(all_of_them, key=mean, reverse=True)[:2]
    assert [choice["text"] for choice in best["choices"]] == [choice["text"] for choice in expected]
    assert best["usage"]["completion_tokens"] == 72


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wishes", [{}, {"stop": ["ea", "a"], "n": 3}, {"echo": True, "logprobs": 2, "stop": "t"}])
def test_the_chunks_of_a_stream_are_the_answer(sea: Client, wishes: dict[str, Any]) -> None:
    completion = complete(sea, model="bytes", max_tokens=60, **wishes)
    options = {"include_usage": True}
    answer = sea.post(PATH, fields_of("bytes", max_tokens=60, stream=True, stream_options=options, **wishes))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.body.endswith(b"data: [DONE]\n\n")
    *pieces, last = answer.events
    assert (last["choices"], last["usage"]) == ([], completion["usage"])
    for choice in completion["choices"]:
        chunks = [chunk for piece in pieces for chunk in piece["choices"] if chunk["index"] == choice["index"]]
        assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
        assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + [choice["finish_reason"]]
        if choice["logprobs"]:
            for key, values in choice["logprobs"].items():
                assert [value for chunk in chunks for value in chunk["logprobs"][key]] == values


def test_a_stop_string_ends_a_text_across_tokens(sea: Client) -> None:
    text = complete(sea, max_tokens=40)["choices"][0]["text"]
    stop = text[10:13]
    choice = complete(sea, max_tokens=40, stop=stop, logprobs=1)["choices"][0]
    assert choice["text"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    assert choice["logprobs"]["text_offset"] == list(range(len(choice["text"])))


def test_biases_force_and_forbid_tokens_and_penalties_avoid_repetition(sea: Client) -> None:
    tokenizer = language_pipeline().tokenizer
    token_id = int(tokenizer.encode("e")[0])
    assert complete(sea, logit_bias={str(token_id): 100})["choices"][0]["text"] == "e" * 12
    never = complete(sea, logit_bias={str(token_id): -100}, max_tokens=60)["choices"][0]["text"]
    assert "e" not in never
    once = complete(sea, temperature=0, frequency_penalty=2, presence_penalty=2, max_tokens=30)["choices"][0]["text"]
    assert len(set(once)) > len(set(complete(sea, temperature=0, max_tokens=30)["choices"][0]["text"]))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_a_session_continues_its_text(sea: Client, model: str) -> None:
    full_text = complete(sea, model=model, prompt="The sea was", max_tokens=8, temperature=0)["choices"][0]["text"]
    first = complete(sea, model=model, prompt="The sea", max_tokens=0, session="a")
    assert first["choices"][0]["text"] == ""
    then = complete(sea, model=model, prompt=" was", max_tokens=5, temperature=0, session="a")["choices"][0]["text"]
    rest = complete(sea, model=model, prompt="", max_tokens=3, temperature=0, session="a")["choices"][0]["text"]
    assert then + rest == full_text
    for _ in range(4):  # longer than a context
        assert complete(sea, model=model, prompt="calm", max_tokens=4, session="a")["usage"]["prompt_tokens"] == 4


def test_requests_of_a_session_are_undone(sea: Client) -> None:
    def goes_on(prompt: str, undo: int = 0) -> str:
        answer = complete(sea, prompt=prompt, max_tokens=6, temperature=0, session="undone", undo=undo)
        text: str = answer["choices"][0]["text"]
        return text

    first, second, third = (goes_on(prompt) for prompt in ("The sea", " was", " calm"))
    assert goes_on(" calm", undo=1) == third
    assert goes_on(" was", undo=2) == second
    assert goes_on("The sea", undo=2) == first
    refused = sea.post(PATH, fields_of(session="undone", undo=2))
    assert (refused.status, refused.json["error"]["code"]) == (400, "cannot_undo")
    assert refused.json["error"]["message"] == "undo: 2; the session has 1 requests that can be undone"
    assert goes_on(" was") == second  # a request that is refused changes nothing
    assert sea.post(PATH, fields_of(undo=1)).json["error"]["param"] == "undo"


def test_the_last_eight_requests_of_a_session_can_be_undone() -> None:
    sessions, states = SessionStore(2, 60, 8, 1000), [SessionState(None, np.array([n])) for n in range(12)]
    for state in states:
        sessions.begin("a")
        sessions.end("a", state)

    def before(undo: int) -> SessionState | None:
        state = sessions.begin("a", undo)
        sessions.end("a", None)
        return state

    assert [before(undo) for undo in range(9)] == states[:2:-1]
    with pytest.raises(APIError, match="9; the session has 8 requests"):
        sessions.begin("a", 9)
    sessions.begin("a", 3)
    sessions.end("a", states[0])
    assert [before(undo) for undo in range(7)] == [states[n] for n in (0, 8, 7, 6, 5, 4, 3)]


def test_an_evicted_session_with_an_open_request_can_still_undo_it() -> None:
    sessions, states = SessionStore(1, 60, 8, 1000), [SessionState(None, np.array([n])) for n in range(2)]
    for name, state in (("a", states[0]), ("b", states[1])):
        sessions.begin("a")
        if name == "b":  # evicts the session a
            sessions.begin("b")
            sessions.end("b", states[1])
        sessions.end("a", state)
    assert sessions.begin("a", 1) == states[0]


@pytest.mark.parametrize("adaptation", [{"cache": 40, "cache_weight": 0.5}, {"dynamic": 0.5, "dynamic_segment": 4}])
def test_a_session_adapts_to_its_text_until_it_is_undone(serve: Any, adaptation: dict[str, Any]) -> None:
    """Like `with_adaptation` in Python. Other sessions and the model do not change."""
    pipeline = language_pipeline()
    adapted = pipeline.with_adaptation(**adaptation)
    client, _ = serve({"lstm": adapted})
    read, prompt = "calm calm calm calm calm", " cal"
    ask = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 0}

    def nats(**fields: Any) -> list[float]:
        answer = complete(client, prompt=prompt, max_tokens=5, logprobs=0, temperature=0, **fields)
        log_probabilities: list[float] = answer["choices"][0]["logprobs"]["token_logprobs"]
        return log_probabilities

    alone = nats()
    assert nats(session="a") == pytest.approx(alone)
    complete(client, prompt=read, max_tokens=0, session="b")
    learned = nats(session="b")
    assert learned != pytest.approx(alone)
    scores = adapted.score(read + prompt)
    assert complete(client, **(ask | {"prompt": read + prompt}))["choices"][0]["logprobs"]["token_logprobs"][1:] == (
        pytest.approx([-token.nats for token in scores][1:], abs=1e-5)
    )
    assert nats(session="b", undo=2) == pytest.approx(alone)
    assert nats() == pytest.approx(alone)
    assert language_pipeline().score(read)[3].nats == pipeline.score(read)[3].nats


def test_a_client_that_leaves_frees_its_places(serve: Any) -> None:
    client, service = serve({"lstm": language_pipeline()}, rows=2)

    async def scenario() -> None:
        await client.ask(PATH, fields_of(max_tokens=50_000, stream=True, session="s"), leaves_after=2)
        assert service.admission.reserved == Resources()
        answer = await client.ask(PATH, fields_of(n=2))
        assert answer.status == 200
        loop = service.models["lstm"].loop
        assert loop is not None
        assert (loop.waiting, len(service.models["lstm"].sessions)) == (0, 0)

    asyncio.run(scenario())


def test_a_client_that_leaves_before_a_token_has_no_live_rows(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are dropped, also if reading the first prompt takes long."""
    client, service = serve({"lstm": language_pipeline()})
    loop, have_left = service.models["lstm"].loop, threading.Event()
    read = loop._read_chunk
    monkeypatch.setattr(loop, "_read_chunk", lambda prompt: have_left.wait(10) and read(prompt))

    async def scenario() -> None:
        await asyncio.gather(*(client.ask(PATH, fields_of(n=3, stream=True), leaves_in=0.01) for _ in range(3)))
        assert service.admission.reserved == Resources()
        have_left.set()

    asyncio.run(scenario())
    while loop.waiting:
        time.sleep(0.001)
    assert b'ensue_live_rows{model="lstm"} 0.0' in client.get("/metrics").body


def test_choices_beyond_the_number_of_rows_wait(serve: Any) -> None:
    client, _ = serve({"lstm": language_pipeline()}, rows=3)
    answers = client.all(PATH, [fields_of(n=5, seed=n) for n in range(4)])
    assert [len(answer.json["choices"]) for answer in answers] == [5] * 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_a_request_of_many_rows_does_not_delay_others(serve: Any, model: str) -> None:
    """Its rows wait with their states while others are generated, and have the same bits as alone."""
    kind: dict[str, Any] = {"kind": "transformer", "d_model": 12, "num_heads": 2, "context": 24}
    client, service = serve({model: language_pipeline(**(kind if model == "transformer" else {}))}, rows=4)
    many_rows = fields_of(model, n=10, max_tokens=24, logprobs=1)
    few_rows = [fields_of(model, seed=seed, logprobs=1) for seed in (1, 2)]
    alone = [client.post(PATH, wishes).json["choices"] for wishes in (many_rows, *few_rows)]

    async def scenario() -> Any:
        long_request = asyncio.ensure_future(client.ask(PATH, many_rows))
        while not service.models[model].loop.num_live:
            await asyncio.sleep(0)
        short = await asyncio.gather(*(client.ask(PATH, wishes) for wishes in few_rows))
        assert not long_request.done()
        return [answer.json["choices"] for answer in (await long_request, *short)]

    assert asyncio.run(scenario()) == alone


def test_a_long_request_has_an_eighth_of_the_rows_while_others_are_open(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others find free rows, and their steps have few rows."""
    monkeypatch.setattr("ensue.extensions.serving.generation.MIN_LONG_TOKENS", 20)
    client, service = serve({"lstm": language_pipeline()}, rows=8)
    loop, step_sizes = service.models["lstm"].loop, list[int]()
    stepped = loop._batch.step
    monkeypatch.setattr(loop._batch, "step", lambda ids: (step_sizes.append(len(ids)), stepped(ids))[1])

    async def scenario() -> None:
        long_request = asyncio.ensure_future(client.ask(PATH, fields_of(n=8, max_tokens=150)))
        while len(step_sizes) < 10:
            await asyncio.sleep(0)
        await client.ask(PATH, fields_of(max_tokens=40))
        await long_request

    asyncio.run(scenario())
    assert step_sizes[0] == 8
    assert 8 in step_sizes[step_sizes.index(2) :]
    assert step_sizes.count(2) >= 35  # one of its rows, and the other


def test_scores_that_are_not_finite_are_an_error(serve: Any, bugs: list[BaseException]) -> None:
    pipeline = language_pipeline()
    with torch.no_grad():
        next(pipeline.model.head.parameters()).fill_(float("nan"))
    client, service = serve({"lstm": pipeline})
    answer = client.post(PATH, fields_of())
    assert (answer.status, answer.error["type"]) == (500, "server_error")
    assert "finite" in answer.error["message"]
    assert service.admission.reserved == Resources()
    bugs.clear()
