"""Admission: what the requests that are answered or wait may hold together, reserved at once or not at all."""

from __future__ import annotations

import time
from threading import Lock
from types import TracebackType
from typing import NamedTuple, Self

from ensue.serving.limits import DENSE_SECONDS
from ensue.serving.refusal import busy


class Amounts(NamedTuple):
    """Texts, tokens of them, and the memory of bodies and of answers in bytes."""

    places: int = 0
    tokens: int = 0
    bytes: int = 0
    answers: int = 0

    def plus(self, other: Amounts, sign: int = 1) -> Amounts:
        """The sums, or with `sign` -1 the differences."""
        return Amounts(*(mine + sign * theirs for mine, theirs in zip(self, other, strict=True)))


class Traffic:
    """Whether others wait: work that takes long makes way for what takes little while requests come."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def came(self) -> None:
        """A request has come."""
        self._last = time.monotonic()

    @property
    def is_dense(self) -> bool:
        """Whether a request came within `DENSE_SECONDS`."""
        return time.monotonic() - self._last < DENSE_SECONDS


class Admission:
    """The requests and the memory that are reserved. Every thread may reserve."""

    def __init__(self, most: Amounts) -> None:
        self.most, self.held = most, Amounts()
        self.lock = Lock()

    def ticket(self) -> Ticket:
        """A ticket that holds nothing yet."""
        return Ticket(self)


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.admission.lock:
            self.admission.held = self.admission.held.plus(self.held, -1)
            self.is_open = False
