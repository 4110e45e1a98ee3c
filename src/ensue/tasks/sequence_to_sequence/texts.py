"""How a model from sequence to sequence reads its texts: columns of the source to ids, ids to an output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensue.data.examples import Pair
from ensue.recipe.tables import TokenizerRecipe
from ensue.stored import Bounds, Stored
from ensue.text.characters import CharacterTokenizer
from ensue.text.published import NumberedTokenizer
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokenizers import train_tokenizer
from ensue.text.utf8 import ByteTokenizer
from ensue.text.words import WordTokenizer

Ids: TypeAlias = NDArray[np.int64]

BETWEEN_NAMES = re.compile(r"[;,|\s]+")


@dataclass(frozen=True)
class PairCoder(Stored):
    """The tokenizers of both sides, which may be one. `names` are the places of the source columns that hold names."""

    source: TokenizerWithSpecials
    target: TokenizerWithSpecials
    names: frozenset[int] = frozenset()
    source_tokens: int = 0
    """The most tokens of a source; 0: any number."""
    copies: bool = False
    """Whether words of the source that have no id are numbered behind all ids, so that they can be copied."""

    @property
    def is_joint(self) -> bool:
        """Whether both sides have the same ids for the same symbols."""
        source, target = self.source.tokenizer, self.target.tokenizer
        if isinstance(source, NumberedTokenizer) and isinstance(target, NumberedTokenizer):
            return source.symbols == target.symbols
        return source is target

    @classmethod
    def train(
        cls,
        pairs: Sequence[Pair],
        source: TokenizerRecipe,
        target: TokenizerRecipe | None,
        *,
        names: Sequence[int] = (),
        source_tokens: int = 0,
        copies: bool = False,
    ) -> Self:
        """Tokenizers from training pairs, one for both without a `target`; `names` are numbers of columns, from 1."""
        places = frozenset(number - 1 for number in names)
        columns = (text for pair in pairs for place, text in enumerate(pair.sources) if place in places)
        known = sorted({name for text in columns for name in split_names(text)})

        def sources() -> Iterator[str]:
            for pair in pairs:
                for place, text in enumerate(pair.sources):
                    if place not in places:
                        yield from (" ", text, "\n")

        def targets() -> Iterator[str]:
            for pair in pairs:
                for text in pair.targets:
                    yield from (" ", text, "\n")

        def both() -> Iterator[str]:
            yield from sources()
            yield from targets()

        if target is None:
            tokenizer = train_tokenizer(chunks=_in_pieces(both()), **source.model_dump())
            joint = TokenizerWithSpecials(tokenizer, known)
            return cls(joint, joint, places, source_tokens, copies)
        reader = train_tokenizer(chunks=_in_pieces(sources()), **source.model_dump())
        writer = train_tokenizer(chunks=_in_pieces(targets()), **target.model_dump())
        return cls(TokenizerWithSpecials(reader, known), TokenizerWithSpecials(writer), places, source_tokens, copies)

    def encode(self, columns: Sequence[str], targets: Iterable[str] = ()) -> tuple[Ids, list[Ids]]:
        """The ids of a source, its columns one after another, and of its targets, each with the end at its end.

        A target's words can be copied from what is left of a source that is cut.
        """
        unknown = self.unknown_words(columns)
        source = self._source_ids(columns, unknown)
        there = set(source.tolist()) if unknown else set()
        copied = {word: id for word, id in unknown.items() if id in there}
        return source, [
            np.append(self._extended(self.target.encode(text), text, copied), self.target.end_id) for text in targets
        ]

    def _source_ids(self, columns: Sequence[str], unknown: Mapping[str, int]) -> Ids:
        coder = self.source
        parts: list[Ids] = []
        for place, text in enumerate(columns):
            if place in self.names:
                parts.append(coder.encode_names(split_names(text)))
            else:
                parts += [np.array([coder.separator_id])] if place else []
                parts.append(self._extended(coder.encode(text), text, unknown))
        ids = np.concatenate(parts, dtype=np.int64)
        return np.append(ids[: self.source_tokens] if self.source_tokens else ids, coder.end_id)

    def words(self, columns: Sequence[str]) -> list[str]:
        """The word of each id of a source whose tokens are words; "" for other tokens."""
        tokenizer, found = self.source.tokenizer, list[str]()
        assert isinstance(tokenizer, WordTokenizer)
        for place, text in enumerate(columns):
            if place in self.names:
                found += [""] * len(self.source.encode_names(split_names(text)))
            else:
                found += [""] * bool(place) + tokenizer.written(text)
        return [*(found[: self.source_tokens] if self.source_tokens else found), ""]

    def source_spans(self, text: str) -> list[tuple[int, int]]:
        """The places in `text` of its tokens as a source, but for the end."""
        tokenizer = self.source.tokenizer
        if isinstance(tokenizer, WordTokenizer | CharacterTokenizer):
            found, place = list[tuple[int, int]](), 0
            for written in tokenizer.written(text):
                place = max(place, text.find(written, place))
                found.append((place, place + len(written)))
                place += len(written)
            return found
        if isinstance(tokenizer, ByteTokenizer):
            lengths = [len(letter.encode("utf-8", "surrogatepass")) for letter in text]
            return [(place, place + 1) for place, length in enumerate(lengths) for _ in range(length)]
        before = len(tokenizer.before)
        offsets = tokenizer.encode_with_offsets(tokenizer.before + text)[1] - before
        return [(start, end) for start, end in offsets.tolist()]

    def decode(self, ids: Sequence[int], columns: Sequence[str] = ()) -> str:
        """The text of `ids`, some of which may be words of the source `columns`."""
        copied = {id: word for word, id in self.unknown_words(columns).items()}
        tokenizer, special = self.target.tokenizer, {*self.target.special_ids} - {*copied}
        if not copied or not isinstance(tokenizer, WordTokenizer):
            return self.target.decode(ids)
        line = tokenizer.line()
        return "".join(line.feed(copied.get(id) or tokenizer.word(id)) for id in ids if id not in special)

    def unknown_words(self, columns: Sequence[str]) -> dict[str, int]:
        """The ids of the words of a source that have none in the vocabulary; none unless they can be copied."""
        tokenizer = self.source.tokenizer
        if not self.copies or not isinstance(tokenizer, WordTokenizer):
            return {}
        texts = (text for place, text in enumerate(columns) if place not in self.names)
        words = dict.fromkeys(
            word
            for text in texts
            for word, id in zip(tokenizer.words(text), tokenizer.encode(text), strict=True)
            if id == tokenizer.unknown_id
        )
        return {word: self.source.vocabulary_size + number for number, word in enumerate(words)}

    def _extended(self, ids: Ids, text: str, unknown: Mapping[str, int]) -> Ids:
        """The ids of a text, with those of words that can be copied."""
        tokenizer = self.source.tokenizer
        if not unknown or not isinstance(tokenizer, WordTokenizer):
            return ids
        return np.array([unknown.get(word, id) for word, id in zip(tokenizer.words(text), ids, strict=True)], np.int64)

    @classmethod
    def _restored(
        cls,
        source: TokenizerWithSpecials,
        target: TokenizerWithSpecials | None,
        names: frozenset[Annotated[int, Bounds(0, 99)]],
        source_tokens: Annotated[int, Bounds(0, 1_000_000)],
        copies: bool,
    ) -> Self:
        """Without a target, both sides have one tokenizer."""
        return cls(source, target or source, names, source_tokens, copies)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | ({"target": None} if self.source is self.target else {})


def split_names(text: str) -> list[str]:
    """The names in a column such as `V;PST` or `V, PST`."""
    return [name for name in BETWEEN_NAMES.split(text) if name]


def _in_pieces(strings: Iterable[str]) -> Iterator[str]:
    """The strings joined to pieces of some length, as tokenizers are trained faster on them."""
    held: list[str] = []
    size = 0
    for string in strings:
        held.append(string)
        size += len(string)
        if size > 1 << 16:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)
