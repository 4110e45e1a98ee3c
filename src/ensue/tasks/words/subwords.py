"""Texts of words as the subwords of a language model whose layers are tuned, in windows where they are long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged, Texts
from ensue.errors import DataError
from ensue.models.subword_encoder import Subwords
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.stored import changed
from ensue.tasks.contract.task import on_device
from ensue.tasks.texts.framing import Framing, Ids

MOST_KNOWN, LONGEST_KNOWN = 1 << 17, 32
"""The most words whose subwords are kept, and the most characters of one of them."""


class SubwordRow(NamedTuple):
    """A row that is read: ids, segments, and by place in it the slots of which the vector is kept, with weights."""

    ids: Ids
    segments: Ids
    places: Ids
    slots: Ids
    weights: NDArray[np.float32]


class SubwordReader:
    """Cuts words into subwords, and makes batches of them. `pooling` makes one vector for a word: first, last or mean.

    With `whole`, a text has a vector of its own too, as classifiers need. With `with_blanks`, words come with the
    blanks before them. Threads may share it.
    """

    def __init__(self, framing: Framing, *, pooling: str, whole: bool, with_blanks: bool = False) -> None:
        self.blanks = framing.first if with_blanks else None
        """The blanks that the words of a text have before the first one; None if they come without blanks."""
        if with_blanks:
            framing = replace(framing, first="", blank="")
        if framing.is_causal and not whole:
            framing = replace(framing, end=())
        self.framing, self.pooling, self.whole = framing, pooling, whole
        self._known: dict[str, Ids] = {}

    def pieces(self, words: Sequence[str], *, first: bool = False) -> list[Ids]:
        """The subwords of each word, as they are inside of a text, or as the `first` of a text."""
        if len(self._known) > MOST_KNOWN:
            self._known = {}
        known, encode = self._known, self.framing.encode
        blank = self.framing.first if first else self.framing.blank
        found = []
        for word in words:
            ids = known.get(blank + word)
            if ids is None:
                ids = encode(blank + word)
                if len(word) <= LONGEST_KNOWN:
                    known[blank + word] = ids
            found.append(ids)
        return found

    def texts(self, *texts: Sequence[Sequence[str]]) -> SubwordTexts:
        """Texts of words, or pairs of them: first all first ones, then all second ones."""
        found = tuple(Texts() for _ in texts)
        for whole, part in zip(found, texts, strict=True):
            for words in part:
                whole.append(words)
        return SubwordTexts(self, found)

    def variants(self, texts: Sequence[Sequence[Sequence[str | None]]], device: torch.device) -> Subwords:
        """The batch of texts, each with its one or two parts, in which a word that is None is unknown."""
        unread = np.array(self.framing.unread, np.int64)

        def cut(words: Sequence[str | None]) -> list[Ids]:
            return [
                unread if word is None else self.pieces([word], first=not place)[0] for place, word in enumerate(words)
            ]

        return self.batch([[cut(part) for part in parts] for parts in texts], device)

    def batch(self, rows: Sequence[Sequence[Sequence[Ids]]], device: torch.device) -> Subwords:
        """The batch of these texts: for each its one or two parts, for each of these the subwords of every word."""
        planned = [self._windows(parts) for parts in rows]
        windows = [window for some in planned for window in some]
        extra = int(self.whole)
        counts = np.array([sum(map(len, parts)) + extra for parts in rows])
        number = int(counts.max(initial=0))
        owners = np.repeat(np.arange(len(rows)), [len(some) for some in planned])
        lengths = np.array([len(window.ids) for window in windows], np.int64)
        width = int(lengths.max(initial=0))
        real, slots_real = np.arange(width) < lengths[:, None], np.arange(number) < counts[:, None]
        ids, segments = np.zeros(real.shape, np.int64), np.zeros(real.shape, np.int64)
        if windows:
            ids[real] = np.concatenate([window.ids for window in windows])
            segments[real] = np.concatenate([window.segments for window in windows])
        places = [window.places + width * at for at, window in enumerate(windows)]
        slots = [window.slots + number * owner for owner, window in zip(owners.tolist(), windows, strict=True)]
        none = np.zeros(0, np.int64)
        weights = np.concatenate([none.astype(np.float32), *(window.weights for window in windows)])
        return Subwords(
            ids=on_device(ids, device),
            mask=None if real.all() else on_device(real, device),
            segments=on_device(segments, device) if segments.any() else None,
            rows=on_device(owners, device),
            places=on_device(np.concatenate([none, *places]), device),
            slots=on_device(np.concatenate([none, *slots]), device),
            weights=on_device(weights, device) if self.pooling == "mean" else None,
            real=None if slots_real.all() else on_device(slots_real, device),
            size=(len(rows), number),
            first=self.first,
            share=len(rows) / max(1, int((lengths - 1).sum())),
        )

    def check_pair(self, size: int) -> None:
        """Raises DataError if a pair of so many subwords, with the sign between its texts, cannot be read at once."""
        framing = self.framing
        most = framing.most - len(framing.begin) - len(framing.end)
        if framing.most and size > most:
            raise DataError(
                f"a pair of {size:,} subwords; this model reads up to {most:,}: cut the texts, or train with "
                "data.max_tokens, which reads a part of long ones"
            )

    @property
    def first(self) -> int:
        """The slot of the first word."""
        return int(self.whole and not self.framing.is_causal)

    def _windows(self, parts: Sequence[Sequence[Ids]]) -> list[SubwordRow]:
        begin, end = len(self.framing.begin), len(self.framing.end)
        body, segments, places, slots, weights = self._body(parts)
        if len(parts) > 1:
            self.check_pair(len(body))
        found = []
        for span in self.framing.windows(len(body)):
            ids = self.framing.framed(body[span.begin : span.end])
            here = (places >= span.first) & (places < span.last)
            at = places[here] - span.begin + begin
            last = np.full(end, segments[-1] if len(segments) else 0)
            around = np.concatenate((np.zeros(begin, np.int64), segments[span.begin : span.end], last))
            found.append(SubwordRow(ids, around, at, slots[here], weights[here]))
        return self._with_whole(found, sum(map(len, parts))) if self.whole else found

    def _with_whole(self, windows: list[SubwordRow], words: int) -> list[SubwordRow]:
        """The windows of a text with the slot of the text: the sign before it, or for a causal model that behind it."""
        number = -1 if self.framing.is_causal else 0
        window = windows[number]
        place, slot = (len(window.ids) - 1, words) if self.framing.is_causal else (0, 0)
        windows[number] = window._replace(
            places=np.append(window.places, place),
            slots=np.append(window.slots, slot),
            weights=np.append(window.weights, np.float32(1)),
        )
        return windows

    def _body(self, parts: Sequence[Sequence[Ids]]) -> tuple[Ids, Ids, Ids, Ids, NDArray[np.float32]]:
        """The subwords and segments of a text or a pair, and the places and weights from which slots take vectors."""
        none = np.zeros(0, np.int64)
        between = np.array(self.framing.between if len(parts) > 1 else (), np.int64)
        body: list[Ids] = [none]
        places: list[Ids] = [none]
        slots: list[Ids] = [none]
        weights = [none.astype(np.float32)]
        segments, size, words = [], 0, self.first
        for number, part in enumerate(parts):
            if number:
                body.append(between)
                size += len(between)
                segments.append(np.zeros(len(between), np.int64))
            counts = np.array([len(ids) for ids in part], np.int64)
            chosen, of, weight = self._chosen(counts)
            places.append(chosen + size)
            slots.append(of + words)
            weights.append(weight)
            body += part
            segments.append(np.full(int(counts.sum()), number, np.int64))
            size, words = size + int(counts.sum()), words + len(part)
        return (
            np.concatenate(body), np.concatenate([none, *segments]), np.concatenate(places), np.concatenate(slots),
            np.concatenate(weights),
        )  # fmt: skip

    def _chosen(self, counts: Ids) -> tuple[Ids, Ids, NDArray[np.float32]]:
        """The places of the subwords whose vectors are those of words, with the words' numbers and weights."""
        ends, some = np.cumsum(counts), np.flatnonzero(counts)
        match self.pooling:
            case "first":
                return (ends - counts)[some], some, np.ones(len(some), np.float32)
            case "last":
                return ends[some] - 1, some, np.ones(len(some), np.float32)
        of = np.repeat(np.arange(len(counts)), counts)
        return np.arange(len(of)), of, (1 / counts[of]).astype(np.float32)


