"""The limits of a server: what one request may ask for, what all may hold together, and how long things may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The defaults of `ensue serve`."""

    header_bytes: int = 64 << 10
    body_bytes: int = 4 << 20
    prompt_tokens: int = 1 << 16
    """The most tokens of one prompt. A model with a context has its own bound."""
    max_tokens: int = 1 << 16
    """The most tokens that one choice may ask for."""
    rows: int = 64
    """The rows of a model that are stepped together; others wait."""
    places: int = 1024
    """The texts of all requests that are answered or wait; n choices of a prompt are n texts."""
    tokens: int = 1 << 24
    """The tokens of all these texts, read and to be written."""
    bytes: int = 1 << 27
    """The bytes of all bodies that are held."""
    connections: int = 4096
    sessions: int = 64
    """The sessions that a model keeps; the one that was not used for longest goes first."""
    session_seconds: float = 3600.0
    headers_seconds: float = 10.0
    """From the first byte of a connection, or the last answer, to the end of the headers."""
    body_seconds: float = 30.0
    request_seconds: float = 300.0
    """From the headers to the end of the answer."""
    drain_seconds: float = 30.0
    """After SIGTERM, until answers that are not finished are broken off."""
