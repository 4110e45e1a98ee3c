"""The logarithms of the probabilities of tokens, as the API writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ensue.serving.chooser import Looked
from ensue.serving.row import Row, TokenInfo
from ensue.text.tokenizer import Tokenizer


def shown_tokens(tokenizer: Tokenizer, row: Row, before: Sequence[TokenInfo] = ()) -> dict[str, Any] | None:
    """The tokens `before`, and those of `row` whose text was let out and that were not shown yet.

    Tokens of a stop string never are. None if the request does not ask for tokens.
    """
    if row.logprobs is None:
        return None
    infos = list(before)
    while row.infos and (row.finish == "length" or row.infos[0].offset < row.begin + row.taken):
        infos.append(row.infos.popleft())
    return {
        "tokens": [tokenizer.symbol(info.id) for info in infos],
        "token_logprobs": [info.log_p for info in infos],
        "top_logprobs": [_top(tokenizer, info) for info in infos] if row.logprobs else None,
        "text_offset": [info.offset for info in infos],
    }


def tokens_of_prompt(tokenizer: Tokenizer, ids: Sequence[int], looked: Sequence[Looked]) -> list[TokenInfo]:
    """The tokens of a prompt that is repeated. The API has nothing of the first one."""
    decoder, offset, infos = tokenizer.decoder(), 0, []
    first = len(looked) - len(ids)  # -1 for a prompt that is read without a start symbol, else 0
    for place, id in enumerate(ids):
        found = looked[first + place] if place else (None, None)
        infos.append(TokenInfo(id, offset, *found))
        offset += len(decoder.feed(id))
    return infos


def _top(tokenizer: Tokenizer, info: TokenInfo) -> dict[str, float] | None:
    if info.top is None or info.log_p is None:
        return None
    found: dict[str, float] = {}
    for id, log_p in (*info.top, (info.id, info.log_p)):
        found.setdefault(tokenizer.symbol(id), log_p)
    return found
