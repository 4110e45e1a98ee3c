"""The state that all requests share: models, reserved resources, and whether requests are accepted."""

import asyncio
import hmac
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from ensue.errors import nearest
from ensue.extensions.serving.api import APIError, retry_later
from ensue.extensions.serving.limits import Limits
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.worker import Traffic, Worker

if TYPE_CHECKING:  # this import takes seconds, since it imports torch
    from ensue.extensions.serving.served_model import ServedModel


class Resources(NamedTuple):
    """Amounts of resources: texts, their tokens, and the bytes of bodies and of responses."""

    places: int = 0
    tokens: int = 0
    bytes: int = 0
    answers: int = 0

    def plus(self, other: "Resources", sign: int = 1) -> "Resources":
        """Return the sums, or with `sign` -1 the differences."""
        return Resources(*(a + sign * b for a, b in zip(self, other, strict=True)))


class Admission:
    """The resources reserved by all open requests, guarded by a lock."""

    def __init__(self, maximum: Resources) -> None:
        self.maximum, self.reserved = maximum, Resources()
        self.lock = Lock()


class Reservation:
    """The resources reserved by a request, which are released at the end of a `with` block."""

    def __init__(self, admission: Admission) -> None:
        self.admission, self.reserved, self.is_open = admission, Resources(), True

    def reserve(self, **amounts: int) -> None:
        """Reserve all amounts, or raise APIError (429) and reserve nothing. Any thread may call this method.

        After the end of the request, nothing is reserved.
        """
        admission, requested = self.admission, Resources(**amounts)
        with admission.lock:
            total = admission.reserved.plus(requested)
            for name, value, maximum in zip(Resources._fields, total, admission.maximum, strict=True):
                if value > maximum:
                    raise retry_later(429, f"the server is full ({name}); try again", "server_full")
            if self.is_open:
                admission.reserved, self.reserved = total, self.reserved.plus(requested)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self.admission.lock:
            self.admission.reserved = self.admission.reserved.plus(self.reserved, -1)
            self.is_open = False


class Service:
    """The state that all requests share. `hosts` are the trusted host names; without names, all hosts are trusted."""

    def __init__(
        self, *, limits: Limits, metrics: Metrics, key: str | None = None, hosts: Sequence[str] = (),
        report: Callable[[BaseException], None], log: Callable[..., None], has_sessions: bool = True,
    ) -> None:  # fmt: skip
        self.limits, self.metrics, self.report, self.log = limits, metrics, report, log
        self.hosts, self.has_sessions = frozenset(host.lower() for host in hosts), has_sessions
        if key is not None and not key.strip():
            raise ValueError("an empty key")
        self._key = None if key is None else key.strip().encode()
        self.admission = Admission(Resources(limits.places, limits.tokens, limits.bytes, limits.answers))
        self.traffic = Traffic()
        self.parsing_worker = Worker("reader", traffic=self.traffic)
        """The thread that parses large bodies and tokenizes long prompts."""
        self.long_worker = Worker("long requests", traffic=self.traffic)
        """The thread for long requests of the routes for texts, of all models."""
        self.state: Literal["loading", "ready", "draining"] = "loading"
        self.models: dict[str, ServedModel] = {}
        self.open_tasks: set[asyncio.Task[None]] = set()
        """The open requests."""

    def ready(self, models: "Sequence[ServedModel]") -> None:
        """Set the models, and accept requests."""
        self.models = {model.name: model for model in models}
        if self.state == "loading":
            self.state = "ready"

    def check_ready(self) -> None:
        """Raise APIError (503) unless requests are accepted."""
        if self.state != "ready":
            raise retry_later(
                503, f"the server is {self.state}", f"server_{self.state}", 1 if self.state == "loading" else 5
            )

    def check_key(self, authorization: bytes) -> None:
        """Raise APIError (401) unless the header has the key."""
        if self._key is None:
            return
        scheme, _, token = authorization.partition(b" ")
        is_correct = hmac.compare_digest(token.strip(), self._key)  # takes constant time
        if scheme.lower() != b"bearer" or not is_correct:
            message = "Incorrect API key provided" if authorization else "You didn't provide an API key"
            raise APIError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def check_origin(self, hosts: Sequence[str], origin: str | None) -> None:
        """Raise APIError for several or untrusted hosts (400), and for a page of another origin (403)."""
        if len(hosts) > 1:
            raise APIError(400, "expected one Host header", code="invalid_http")
        host = "".join(hosts)
        name, _, port = host.lower().rpartition(":")
        if self.hosts and (name if port.isdigit() else host.lower()) not in self.hosts:
            raise APIError(400, "this host name is not trusted", code="untrusted_host")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise APIError(403, "cross-origin requests are refused", code="cross_origin")

    def model(self, name: str) -> "ServedModel":
        """Return the model with an id. Raises APIError (404) for an unknown id."""
        if name not in self.models:
            message = f"The model '{name[:64]}' does not exist{nearest(name[:64], self.models)}"
            raise APIError(404, message, param="model", code="model_not_found")
        return self.models[name]

    def update_gauges(self) -> None:
        for resource, amount in self.admission.reserved._asdict().items():
            self.metrics.held.labels(resource).set(amount)
        for model in self.models.values():
            self.metrics.sessions.labels(model.name).set(len(model.sessions))
            if model.loop is not None:
                self.metrics.waiting.labels(model.name).set(model.loop.waiting)

    async def drain(self) -> None:
        """Refuse new requests, and wait for open requests. Cancel them after `drain_seconds`."""
        self.state = "draining"
        if self.open_tasks:
            await asyncio.wait(set(self.open_tasks), timeout=self.limits.drain_seconds)
        for task in list(self.open_tasks):
            task.cancel("draining")
        if self.open_tasks:
            await asyncio.wait(set(self.open_tasks), timeout=5)
