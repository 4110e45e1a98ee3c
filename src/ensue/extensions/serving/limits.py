"""The limits of a server: sizes of a request, resources of all open requests, and times. docs/serving.md lists them."""

from dataclasses import dataclass

MAX_CHOICES = 128
"""The maximum number of choices of a prompt (`n`, `best_of`)."""
MAX_STOPS, MAX_STOP_CHARACTERS = 4, 1024
"""The maximum number of stop strings in a request, and the maximum length of a stop string."""
MAX_TERM_CHARACTERS, MAX_GLOSSARY_CHARACTERS = 256, 1 << 15
"""The maximum length of a text in a glossary, and of all its texts together."""
BYTES_PER_VALUE, BYTES_PER_TOKEN = 64, 64
"""The estimated memory of a JSON value in a parsed body, and of a token in a response."""
VALUES_PER_KEY = 8
"""A key of a JSON object counts as this number of values, since keys are slow to parse."""
MAX_LIGHT_BYTES = 1 << 19
"""The maximum memory of a body that the event loop parses, which takes milliseconds. A thread parses larger bodies."""
BLOCK_BYTES = 1 << 16
"""The number of bytes of a response that are written at a time. At most two blocks are buffered for a client."""
MIN_LONG_CHARACTERS, MIN_LONG_SECONDS = 4096, 0.25
"""A request of the routes for texts is long above this number of characters, or after this time of computation."""
INSPECTION_FACTOR = 16
"""The number of characters that a character counts as in a text to inspect, since inspections are slow."""
RECENT_SECONDS, SLICE_SECONDS = 0.25, 0.005
"""For RECENT_SECONDS after each request, long requests are computed in slices of SLICE_SECONDS with pauses between."""
MIN_LONG_TOKENS = 256
"""A request with several choices is long above this number of tokens. While other requests generate, all long requests
of a model share an eighth of its rows."""
MAX_INLINE_TOKENS, MAX_INLINE_CHARACTERS = 256, 2048
"""The maximum numbers of tokens written as JSON and of characters tokenized in one callback of the event loop."""


@dataclass(frozen=True)
class Limits:
    """The limits of a server, with the defaults of `ensue serve`."""

    header_bytes: int = 32 << 10
    body_bytes: int = 4 << 20
    body_values: int = 1 << 18
    """The number of JSON values in a body, estimated from commas and brackets. A key counts as VALUES_PER_KEY."""
    text_characters: int = 1 << 19
    """The number of characters in a text, or of numbers in a series."""
    inspected_characters: int = 1 << 14
    """The number of characters in a text for `/v1/inspect`, whose responses are large."""
    prompt_tokens: int = 1 << 16
    """The number of tokens in a prompt. The limit is lower for a model with a context."""
    max_tokens: int = 1 << 16
    """The number of tokens in a choice."""
    terms: int = 1 << 10
    """The number of pairs in a glossary."""
    answer_bytes: int = 32 << 20
    """The size of a response of the routes for texts."""
    rows: int = 64
    """The number of rows in a model's batch. Further rows wait."""
    places: int = 1024
    """The number of texts of all open requests, where n choices of a prompt count as n texts."""
    tokens: int = 1 << 24
    """The number of tokens of all open requests: the tokens of prompts, and the maximum that will be generated."""
    bytes: int = 1 << 27
    """The memory of all parsed bodies."""
    answers: int = 1 << 28
    """The memory of all responses in progress."""
    connections: int = 4096
    sessions: int = 64
    """The number of stored sessions of a model. The least recently used session is evicted first."""
    session_seconds: float = 3600.0
    session_undo: int = 8
    """The number of latest requests of a session that can be undone."""
    session_bytes: int = 1 << 28
    """The memory of the sessions of a model. For an adapting model, each state may have a copy of all weights."""
    headers_seconds: float = 10.0
    """The time limit from the start of a connection, or from a response, to the end of the next headers."""
    body_seconds: float = 30.0
    request_seconds: float = 300.0
    """The time limit from the headers to the last byte of the response, after which the connection is aborted."""
    linger_seconds: float = 1.0
    """The time in which a client can read an error or the last response before the connection is closed."""
    drain_seconds: float = 30.0
    """The time from SIGTERM until open requests are cancelled."""