class SubwordTexts:
    """Texts, or pairs of them, whose distinct words are cut once."""

    def __init__(self, reader: SubwordReader, texts: Sequence[Texts]) -> None:
        self.reader = reader
        self.forms = [part.words.values for part in texts]
        self.pieces = [reader.pieces(forms) for forms in self.forms]
        self.words = [part.ragged for part in texts]
        if len(texts) > 1:  # here, before a run begins
            sizes = [self._sizes(*part) for part in zip(self.pieces, self.words, strict=True)]
            reader.check_pair(int(np.sum(sizes, axis=0).max(initial=0)) + len(reader.framing.between))

    @staticmethod
    def _sizes(pieces: list[Ids], words: Ragged) -> Ids:
        """The number of subwords of each text."""
        counts = np.array([len(ids) for ids in pieces], np.int64)
        ends = np.concatenate(([0], np.cumsum(counts[words.values])))
        sizes: Ids = np.diff(ends[words.starts])
        return sizes

    def joined(self, firsts: Ids) -> Self:
        """Several texts as one: those from `firsts[n]` to `firsts[n + 1]`."""
        return changed(self, words=[words.joined(firsts) for words in self.words])

    def batch(self, rows: Ids, device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Subwords:
        """The batch of the texts in these rows, cut; all are read, since a text can have several windows."""
        found = []
        for row in rows.tolist():
            parts = []
            for forms, pieces, words in zip(self.forms, self.pieces, self.words, strict=True):
                numbers = words[row].tolist()
                first = self.reader.pieces([forms[number] for number in numbers[:1]], first=True)
                parts.append([*first, *(pieces[number] for number in numbers[1:])])
            found.append(parts)
        whole = self.reader.batch(found, device)
        return whole if row_slice == ALL_ROWS else row_slice.of_batch(whole)
