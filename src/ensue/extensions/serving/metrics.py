"""Metrics of a server in Prometheus's format: requests, rows, tokens, and times."""

import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from ensue.extensions.serving.processes import METRICS_FOLDER_VARIABLE

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        shared: Any = {"namespace": "ensue", "registry": self.registry}
        timed, summed = shared | {"buckets": SECONDS}, shared | {"multiprocess_mode": "livesum"}
        model, route = ["model"], ["route"]
        self.requests = Counter("requests", "Answered requests", ["route", "status"], **shared)
        self.refused = Counter("refused", "Responses with an error", ["code"], **shared)
        self.left = Counter("left", "Clients that disconnected before their answer", **shared)
        self.seconds = Histogram("request_seconds", "Time from the headers to the end of the answer", route, **timed)
        self.first = Histogram("first_token_seconds", "Time to the first token", model, **timed)
        self.steps = Histogram("step_seconds", "Time of one step of all live rows", model, **timed)
        self.prompt_tokens = Counter("prompt_tokens", "Prompt tokens", model, **shared)
        self.tokens = Counter("tokens", "Generated tokens", model, **shared)
        self.rows = Gauge("live_rows", "Rows stepped together", model, **summed)
        self.waiting = Gauge("waiting_rows", "Prompts and rows that wait", model, **summed)
        self.held = Gauge("held", "Resources reserved by open requests", ["what"], **summed)
        self.sessions = Gauge("sessions", "Stored sessions", model, **summed)

    def text(self) -> bytes:
        """Return the metrics, summed over all processes of the server, in Prometheus's text format."""
        if METRICS_FOLDER_VARIABLE not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
