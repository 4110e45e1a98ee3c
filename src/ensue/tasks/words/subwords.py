"""Subwords of texts that are split into words, for a fine-tuned language model; long texts have several windows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Texts
from ensue.errors import DataError
from ensue.models.subword_encoder import Subwords
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.stored import copy_with
from ensue.tasks.contract.task import on_device
from ensue.tasks.texts.framing import Framing, Ids

MAX_CACHED_WORDS, MAX_CACHED_CHARACTERS = 1 << 17, 32
"""The maximum number of words whose subwords are cached, and of characters of such a word."""


class SubwordWindow(NamedTuple):
    """A window over the subwords of a text. For each i, the output at position `places[i]` times `weights[i]` is added
    to the vector of slot `slots[i]`. The slots of a text are its words, and its text vector if it has one.
    """

    ids: Ids
    segments: Ids
    places: Ids
    slots: Ids
    weights: NDArray[np.float32]


class SubwordReader:
    """A thread-safe splitter of words into subwords, with the tokenizer and the tokens around a window of `framing`.

    The vector of a word is the vector of its "first" or "last" subword, or their "mean" (`pooling`). `has_text_vector`
    is whether a text also has a vector. `with_blanks` is whether words include the blanks before them, so that no
    blanks are added.
    """

    def __init__(self, framing: Framing, *, pooling: str, has_text_vector: bool, with_blanks: bool = False) -> None:
        self.blanks = framing.first_blank if with_blanks else None
        """The blanks before the first word of a text; None if words come without blanks."""
        if with_blanks:
            framing = replace(framing, first_blank="", blank="")
        if framing.is_causal and not has_text_vector:
            framing = replace(framing, end=())
        self.framing, self.pooling, self.has_text_vector = framing, pooling, has_text_vector
        self.first_word_slot = int(has_text_vector and not framing.is_causal)
        self._cache: dict[str, Ids] = {}

    def encode(self, words: Sequence[str], *, is_start: bool = False) -> list[Ids]:
        """Return the subwords of each word. `is_start` is whether each word begins a text."""
        if len(self._cache) > MAX_CACHED_WORDS:
            self._cache = {}
        cache, encode = self._cache, self.framing.encode
        blank = self.framing.first_blank if is_start else self.framing.blank
        subwords = []
        for word in words:
            ids = cache.get(blank + word)
            if ids is None:
                ids = encode(blank + word)
                if len(word) <= MAX_CACHED_CHARACTERS:
                    cache[blank + word] = ids
            subwords.append(ids)
        return subwords

    def texts(self, *texts: Sequence[Sequence[str]]) -> "SubwordTexts":
        """Return encoded texts, or encoded pairs for two arguments: all first texts, then all second texts."""
        columns = tuple(Texts() for _ in texts)
        for column, side in zip(columns, texts, strict=True):
            for words in side:
                column.append(words)
        return SubwordTexts(self, columns)

    def batch_with_unknown(self, texts: Sequence[Sequence[Sequence[str | None]]], device: torch.device) -> Subwords:
        """Return the batch of rows of one or two texts, where None stands for an unknown word."""
        unknown = np.array(self.framing.unknown, np.int64)

        def split(words: Sequence[str | None]) -> list[Ids]:
            return [unknown if word is None else self.encode([word], is_start=not n)[0] for n, word in enumerate(words)]

        return self.batch([[split(words) for words in row] for row in texts], device)

    def batch(self, rows: Sequence[Sequence[Sequence[Ids]]], device: torch.device) -> Subwords:
        """Return the batch of rows. A row has one or two texts, and a text is a list of the subwords of its words."""
        windows_of_rows = [self._split_windows(texts) for texts in rows]
        windows = [window for row_windows in windows_of_rows for window in row_windows]
        extra = int(self.has_text_vector)
        counts = np.array([sum(map(len, texts)) + extra for texts in rows])
        num_slots = int(counts.max(initial=0))
        window_rows = np.repeat(np.arange(len(rows)), [len(row_windows) for row_windows in windows_of_rows])
        lengths = np.array([len(window.ids) for window in windows], np.int64)
        width = int(lengths.max(initial=0))
        mask, slot_mask = np.arange(width) < lengths[:, None], np.arange(num_slots) < counts[:, None]
        ids, segments = np.zeros(mask.shape, np.int64), np.zeros(mask.shape, np.int64)
        if windows:
            ids[mask] = np.concatenate([window.ids for window in windows])
            segments[mask] = np.concatenate([window.segments for window in windows])
        places = [window.places + width * index for index, window in enumerate(windows)]
        slots = [window.slots + num_slots * row for row, window in zip(window_rows.tolist(), windows, strict=True)]
        empty = np.zeros(0, np.int64)
        weights = np.concatenate([empty.astype(np.float32), *(window.weights for window in windows)])
        return Subwords(
            ids=on_device(ids, device), mask=None if mask.all() else on_device(mask, device),
            segments=on_device(segments, device) if segments.any() else None, rows=on_device(window_rows, device),
            places=on_device(np.concatenate([empty, *places]), device),
            slots=on_device(np.concatenate([empty, *slots]), device),
            weights=on_device(weights, device) if self.pooling == "mean" else None,
            slot_mask=None if slot_mask.all() else on_device(slot_mask, device), size=(len(rows), num_slots),
            first_word_slot=self.first_word_slot, texts_per_prediction=len(rows) / max(1, int((lengths - 1).sum())),
        )  # fmt: skip

    def check_pair(self, size: int) -> None:
        """Raise DataError if a pair of `size` subwords, including the separator, does not fit into a window."""
        framing = self.framing
        limit = framing.max_positions - len(framing.begin) - len(framing.end)
        if framing.max_positions and size > limit:
            raise DataError(
                f"a pair of {size:,} subwords; this model reads up to {limit:,}: cut the texts, or train with "
                "data.max_tokens, which truncates long texts"
            )

    def _split_windows(self, texts: Sequence[Sequence[Ids]]) -> list[SubwordWindow]:
        """Return the windows over a row of one or two texts."""
        begin, end = len(self.framing.begin), len(self.framing.end)
        body, segments, places, slots, weights = self._join(texts)
        if len(texts) > 1:
            self.check_pair(len(body))
        windows = []
        for span in self.framing.windows(len(body)):
            ids = self.framing.add_frame(body[span.begin : span.end])
            is_used = (places >= span.first) & (places < span.last)
            last = np.full(end, segments[-1] if len(segments) else 0)
            framed_segments = np.concatenate((np.zeros(begin, np.int64), segments[span.begin : span.end], last))
            used_places = places[is_used] - span.begin + begin
            windows.append(SubwordWindow(ids, framed_segments, used_places, slots[is_used], weights[is_used]))
        if self.has_text_vector:  # the output at the first token, or for a causal model at the last token
            index, slot = (-1, sum(map(len, texts))) if self.framing.is_causal else (0, 0)
            window = windows[index]
            windows[index] = window._replace(
                places=np.append(window.places, len(window.ids) - 1 if self.framing.is_causal else 0),
                slots=np.append(window.slots, slot),
                weights=np.append(window.weights, np.float32(1)),
            )
        return windows

    def _join(self, texts: Sequence[Sequence[Ids]]) -> tuple[Ids, Ids, Ids, Ids, NDArray[np.float32]]:
        """Return the ids and segments of a row of one or two texts, and the places, slots and weights of its words."""
        empty = np.zeros(0, np.int64)
        between = np.array(self.framing.between if len(texts) > 1 else (), np.int64)
        body, segments, places, slots = [empty], [empty], [empty], [empty]
        weights = [empty.astype(np.float32)]
        size, num_words = 0, self.first_word_slot
        for number, text in enumerate(texts):
            if number:
                body.append(between)
                size += len(between)
                segments.append(np.zeros(len(between), np.int64))
            counts = np.array([len(ids) for ids in text], np.int64)
            text_places, words, text_weights = self._find_places(counts)
            places.append(text_places + size)
            slots.append(words + num_words)
            weights.append(text_weights)
            body += text
            segments.append(np.full(int(counts.sum()), number, np.int64))
            size, num_words = size + int(counts.sum()), num_words + len(text)
        body_ids, body_segments, all_places, all_slots = map(np.concatenate, (body, segments, places, slots))
        return body_ids, body_segments, all_places, all_slots, np.concatenate(weights)

    def _find_places(self, counts: Ids) -> tuple[Ids, Ids, NDArray[np.float32]]:
        """Return the positions of the subwords that are pooled, the indices of their words, and their weights."""
        ends, words = np.cumsum(counts), np.flatnonzero(counts)
        match self.pooling:
            case "first":
                return (ends - counts)[words], words, np.ones(len(words), np.float32)
            case "last":
                return ends[words] - 1, words, np.ones(len(words), np.float32)
        words = np.repeat(np.arange(len(counts)), counts)
        return np.arange(len(words)), words, (1 / counts[words]).astype(np.float32)


class SubwordTexts:
    """Texts, or pairs of texts, whose distinct words are split once."""

    def __init__(self, reader: SubwordReader, texts: Sequence[Texts]) -> None:
        self.reader = reader
        self.distinct_words = [column.words.values for column in texts]
        self.subwords = [reader.encode(words) for words in self.distinct_words]
        self.words = [column.ragged for column in texts]
        if len(texts) > 1:  # check here, so that the error about a long pair comes before training
            sizes = np.zeros(len(self.words[0]), np.int64)
            for subwords, words in zip(self.subwords, self.words, strict=True):
                counts = np.array([len(ids) for ids in subwords], np.int64)
                sizes += np.diff(np.concatenate(([0], np.cumsum(counts[words.values])))[words.starts])
            reader.check_pair(int(sizes.max(initial=0)) + len(reader.framing.between))

    def joined(self, firsts: Ids) -> Self:
        """Return concatenated texts: text n joins the texts from `firsts[n]` to `firsts[n + 1]` (exclusive)."""
        return copy_with(self, words=[words.joined(firsts) for words in self.words])

    def batch(self, rows: Ids, device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Subwords:
        """Return the slice `row_slice` of the batch of the texts `rows`; all rows are encoded before the slice."""
        batch_rows = []
        for row in rows.tolist():
            texts = []
            for distinct, subwords, words in zip(self.distinct_words, self.subwords, self.words, strict=True):
                word_ids = words[row].tolist()
                first = self.reader.encode([distinct[number] for number in word_ids[:1]], is_start=True)
                texts.append([*first, *(subwords[number] for number in word_ids[1:])])
            batch_rows.append(texts)
        batch = self.reader.batch(batch_rows, device)
        return batch if row_slice == ALL_ROWS else row_slice.select_from(batch)
