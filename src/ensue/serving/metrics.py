"""Numbers of a server in the format of Prometheus: requests, rows, tokens, times."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

from ensue.serving.processes import FOLDER

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The numbers of one process; `text` has those of all processes of a server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def named(kind: type, name: str, what: str, *labels: str, **options: object) -> object:
            return kind(f"ensue_{name}", what, labels, registry=self.registry, **options)

        of_model = ("model",)
        summed = {"multiprocess_mode": "livesum"}
        self.requests: Counter = named(Counter, "requests", "Answered requests", "route", "status")  # type: ignore
        self.refused: Counter = named(Counter, "refused", "Requests that were refused", "code")  # type: ignore
        self.left: Counter = named(Counter, "left", "Clients that left before their answer")  # type: ignore
        self.seconds: Histogram = named(  # type: ignore
            Histogram, "request_seconds", "From the headers to the end of the answer", "route", buckets=SECONDS
        )
        self.first: Histogram = named(  # type: ignore
            Histogram, "first_token_seconds", "To the first token of an answer", *of_model, buckets=SECONDS
        )
        self.steps: Histogram = named(  # type: ignore
            Histogram, "step_seconds", "One step of all live rows", *of_model, buckets=SECONDS
        )
        self.prompt_tokens: Counter = named(Counter, "prompt_tokens", "Tokens read", *of_model)  # type: ignore
        self.tokens: Counter = named(Counter, "tokens", "Tokens written", *of_model)  # type: ignore
        self.rows: Gauge = named(Gauge, "live_rows", "Rows stepped together", *of_model, **summed)  # type: ignore
        self.waiting: Gauge = named(  # type: ignore
            Gauge, "waiting_rows", "Prompts and rows that wait", *of_model, **summed
        )
        self.held: Gauge = named(Gauge, "held", "What admitted requests hold", "what", **summed)  # type: ignore
        self.sessions: Gauge = named(Gauge, "sessions", "Sessions that are kept", *of_model, **summed)  # type: ignore

    def read(self, model: str, tokens: int) -> None:
        """Tokens of prompts have been read."""
        self.prompt_tokens.labels(model).inc(tokens)

    def live(self, model: str, rows: int) -> None:
        """The number of live rows has changed."""
        self.rows.labels(model).set(rows)

    def stepped(self, model: str, rows: int, seconds: float) -> None:
        """All live rows got a token."""
        self.tokens.labels(model).inc(rows)
        self.steps.labels(model).observe(seconds)

    def text(self) -> bytes:
        """All numbers."""
        if FOLDER not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
