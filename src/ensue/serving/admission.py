"""Admission: what the requests that are answered or wait may hold together, reserved at once or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from ensue.serving.refusal import busy


class Amounts(NamedTuple):
    """Texts, tokens of them, and bytes of bodies."""

    places: int = 0
    tokens: int = 0
    bytes: int = 0

    def plus(self, other: Amounts, sign: int = 1) -> Amounts:
        """The sums, or with `sign` -1 the differences."""
        return Amounts(*(mine + sign * theirs for mine, theirs in zip(self, other, strict=True)))


class Admission:
    """It belongs to the thread of the event loop, so that nothing comes between a look and a reservation."""

    def __init__(self, most: Amounts) -> None:
        self.most, self.held = most, Amounts()

    def ticket(self) -> Ticket:
        """A ticket that holds nothing yet."""
        return Ticket(self)


class Ticket:
    """What one request holds; it gives everything back at the end of a `with` block."""

    def __init__(self, admission: Admission) -> None:
        self.admission, self.held = admission, Amounts()

    def reserve(self, amounts: Amounts) -> None:
        """Holds this too. Raises Refusal (429) if there is not so much of all, and then holds nothing more."""
        wanted = self.admission.held.plus(amounts)
        for name, value, most in zip(Amounts._fields, wanted, self.admission.most, strict=True):
            if value > most:
                raise busy(429, f"the server is full ({name}); try again", "server_full")
        self.admission.held = wanted
        self.held = self.held.plus(amounts)

    def give_back(self) -> None:
        """Holds nothing more. It may be called twice."""
        self.admission.held = self.admission.held.plus(self.held, -1)
        self.held = Amounts()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()
