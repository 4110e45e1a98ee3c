"""Numbers of a server in the format of Prometheus: requests, rows, tokens, times."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from ensue.extensions.serving.processes import FOLDER

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The numbers of one process; `text` has those of all processes of a server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        shared: Any = {"namespace": "ensue", "registry": self.registry}
        timed, summed = shared | {"buckets": SECONDS}, shared | {"multiprocess_mode": "livesum"}
        model, route = ["model"], ["route"]
        self.requests = Counter("requests", "Answered requests", ["route", "status"], **shared)
        self.refused = Counter("refused", "Requests that were refused", ["code"], **shared)
        self.left = Counter("left", "Clients that left before their answer", **shared)
        self.seconds = Histogram("request_seconds", "From the headers to the end of the answer", route, **timed)
        self.first = Histogram("first_token_seconds", "To the first token of an answer", model, **timed)
        self.steps = Histogram("step_seconds", "One step of all live rows", model, **timed)
        self.prompt_tokens = Counter("prompt_tokens", "Tokens read", model, **shared)
        self.tokens = Counter("tokens", "Tokens written", model, **shared)
        self.rows = Gauge("live_rows", "Rows stepped together", model, **summed)
        self.waiting = Gauge("waiting_rows", "Prompts and rows that wait", model, **summed)
        self.held = Gauge("held", "What admitted requests hold", ["what"], **summed)
        self.sessions = Gauge("sessions", "Sessions that are kept", model, **summed)

    def text(self) -> bytes:
        """All numbers."""
        if FOLDER not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
