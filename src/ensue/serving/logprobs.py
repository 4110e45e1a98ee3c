"""The logarithms of the probabilities of tokens, as the API writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ensue.serving.chooser import Looked
from ensue.serving.row import TokenInfo
from ensue.text.tokenizer import Tokenizer


def shown_tokens(tokenizer: Tokenizer, infos: Sequence[TokenInfo], logprobs: int) -> dict[str, Any]:
    """Tokens with, if `logprobs` is not 0, the most probable ones in their places."""
    return {
        "tokens": [tokenizer.symbol(info.id) for info in infos],
        "token_logprobs": [info.log_p for info in infos],
        "top_logprobs": [_top(tokenizer, info) for info in infos] if logprobs else None,
        "text_offset": [info.offset for info in infos],
    }


def tokens_of_prompt(tokenizer: Tokenizer, ids: Sequence[int], looked: Sequence[Looked]) -> Iterator[TokenInfo]:
    """The tokens of a prompt that is repeated. The API has nothing of the first one."""
    decoder, offset = tokenizer.decoder(), 0
    first = len(looked) - len(ids)  # -1 for a prompt that is read without a start symbol, else 0
    for place, id in enumerate(ids):
        found = looked[first + place] if place else (None, None)
        yield TokenInfo(id, offset, *found)
        offset += len(decoder.feed(id))


def _top(tokenizer: Tokenizer, info: TokenInfo) -> dict[str, float] | None:
    if info.top is None or info.log_p is None:
        return None
    found: dict[str, float] = {}
    for id, log_p in (*info.top, (info.id, info.log_p)):
        found.setdefault(tokenizer.symbol(id), log_p)
    return found
