"""Stop strings: where a text that comes in pieces ends, with nothing of a stop string let out."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """Of several stop strings in a text that one counts which is complete first, however the text is cut in pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self._held = tuple(stops), ""

    def feed(self, piece: str) -> tuple[str, bool]:
        """The text that is final after one more piece, and whether the text has ended."""
        if not self.stops:
            return piece, False
        text = self._held + piece
        found = [(place + len(stop), place) for stop in self.stops if (place := text.find(stop)) >= 0]
        if found:
            self._held = ""
            return text[: min(found)[1]], True
        kept = max(_overlap(text, stop) for stop in self.stops)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept], False

    def flush(self) -> str:
        """What was held back, at the end of a text in which no stop string came."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` with which `stop` begins."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if stop.startswith(text[len(text) - size :])), 0)
