"""Routes other than completions: answers, and refused requests with their errors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ensue.extensions.serving.routes import ROUTES
from ensue.extensions.serving.service import Resources
from ensue.library import load
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from extensions.serving import conftest
from extensions.serving.client import Answer, Client
from training.tiny import run_tiny
from training.tiny_texts import TREEBANK, cutting, tagging

PREDICTION = {"model": "shouter", "inputs": ["a"]}


def refused(answer: Answer, status: int, code: str | None = None) -> Any:
    assert answer.status == status, answer.body
    assert set(answer.json) == {"error"}
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert "/somewhere" not in answer.body.decode()
    assert code is None or answer.error["code"] == code
    return answer.error


def test_other_tasks_answer_in_order(sea: Client) -> None:
    answer = sea.post("/v1/predict", {"model": "shouter", "inputs": ["b", "a", "b"]})
    assert [output["prediction"] for output in answer.json["outputs"]] == ["B", "A", "B"]
    assert sea.post("/v1/predict", {"model": "shouter", "inputs": []}).json["outputs"] == []
    loud = sea.post("/v1/predict", {"model": "shouter", "inputs": ["b"], "n_best": 2})
    assert [output["prediction"] for output in loud.json["outputs"]] == ["B!!"]
    for n_best in (0, 4):
        refused(sea.post("/v1/predict", {"model": "shouter", "inputs": ["b"], "n_best": n_best}), 400, "invalid_value")
    scored = sea.post("/v1/score", {"model": "lstm", "inputs": ["The sea", ""]}).json["outputs"]
    assert [token["token"] for token in scored[0]["tokens"]] == list("The sea")
    assert scored[1] == {"nats": 0, "tokens": []}


def test_a_tagger_is_refused_after_models_that_are_no_cutters(sea: Client) -> None:
    fields = {"model": "shouter", "inputs": ["b"]}
    message = refused(sea.post("/v1/predict", fields | {"tagger": "lstm"}), 400, "invalid_value")["message"]
    assert message == "tagger: shouter: the model is not a cutter; lstm needs a cutter before it"
    refused(sea.post("/v1/predict", fields | {"tagger": "nobody"}), 404, "model_not_found")
    refused(sea.post("/v1/predict", fields | {"tagger": 1}), 400)


@pytest.mark.slow
def test_a_tagger_labels_the_words_of_a_cutter(tmp_path: Path, serve: Any) -> None:
    gold = tmp_path / "gold.conllu"
    gold.write_text(TREEBANK * 8)
    run_tiny(cutting(gold), tmp_path / "cutter")
    run_tiny(
        tagging(gold, data={"labels": "upos", "valid": str(gold), "format": "conllu"}, steps=40), tmp_path / "words"
    )
    client, _ = serve({name: load(tmp_path / name, device="cpu") for name in ("cutter", "words")})
    fields = {"model": "cutter", "inputs": ["Go! Go!", ""]}
    go, nothing = client.post("/v1/predict", fields | {"tagger": "words"}).json["outputs"]
    assert [[word["label"] for word in sentence["words"]] for sentence in go["sentences"]] == [["VERB", "PUNCT"]] * 2
    assert nothing == {"text": "", "sentences": []}
    message = refused(client.post("/v1/predict", fields | {"tagger": "cutter"}), 400, "invalid_value")["message"]
    assert message == "tagger: cutter: expected a tagger of words after a cutter"


def test_a_translator_takes_a_glossary_and_keeps_markup(serve: Any) -> None:
    pytest.importorskip("ensue.extensions.localization")
    client, _ = serve({"ende": conftest.translating_pipeline(), "shouter": conftest.Shouter()}, terms=2)
    inputs = ["the <b>sea</b> was {n} calm", "was calm"]
    fields = {"model": "ende", "inputs": inputs, "glossary": [["sea", "Meer"], ["", "!ruhig"]], "keep_markup": True}
    one, other = (output["text"] for output in client.post("/v1/predict", fields).json["outputs"])
    assert "Meer" in one
    assert [one.count(piece) for piece in ("<b>", "</b>", "{n}")] == [1, 1, 1]
    assert "ruhig" not in one + other
    assert "<b>" not in other
    for wrong in ([["sea"]], [["sea", 1]], "sea", [["sea", "Meer"]] * 3, [["sea", "x" * 257]], [["sea", "See"]]):
        error = refused(client.post("/v1/predict", fields | {"glossary": wrong}), 400, "invalid_value")
        assert error["param"] == "glossary"
    against = fields | {"glossary": [["sea", "Meer"], ["sea", "!Meer"]]}
    assert "pair 2 of the glossary forbids it" in refused(client.post("/v1/predict", against), 400)["message"]
    for option in ({"glossary": []}, {"keep_markup": True}):
        refused(client.post("/v1/predict", {"model": "shouter", "inputs": ["b"], **option}), 400, "model_not_supported")


def test_errors_of_options_do_not_show_the_path_of_a_model(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ensue.extensions.localization")
    client, _ = serve({"ende": conftest.translating_pipeline()})
    monkeypatch.setattr(SequencePipeline, "num_texts", 2)
    fields = {"model": "ende", "inputs": [["the sea", "was calm"]], "keep_markup": True}
    error = refused(client.post("/v1/predict", fields), 400, "invalid_value")
    assert error["message"].startswith("keep_markup: ende: markup needs models of one source text")


def test_a_model_of_frames_takes_numbers(serve: Any, bugs: list[BaseException]) -> None:
    client, _ = serve(
        {"motion": conftest.frame_pipeline(), "next": conftest.next_pipeline(), "shouter": conftest.Shouter()}
    )
    series = [[[0.5, 1], [2, 3.5]], [[0, 0]]]
    outputs = client.post("/v1/predict", {"model": "motion", "inputs": series}).json["outputs"]
    assert [output["series"] for output in outputs] == ["0", "1"]
    assert sum(outputs[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    expected = client.post("/v1/predict", {"model": "next", "inputs": series}).json["outputs"]
    assert [len(output["mean"]) for output in expected] == [2, 2]
    scored = client.post("/v1/score", {"model": "next", "inputs": series}).json["outputs"]
    assert [len(output["frames"]) for output in scored] == [2, 1]
    assert refused(client.post("/v1/completions", {"model": "next", "prompt": ""}), 400)
    for name, what in (("motion", "integrated"), ("next", "mean")):
        answer = client.post("/v1/inspect", {"model": name, "inputs": series[:1], "parts": ["view"]})
        (inspected,) = answer.json["outputs"]
        assert inspected["view"]["frames"] == series[0]
        assert what in inspected["view"]
        refused(client.post("/v1/inspect", {"model": name, "inputs": [[]]}), 400, "invalid_value")
    for wrong in ("a text", ["a text"], [1.5], [[1]], []):
        refused(client.post("/v1/predict", {"model": "motion", "inputs": [wrong]}), 400, "invalid_value")
    refused(client.post("/v1/predict", {"model": "shouter", "inputs": series}), 400, "invalid_value")
    content = {"model": "next", "inputs": series, "n_best": 2}
    refused(client.post("/v1/predict", content), 400, "model_not_supported")


def test_an_inspection_has_numbers_and_a_page(sea: Client) -> None:
    fields = {"model": "lstm", "inputs": ["The sea"]}
    (both,) = sea.post("/v1/inspect", fields).json["outputs"]
    assert "<html" in both["page"]
    assert "".join(both["view"]["tokens"]) == both["title"] == "The sea"
    scored = sea.post("/v1/score", fields).json["outputs"][0]["tokens"]
    assert both["view"]["predictions"]["surprisals"] == pytest.approx([one["nats"] for one in scored] + [None])
    assert {len(units["values"]) for units in both["view"]["units"]} == {7}
    (content,) = sea.post("/v1/inspect", fields | {"parts": ["content"]}).json["outputs"]
    assert set(content) == {"title", "content"}
    assert content["content"] in both["page"]
    (why,) = sea.post("/v1/inspect", fields | {"at": 4, "token": "c", "off": "layer 1, cell: 0"}).json["outputs"]
    assert why["view"]["explanation"]["place"] == 3
    assert len(why["view"]["predictions_without"]["surprisals"]) == 8
    refused(sea.post("/v1/inspect", fields | {"parts": ["all"]}), 400)
    for wrong in ({"at": -1}, {"at": 9}, {"at": "1"}, {"token": "ab"}, {"off": "layer 1, cell: 99"}):
        refused(sea.post("/v1/inspect", fields | wrong), 400, "invalid_value")
    refused(sea.post("/v1/inspect", {"model": "shouter", "inputs": ["a"], "at": 1}), 400, "model_not_supported")
    refused(sea.post("/v1/inspect", fields | {"inputs": [["a", "b"]]}), 400, "invalid_value")


def test_models_the_schema_and_metrics_are_listed(sea: Client) -> None:
    models = sea.get("/v1/models").json["data"]
    assert {model["id"]: model["routes"][0] for model in models}["lstm"] == "/v1/completions"
    assert sea.get("/v1/models/lstm").json["task"] == "language-modeling"
    refused(sea.get("/v1/models/lsdm"), 404, "model_not_found")
    document = sea.get("/openapi.json").json
    fields = document["components"]["schemas"]["CompletionRequest"]["properties"]
    assert {"prompt", "logprobs", "session"} <= set(fields)
    assert b"ensue_tokens_total" in sea.get("/metrics").body


def test_answers_have_the_types_of_the_schema(sea: Client) -> None:
    fields: dict[str, Any] = {
        "/v1/completions": {"model": "lstm", "prompt": "The", "max_tokens": 2, "logprobs": 1, "echo": True},
        "/v1/predict": PREDICTION, "/v1/score": {"model": "lstm", "inputs": ["a"]},
        "/v1/inspect": {"model": "lstm", "inputs": ["a"]}, "/v1/embeddings": {"model": "lstm", "input": "a"},
    }  # fmt: skip
    for route in ROUTES:
        path = route.path.replace("{model}", "lstm")
        answer = sea.get(path) if route.method == "GET" else sea.post(path, fields[path])
        assert answer.status == (400 if path == "/v1/embeddings" else 200), path
        if answer.status == 200 and not isinstance(route.answer, str):
            assert set(answer.json) <= set(route.answer.model_fields)
            route.answer.model_validate(answer.json)
    assert b'ensue_requests_total{route="/v1/models/{model}"' in sea.get("/metrics").body


BAD: list[tuple[Any, int, str | None]] = [
    (b'{"model": "lstm", ', 400, "invalid_json"), (b"\xff\xfe", 400, "invalid_json"), (b"[1]", 400, "invalid_json"),
    (b"[" * 100_000, 400, "invalid_json"),
    (b'{"model": "lstm", "max_tokens": ' + b"9" * 5000 + b"}", 400, "invalid_json"), ({}, 400, "missing_parameter"),
    ({"model": "sea"}, 404, "model_not_found"), (b'{"model": "\\ud800"}', 404, "model_not_found"),
    ({"model": "shouter"}, 400, "model_not_supported"), ({"model": "lstm", "promt": "a"}, 400, "unknown_parameter"),
    ({"model": "lstm", "prompt": 3}, 400, None), ({"model": "lstm", "prompt": [1, "a"]}, 400, None),
    ({"model": "lstm", "prompt": [10**9]}, 400, None), ({"model": "lstm", "prompt": [-1]}, 400, None),
    ({"model": "lstm", "n": 10**30}, 400, None), ({"model": "lstm", "n": 0}, 400, None),
    ({"model": "lstm", "max_tokens": 10**12}, 400, None), ({"model": "lstm", "max_tokens": "4"}, 400, None),
    ({"model": "lstm", "temperature": True}, 400, None), ({"model": "lstm", "temperature": 3}, 400, None),
    ({"model": "lstm", "best_of": 1, "n": 2}, 400, None),
    ({"model": "lstm", "best_of": 3, "n": 2, "stream": True}, 400, None),
    ({"model": "lstm", "stop": ["a"] * 5}, 400, None), ({"model": "lstm", "stop": ""}, 400, None),
    ({"model": "lstm", "logit_bias": {"x": 1}}, 400, None), ({"model": "lstm", "logit_bias": {"99999": 1}}, 400, None),
    ({"model": "lstm", "session": "a", "n": 2}, 400, None), ({"model": "lstm", "suffix": "a"}, 400, None),
    ({"model": "transformer", "prompt": "a" * 25}, 400, "context_length_exceeded"),
    ({"model": "lstm", "prompt": "a", "logprobs": 6}, 400, None),
]  # fmt: skip


@pytest.mark.parametrize(("content", "status", "code"), BAD)
def test_invalid_requests_are_refused(
    sea: Client, bugs: list[BaseException], content: Any, status: int, code: str | None
) -> None:
    refused(sea.post("/v1/completions", content), status, code)


def test_nan_is_refused(sea: Client, bugs: list[BaseException]) -> None:
    for value in ("NaN", "Infinity", "1e999"):
        refused(sea.post("/v1/completions", f'{{"model": "lstm", "temperature": {value}}}'.encode()), 400)


def test_unknown_paths_and_methods_are_refused(sea: Client, bugs: list[BaseException]) -> None:
    refused(sea.get("/v1/nothing"), 404)
    refused(sea.get("/v1/completions"), 405)
    refused(sea.post("/health", {}), 405)
    assert sea.get("/health").json == {"status": "ok"}
    assert sea.get("/ready").json == {"status": "ready"}


def test_odd_texts_are_answered(sea: Client, bugs: list[BaseException]) -> None:
    answer = sea.post("/v1/completions", b'{"model": "bytes", "prompt": "\\ud800\\u0000", "echo": true}')
    assert answer.status == 200
    assert answer.json["choices"][0]["text"].startswith("\ufffd\0")


def test_wrong_keys_hosts_and_origins_are_refused(serve: Any, bugs: list[BaseException]) -> None:
    client, _ = serve({"shouter": conftest.Shouter()}, key="sécret")
    refused(client.post("/v1/predict", PREDICTION), 401, "invalid_api_key")
    refused(client.post("/v1/predict", PREDICTION, authorization="Bearer secret"), 401, "invalid_api_key")
    refused(client.post("/v1/predict", PREDICTION, authorization="sécret"), 401, "invalid_api_key")
    refused(client.get("/metrics"), 401)
    assert client.get("/health").status == 200
    right = {"authorization": b"Bearer s\xc3\xa9cret".decode("latin-1")}
    assert client.post("/v1/predict", PREDICTION, **right).status in (200, 401)
    client, _ = serve({"shouter": conftest.Shouter()}, key="secret")
    right = {"authorization": "Bearer secret"}
    assert client.post("/v1/predict", PREDICTION, **right).status == 200
    refused(client.post("/v1/predict", PREDICTION, **right, host="evil.example"), 400, "untrusted_host")
    refused(client.post("/v1/predict", PREDICTION, **right, origin="http://evil.example"), 403, "cross_origin")
    assert client.post("/v1/predict", PREDICTION, **right, host="[::1]:80", origin="http://[::1]:80").status == 200


def test_an_internal_error_does_not_show_its_message(serve: Any) -> None:
    client, service = serve({"shouter": conftest.Shouter()})
    conftest.BUGS.clear()
    error = refused(client.post("/v1/predict", {"model": "shouter", "inputs": ["boom"]}), 500, "internal_error")
    assert "secret" not in json.dumps(error)
    assert [type(bug) for bug in conftest.BUGS] == [ZeroDivisionError]
    assert service.admission.reserved == Resources()


def test_a_full_server_answers_429_with_retry_after(serve: Any, bugs: list[BaseException]) -> None:
    client, service = serve({"lstm": conftest.language_pipeline()}, places=4, tokens=300, body_bytes=2000)
    fields = {"model": "lstm", "max_tokens": 100}
    refused(client.post("/v1/completions", {**fields, "n": 5}), 400)
    refused(client.post("/v1/completions", {**fields, "n": 4}), 400)
    refused(client.post("/v1/completions", {**fields, "prompt": "a" * 3000}), 413)
    answers = client.all("/v1/completions", [fields] * 9)
    full = [answer for answer in answers if answer.status == 429]
    assert {answer.status for answer in answers} == {200, 429}
    assert len(full) >= 6  # 3 x 100 tokens
    assert all(answer.headers["retry-after"] == "1" for answer in full)
    assert service.admission.reserved == Resources()


def test_a_loading_or_draining_server_answers_503(serve: Any, bugs: list[BaseException]) -> None:
    client, service = serve({"lstm": conftest.language_pipeline()}, drain_seconds=0.05)
    service.state = "loading"
    assert client.get("/ready").status == 503
    assert refused(client.post("/v1/completions", {"model": "lstm"}), 503, "server_loading")
    service.state = "ready"

    async def end() -> tuple[Answer, Answer]:
        fields = {"model": "lstm", "max_tokens": 60_000, "stream": True}
        open_one = asyncio.ensure_future(client.ask("/v1/completions", fields))
        await asyncio.sleep(0.05)
        await service.drain()
        return await open_one, await client.ask("/v1/completions", fields)

    broken, late = asyncio.run(end())
    refused(late, 503, "server_draining")
    assert late.headers["retry-after"]
    assert broken.events[-1]["error"]["code"] == "server_draining"
    assert service.admission.reserved == Resources()


def test_an_answer_that_takes_too_long_ends_with_a_timeout(serve: Any, bugs: list[BaseException]) -> None:
    client, service = serve({"lstm": conftest.language_pipeline()}, request_seconds=0.05)
    refused(client.post("/v1/completions", {"model": "lstm", "max_tokens": 60_000}), 503, "timeout")
    assert service.admission.reserved == Resources()


def test_the_page_at_the_root_needs_neither_key_nor_models(serve: Any) -> None:
    client, service = serve({"shouter": conftest.Shouter()}, key="secret")
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "connect-src 'self'" in policy
    assert "script-src 'unsafe" not in policy
    assert "shouter" not in page.body.decode()
    service.state = "loading"
    assert client.get("/").body == page.body
    refused(client.post("/", {}), 405)
    refused(client.get("/", host="evil.example"), 400, "untrusted_host")
