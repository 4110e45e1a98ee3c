"""The state of a server, shared by all requests: models, admission, and whether requests are accepted."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from ensue.errors import nearest
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.refusal import Refusal, busy
from ensue.extensions.serving.worker import Traffic, Worker

if TYPE_CHECKING:  # it needs torch, and a server answers before that is imported
    from ensue.extensions.serving.served import Served


class Amounts(NamedTuple):
    """Texts, tokens of them, and the memory of bodies and of answers in bytes."""

    places: int = 0
    tokens: int = 0
    bytes: int = 0
    answers: int = 0

    def plus(self, other: Amounts, sign: int = 1) -> Amounts:
        """The sums, or with `sign` -1 the differences."""
        return Amounts(*(mine + sign * theirs for mine, theirs in zip(self, other, strict=True)))


class Admission:
    """The places and the memory that open requests hold together. Any thread may reserve, all or nothing."""

    def __init__(self, most: Amounts) -> None:
        self.most, self.held = most, Amounts()
        self.lock = Lock()


class Ticket:
    """The reservation of one request; it gives everything back at the end of a `with` block."""

    def __init__(self, admission: Admission) -> None:
        self.admission, self.held, self.is_open = admission, Amounts(), True

    def reserve(self, **amounts: int) -> None:
        """Holds this too. Raises Refusal (429) if there is not so much of all, and then holds nothing more.

        A thread that still works for a request that has ended reserves nothing.
        """
        admission, more = self.admission, Amounts(**amounts)
        with admission.lock:
            wanted = admission.held.plus(more)
            for name, value, most in zip(Amounts._fields, wanted, admission.most, strict=True):
                if value > most:
                    raise busy(429, f"the server is full ({name}); try again", "server_full")
            if self.is_open:
                admission.held, self.held = wanted, self.held.plus(more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self.admission.lock:
            self.admission.held = self.admission.held.plus(self.held, -1)
            self.is_open = False


class Service:
    """It begins "loading", is "ready" with its models, then "draining". `hosts` are trusted; () trusts all."""

    def __init__(
        self, *, limits: Limits, metrics: Metrics, key: str | None = None, hosts: Sequence[str] = (),
        report: Callable[[BaseException], None], log: Callable[..., None], has_sessions: bool = True,
    ) -> None:  # fmt: skip
        self.limits, self.metrics, self.report, self.log = limits, metrics, report, log
        self.hosts, self.has_sessions = frozenset(host.lower() for host in hosts), has_sessions
        if key is not None and not key.strip():
            raise ValueError("an empty key")
        self._key = None if key is None else key.strip().encode()
        self.admission = Admission(Amounts(limits.places, limits.tokens, limits.bytes, limits.answers))
        self.traffic = Traffic()
        self.reader = Worker("reader", traffic=self.traffic)
        """Parses heavy bodies and tokenizes long prompts."""
        self.long = Worker("long requests", traffic=self.traffic)
        """Computes for the long requests on texts of all models."""
        self.state: Literal["loading", "ready", "draining"] = "loading"
        self.models: dict[str, Served] = {}
        self.live: set[asyncio.Task[None]] = set()
        """The requests that are being answered."""

    def ready(self, models: Sequence[Served]) -> None:
        """Takes requests from now on."""
        self.models = {model.name: model for model in models}
        if self.state == "loading":
            self.state = "ready"

    def check_open(self) -> None:
        """Raises Refusal (503) unless requests are taken."""
        if self.state != "ready":
            raise busy(503, f"the server is {self.state}", f"server_{self.state}", 1 if self.state == "loading" else 5)

    def check_key(self, authorization: bytes) -> None:
        """Raises Refusal (401) unless the header has the key, if there is one. It takes the same time for any key."""
        if self._key is None:
            return
        scheme, _, given = authorization.partition(b" ")
        is_right = hmac.compare_digest(given.strip(), self._key)
        if scheme.lower() != b"bearer" or not is_right:
            said = "Incorrect API key provided" if authorization else "You didn't provide an API key"
            raise Refusal(401, said, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def check_origin(self, hosts: Sequence[str], origin: str | None) -> None:
        """Raises Refusal for several hosts or one that is not trusted (400), and for a page of another origin (403)."""
        if len(hosts) > 1:
            raise Refusal(400, "a request has one Host header", code="invalid_http")
        host = "".join(hosts)
        if self.hosts and host_name(host) not in self.hosts:
            raise Refusal(400, "this host name is not trusted", code="untrusted_host")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise Refusal(403, "requests from pages of other origins are refused", code="cross_origin")

    def model(self, name: str) -> Served:
        """The model of this name. Raises Refusal (404) if there is none."""
        if name not in self.models:
            message = f"The model '{name[:64]}' does not exist{nearest(name[:64], self.models)}"
            raise Refusal(404, message, param="model", code="model_not_found")
        return self.models[name]

    def gauge(self) -> None:
        """Brings the numbers up to date that are not counted as they change."""
        for what, amount in self.admission.held._asdict().items():
            self.metrics.held.labels(what).set(amount)
        for model in self.models.values():
            self.metrics.sessions.labels(model.name).set(len(model.sessions))
            if model.loop is not None:
                self.metrics.waiting.labels(model.name).set(model.loop.waiting)

    async def drained(self) -> None:
        """Takes no more requests; returns when all are answered, or have been broken off after `drain_seconds`."""
        self.state = "draining"
        if self.live:
            await asyncio.wait(set(self.live), timeout=self.limits.drain_seconds)
        for task in list(self.live):
            task.cancel("draining")
        if self.live:
            await asyncio.wait(set(self.live), timeout=5)


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    name = host.lower()
    return name.rpartition(":")[0] if name.rpartition(":")[2].isdigit() and not name.endswith("]") else name
