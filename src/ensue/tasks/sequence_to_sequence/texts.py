"""The tokenizers of sequence-to-sequence models: from the columns of a source to ids, and from ids to an output."""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, repeat
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensue.data.examples import Pair
from ensue.data.parallel import join_blocks
from ensue.recipe.tables import TokenizerRecipe
from ensue.stored import Bounds, Stored
from ensue.text.published import NumberedTokenizer
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokenizer import ByteTokenizer, CharacterTokenizer, WordTokenizer
from ensue.text.tokenizers import train_tokenizer

Ids: TypeAlias = NDArray[np.int64]

BETWEEN_NAMES = re.compile(r"[;,|\s]+")
MIN_STEM_CHARACTERS = 3
"""The minimum number of characters of a substring that `with_other_stems` replaces."""


@dataclass(frozen=True)
class PairCoder(Stored):
    """The tokenizers of source and target."""

    source: TokenizerWithSpecials
    target: TokenizerWithSpecials
    names: frozenset[int] = frozenset()
    """The indices of the source columns that contain lists of names (tags); each name is one token."""
    source_tokens: int = 0
    """The maximum number of tokens of a source, which is truncated; 0: no limit."""
    copies: bool = False
    """Whether unknown words of the source have ids above the vocabulary, so that they can be copied."""

    @property
    def is_joint(self) -> bool:
        """Whether both sides have one vocabulary."""
        source, target = self.source.tokenizer, self.target.tokenizer
        if isinstance(source, NumberedTokenizer) and isinstance(target, NumberedTokenizer):
            return source.symbols == target.symbols
        return source is target

    @classmethod
    def train(
        cls, pairs: Sequence[Pair], source: TokenizerRecipe, target: TokenizerRecipe | None, *,
        names: Sequence[int] = (), source_tokens: int = 0, copies: bool = False, extended: Self | None = None,
    ) -> Self:  # fmt: skip
        """Train the tokenizers; without a table `target` both sides have one tokenizer. `names` are the numbers of
        source columns with names, from 1. With `extended`, new symbols are added to the tokenizers of `extended`.
        """
        old = (None, None) if extended is None else (extended.source.tokenizer, extended.target.tokenizer)
        old_names = () if extended is None else extended.source.names.symbols
        indices = frozenset(number - 1 for number in names)
        columns = (text for pair in pairs for index, text in enumerate(pair.sources) if index in indices)
        new_names = {name for text in columns for name in split_names(text)}.difference(old_names)
        sources = (text for pair in pairs for index, text in enumerate(pair.sources) if index not in indices)
        targets = (text for pair in pairs for text in pair.targets)
        texts = sources if target else chain(sources, targets)
        tokenizer = train_tokenizer(chunks=_join_chunks(texts), base=old[0], **source.model_dump())
        source_coder = TokenizerWithSpecials(tokenizer, [*old_names, *sorted(new_names)])
        target_coder = source_coder
        if target is not None:
            tokenizer = train_tokenizer(chunks=_join_chunks(targets), base=old[1], **target.model_dump())
            target_coder = TokenizerWithSpecials(tokenizer)
        return cls(source_coder, target_coder, indices, source_tokens, copies)

    def encode(self, columns: Sequence[str], targets: Iterable[str] = ()) -> tuple[Ids, list[Ids]]:
        """Return the ids of a source, whose columns are concatenated, and of its targets, with end symbols. Only words
        of the truncated source are copied to targets.
        """
        unknown = self.unknown_words(columns)
        source = self._encode_source(columns, unknown)
        source_ids = set(source.tolist()) if unknown else set()
        copied = {word: id for word, id in unknown.items() if id in source_ids}
        pairs = ((self.target.encode(text), text) for text in targets)
        return source, [np.append(self._replace_unknown(ids, text, copied), self.target.end_id) for ids, text in pairs]

    def _encode_source(self, columns: Sequence[str], unknown: Mapping[str, int]) -> Ids:
        coder = self.source
        arrays: list[Ids] = []
        for index, text in enumerate(columns):
            if index in self.names:
                arrays.append(coder.encode_names(split_names(text)))
            else:
                arrays += [np.array([coder.separator_id])] if index else []
                arrays.append(self._replace_unknown(coder.encode(text), text, unknown))
        ids = np.concatenate(arrays, dtype=np.int64)
        return np.append(ids[: self.source_tokens] if self.source_tokens else ids, coder.end_id)

    def words(self, columns: Sequence[str]) -> list[str]:
        """Return the word of each id of a source whose tokens are words; "" for special tokens and names."""
        tokenizer, words = self.source.tokenizer, list[str]()
        assert isinstance(tokenizer, WordTokenizer)
        for index, text in enumerate(columns):
            if index in self.names:
                words += [""] * len(self.source.encode_names(split_names(text)))
            else:
                words += [""] * bool(index) + tokenizer.substrings(text)
        return [*(words[: self.source_tokens] if self.source_tokens else words), ""]

    def source_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of characters of each source token of `text`, without the end symbol."""
        tokenizer = self.source.tokenizer
        if isinstance(tokenizer, WordTokenizer | CharacterTokenizer):
            spans, start = list[tuple[int, int]](), 0
            for token in tokenizer.substrings(text):
                start = max(start, text.find(token, start))
                spans.append((start, start + len(token)))
                start += len(token)
            return spans
        if isinstance(tokenizer, ByteTokenizer):
            lengths = [len(character.encode("utf-8", "surrogatepass")) for character in text]
            return [(index, index + 1) for index, length in enumerate(lengths) for _ in range(length)]
        before = len(tokenizer.before)
        offsets = tokenizer.encode_with_offsets(tokenizer.before + text)[1] - before
        return [(start, end) for start, end in offsets.tolist()]

    def decode(self, ids: Sequence[int], columns: Sequence[str] = ()) -> str:
        """Return the text of `ids`, with words copied from the source `columns`."""
        copied = {id: word for word, id in self.unknown_words(columns).items()}
        tokenizer, special = self.target.tokenizer, {*self.target.special_ids} - {*copied}
        if not copied or not isinstance(tokenizer, WordTokenizer):
            return self.target.decode(ids)
        line = tokenizer.word_joiner()
        return "".join(line.feed(copied.get(id) or tokenizer.word(id)) for id in ids if id not in special)

    def unknown_words(self, columns: Sequence[str]) -> dict[str, int]:
        """Return ids for the unknown words of a source; empty for a model that cannot copy words."""
        tokenizer = self.source.tokenizer
        if not self.copies or not isinstance(tokenizer, WordTokenizer):
            return {}
        texts = (text for index, text in enumerate(columns) if index not in self.names)
        pairs = (pair for text in texts for pair in zip(tokenizer.words(text), tokenizer.encode(text), strict=True))
        words = dict.fromkeys(word for word, id in pairs if id == tokenizer.unknown_id)
        return {word: self.source.vocabulary_size + number for number, word in enumerate(words)}

    def _replace_unknown(self, ids: Ids, text: str, unknown: Mapping[str, int]) -> Ids:
        """Return the ids of a text, in which the words of `unknown` have the ids of `unknown`."""
        tokenizer = self.source.tokenizer
        if not unknown or not isinstance(tokenizer, WordTokenizer):
            return ids
        return np.array([unknown.get(word, id) for word, id in zip(tokenizer.words(text), ids, strict=True)], np.int64)

    @classmethod
    def _restored(
        cls, source: TokenizerWithSpecials, target: TokenizerWithSpecials | None,
        names: frozenset[Annotated[int, Bounds(0, 99)]], source_tokens: Annotated[int, Bounds(0, 1_000_000)],
        copies: bool,
    ) -> Self:  # fmt: skip
        return cls(source, target or source, names, source_tokens, copies)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | ({"target": None} if self.source is self.target else {})


def split_names(text: str) -> list[str]:
    """Return the names in a column such as `V;PST` or `V, PST`."""
    return [name for name in BETWEEN_NAMES.split(text) if name]


def _join_chunks(texts: Iterable[str]) -> Iterator[str]:
    return join_blocks(chain.from_iterable((" ", text, "\n") for text in texts), 1 << 16)


def with_other_stems(pairs: Sequence[Pair], num_copies: int) -> Iterator[Pair]:
    """Yield the pairs, then `num_copies` copies of each pair in which the stem has other letters.

    The stem is all common substrings of the first source text and the first target that have `MIN_STEM_CHARACTERS` or
    more characters. Its letters are replaced by letters drawn from all stems. A pair without stem has no copies.

    References:
        Anastasopoulos & Neubig 2019, "Pushing the limits of low-resource morphological inflection".
    """
    yield from pairs
    stems = []
    for pair in pairs if num_copies else ():
        blocks = SequenceMatcher(None, pair.sources[0], pair.targets[0], autojunk=False).get_matching_blocks()
        if long_blocks := [block for block in blocks if block.size >= MIN_STEM_CHARACTERS]:
            stems.append((pair, long_blocks))
    letters = [c for pair, blocks in stems for a, _, n in blocks for c in pair.sources[0][a : a + n] if c.isalpha()]
    generator = random.Random(0)
    for pair, blocks in chain.from_iterable(repeat(stems, num_copies)):
        source, target = map(list, (pair.sources[0], pair.targets[0]))
        for a, b, size in blocks:
            source[a : a + size] = [generator.choice(letters) if c.isalpha() else c for c in source[a : a + size]]
            target[b : b + size] = source[a : a + size]
        yield pair._replace(sources=("".join(source), *pair.sources[1:]), targets=("".join(target),))
