"""All limits of a server: what one request may ask for, what all may hold together, how long things may take.

`docs/serving.md` has them as a table.
"""

from __future__ import annotations

from dataclasses import dataclass

CHOICES = 128
"""The most choices of a prompt (`n`, `best_of`)."""
STOPS, STOP_CHARACTERS = 4, 1024
"""The most stop strings, and characters of one."""
TERM_CHARACTERS, GLOSSARY_CHARACTERS = 256, 1 << 15
"""The most characters of a text of a glossary, and of all its texts."""
VALUE_BYTES, TOKEN_BYTES = 64, 64
"""The memory of a JSON value of a body, and of a token that waits to be sent, about."""
KEY_VALUES = 8
"""A key of an object counts as so many values."""
LIGHT = 1 << 19
"""A body of at most so many bytes in memory is parsed in the event loop, which takes milliseconds; a heavier one in a
thread."""
BLOCK = 1 << 16
"""The bytes of an answer that are written at a time; a client that does not read holds about two of these."""
LONG_CHARACTERS, LONG_SECONDS = 4096, 0.25
"""A request of more characters is long, and one that has had so much work. A character of an inspection counts as
`INSPECTED` others."""
INSPECTED = 16
DENSE_SECONDS, SLICE_SECONDS = 0.25, 0.005
"""The time after a request in which others are expected. Then the thread of long requests works a quarter of the time,
in slices of about this length."""
LONG_TOKENS = 256
"""The tokens after which a request of several choices is long. The long ones have an eighth of the rows of their model
while others write."""
TOKENS_AT_ONCE, CHARACTERS_AT_ONCE = 256, 2048
"""Tokens that are written to JSON, and characters that are tokenized, at a stroke in the event loop."""


@dataclass(frozen=True)
class Limits:
    """The defaults of `ensue serve`."""

    header_bytes: int = 32 << 10
    body_bytes: int = 4 << 20
    body_values: int = 1 << 18
    """The numbers, lists and texts of a body, counted by its commas and brackets as it comes. A key counts as
    `KEY_VALUES`."""
    text_characters: int = 1 << 19
    """The characters of one text, or the numbers of one series."""
    inspected_characters: int = 1 << 14
    """Characters in a text of `/v1/inspect`, whose answers are long."""
    prompt_tokens: int = 1 << 16
    """The tokens of one prompt. A model with a context has its own bound."""
    max_tokens: int = 1 << 16
    """The tokens that one choice may ask for."""
    terms: int = 1 << 10
    """The pairs of the glossary of a request."""
    answer_bytes: int = 32 << 20
    """The bytes of one answer of the routes for texts."""
    rows: int = 64
    """The rows of a model that are stepped together; others wait."""
    places: int = 1024
    """The texts of all requests that are answered or wait; n choices of a prompt are n texts."""
    tokens: int = 1 << 24
    """The tokens of all these texts, read and to be written."""
    bytes: int = 1 << 27
    """The memory of all bodies that are held, parsed."""
    answers: int = 1 << 28
    """The memory of all answers that are made or sent."""
    connections: int = 4096
    sessions: int = 64
    """The sessions that a model keeps; the one that was not used for longest goes first."""
    session_seconds: float = 3600.0
    session_undo: int = 8
    """The latest requests of a session that can be undone."""
    session_bytes: int = 1 << 28
    """The memory of the sessions of a model; each state of one that adapts may have a copy of all weights."""
    headers_seconds: float = 10.0
    """From the first byte of a connection, or the last answer, to the end of the headers."""
    body_seconds: float = 30.0
    request_seconds: float = 300.0
    """From the headers until the last byte of the answer is sent. Then the connection is aborted."""
    farewell_seconds: float = 1.0
    """For a client to take in why its answer was broken off."""
    drain_seconds: float = 30.0
    """After SIGTERM, until answers that are not finished are broken off."""
