"""Randomly mutated requests: none is answered with an internal error, and none keeps resources."""

import json
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from ensue.extensions.serving.service import Resources
from extensions.serving.conftest import Shouter, language_pipeline

SANE: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"model": "lstm", "prompt": "The sea", "max_tokens": 3, "seed": 1}),
    ("/v1/completions", {"model": "bytes", "prompt": ["a", "é"], "max_tokens": 2, "n": 2, "best_of": 3, "logprobs": 2}),
    (
        "/v1/completions",
        {"model": "transformer", "prompt": [1, 2], "stop": ["a", "b c"], "stream": True, "echo": True, "max_tokens": 2},
    ),
    (
        "/v1/completions",
        {"model": "lstm", "prompt": [[1], [2, 3]], "logit_bias": {"3": 5}, "top_p": 0.5, "top_k": 3, "max_tokens": 2},
    ),
    ("/v1/completions", {"model": "lstm", "session": "a", "presence_penalty": 1, "min_p": 0.1, "max_tokens": 2}),
    (
        "/v1/completions",
        {"model": "lstm", "stream": True, "stream_options": {"include_usage": True}, "user": "me", "max_tokens": 2},
    ),
    ("/v1/embeddings", {"model": "lstm", "input": ["a"], "encoding_format": "base64", "dimensions": 3}),
    ("/v1/predict", {"model": "shouter", "inputs": ["a", "b"]}),
    ("/v1/score", {"model": "lstm", "inputs": ["The sea", ""]}),
    ("/v1/inspect", {"model": "lstm", "inputs": ["The"]}),
    ("/v1/inspect", {"model": "lstm", "inputs": ["The"], "at": 2, "token": "a", "off": "layer 1, cell: 1-3 = mean"}),
]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, "", "a", "\0", "\ud800",
    "é" * 50, "a" * 5000, [], {}, [[]], [None], [[1, "a"]], ["", ""], [1.5], [True], [[0], []], {"a": {}}, {"0": 0},
    {"1": 1e9}, ["\udfff"], [-1], [10**9], "lstm", "shouter", "transformer", "NaN",
]  # fmt: skip
PIECES = [
    b"NaN", b"1e999", b"\xff", b"{", b"}", b"[", b"\\u0000", b"\\ud83d", b"null", b"-", b'"', b",", b"9" * 400, b"\0",
]  # fmt: skip


def mutated(choose: Random, sane: dict[str, Any]) -> bytes:
    content = json.loads(json.dumps(sane))
    for _ in range(choose.randint(1, 3)):
        where = choose.choice([*content, choose.choice([*content, "n", "stop", "seed", "suffix", "odd", ""])])
        if choose.random() < 0.2:
            content.pop(where, None)
        elif isinstance(content.get(where), list) and choose.random() < 0.5:
            content[where].insert(choose.randint(0, len(content[where])), deepcopy(choose.choice(ODD)))
        else:
            content[where] = deepcopy(choose.choice(ODD))
        if not content:
            break
    text = json.dumps(content).encode()
    if choose.random() < 0.3:
        at = choose.randrange(len(text))
        text = text[:at] + choose.choice(PIECES) + text[at + choose.randint(0, 3) :]
    return text if choose.random() > 0.05 else text[: choose.randrange(len(text))]


def check(serve: Any, numbers: range, batch_size: int = 50) -> None:
    client, service = serve(
        {
            "lstm": language_pipeline(),
            "bytes": language_pipeline("bytes"),
            "transformer": language_pipeline(kind="transformer", d_model=12, num_heads=2, context=24),
            "shouter": Shouter(),
        },
        max_tokens=20, places=500,
    )  # fmt: skip
    statuses: dict[int, int] = {}
    for start in numbers[::batch_size]:
        for path, _ in SANE:
            requests = [
                mutated(Random(f"{number} {path}"), choice)
                for number in range(start, start + batch_size)
                for route, choice in [SANE[number % len(SANE)]]
                if route == path
            ]
            for request, answer in zip(requests, client.all(path, requests), strict=True):
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
                assert answer.status < 500, (path, request[:300], answer.body)
                if answer.status != 200:
                    assert set(answer.error) == {"message", "type", "param", "code"}
    assert service.admission.reserved == Resources()
    assert min(statuses[200], statuses[400]) > 0


@pytest.mark.slow
def test_three_thousand_mutated_requests_cause_no_internal_error(serve: Any, bugs: list[BaseException]) -> None:
    check(serve, range(3_000))
