"""The parts of a word's features, the features of a text without one of them, and the effects of letters.

A part is blanked by reading it as unknown (id 0), the characters all together by leaving them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.models.modules import device_of
from ensue.models.subword_encoder import Subwords
from ensue.models.word_features import EncodedForms, WordFeatures
from ensue.nn import CharacterCNN, CharacterLSTM, watch
from ensue.text.lexicon import Lexicon, WordForms, letters, shape
from ensue.types import exact


class PartLocation(NamedTuple):
    """The place of a part's id: a field of `WordForms`, "columns", "contextual" or "subwords", and the index there."""

    field: str
    which: int = -1
    """-1 if the word has only one id there."""


class Part(NamedTuple):
    """A part of a word's features; `kind` is word, characters, prefix, suffix, shape, vector, "column X" or "run X"."""

    kind: str
    text: str
    """The text by which the part is looked up."""
    is_known: bool
    """Whether the training data had it; for characters, all of them."""
    norm: float
    """The length of its vector."""
    place: PartLocation


class ReadFeatures(NamedTuple):
    """Inputs of layers: features (B, T, d), keys of words (B, T), and subwords for layers that read these."""

    x: Tensor
    keys: Tensor
    subwords: Subwords | None = None


class ReadWords:
    """The words of a text as a model reads them: `forms` are the distinct ones, `numbers` (T,) those that stand there.

    `columns` are the given values of each word by name, as the lexicon names them, `contextual` the words in the layers
    (1, T, L, d) of other runs. `subwords` reads texts, in which None is an unknown word, for layers that read these;
    `norms` (T,) are the lengths of the vectors that these layers give.
    """

    def __init__(
        self,
        features: WordFeatures,
        lexicon: Lexicon,
        words: Sequence[str],
        columns: Mapping[str, Sequence[str]] | None = None,
        *,
        contextual: Mapping[str, Tensor] = MappingProxyType({}),
        subwords: Callable[[Sequence[Sequence[str | None]]], Subwords] | None = None,
        norms: Sequence[float] = (),
        device: torch.device,
    ) -> None:
        self.contextual, self.subwords, self.norms = contextual, subwords, norms
        self.features, self.lexicon, self.words, self.device = features, lexicon, tuple(words), device
        distinct = list(dict.fromkeys(words))
        number = {word: place for place, word in enumerate(distinct)}
        self.forms = lexicon.encode(distinct)
        self.numbers = np.array([number[word] for word in words], np.int64)
        self.given = {name: tuple((columns or {})[name]) for name in lexicon.columns}
        ids = [lexicon.encode_column(name, values) for name, values in self.given.items()]
        self.columns = np.stack(ids, -1) if ids else np.zeros((len(self.words), 0), np.int64)

    def __len__(self) -> int:
        return len(self.words)

    def reading(self) -> ReadFeatures:
        """The text as it is, in one row."""
        texts = [self.words]
        return self._reading(self.forms, self.numbers[None], self.columns[None], list(self.contextual.values()), texts)

    def blanked(self, position: int, places: Sequence[PartLocation]) -> ReadFeatures:
        """For each of `places`, a row with the text in which this part is blanked at one position."""
        own = self.forms.select(np.full(len(places), self.numbers[position]))
        numbers, columns, contextual, texts = self._copies(len(places))
        for row, (field, which) in enumerate(places):
            if field == "columns":
                columns[row, position, which] = 0
            elif field == "contextual":
                contextual[which][row, position] = 0
            elif field == "subwords":
                texts[row][position] = None
            else:
                getattr(own, field)[row if which < 0 else (row, which)] = 0
        numbers[:, position] = len(self.forms.words) + np.arange(len(places))
        return self._reading(_joined(self.forms, own), numbers, columns, contextual, texts)

    def unread(self, groups: Sequence[range]) -> ReadFeatures:
        """For each of `groups`, a row with the text in which all parts of its words are unknown."""
        blank = WordForms(*(np.zeros((1, *ids.shape[1:]), np.int64) for ids in self.forms))
        numbers, columns, contextual, texts = self._copies(len(groups))
        for row, group in enumerate(groups):
            numbers[row, group] = len(self.forms.words)
            columns[row, group] = 0
            for layers in contextual:
                layers[row, group.start : group.stop] = 0
            texts[row][group.start : group.stop] = [None] * len(group)
        return self._reading(_joined(self.forms, blank), numbers, columns, contextual, texts)

    def _copies(self, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Tensor], list[list[str | None]]]:
        """Return the ids of words and of columns, their vectors in other runs, and the words, each `rows` times."""
        contextual = [layers.repeat(rows, 1, 1, 1) for layers in self.contextual.values()]
        texts: list[list[str | None]] = [list(self.words) for _ in range(rows)]
        return np.tile(self.numbers, (rows, 1)), np.tile(self.columns, (rows, 1, 1)), contextual, texts

    def _reading(
        self,
        forms: WordForms,
        numbers: NDArray[np.int64],
        columns: NDArray[np.int64],
        contextual: Sequence[Tensor],
        texts: Sequence[Sequence[str | None]],
    ) -> ReadFeatures:
        table = self.features.table(forms, self.device)
        places = torch.from_numpy(numbers).to(self.device)
        x = self.features.in_place(table.vectors, places, torch.from_numpy(columns).to(self.device), contextual)
        return ReadFeatures(x, table.keys[places], None if self.subwords is None else self.subwords(texts))

    def is_known(self) -> NDArray[np.bool_]:
        """Which words (T,) have a vector of their own, trained or pretrained."""
        return ((self.forms.words > 0) | (self.forms.vectors > 0))[self.numbers]

    @torch.inference_mode()
    def parts(self) -> list[list[Part]]:
        """The parts of each word."""
        parts = self._parts_of_forms()
        found = []
        for position, number in enumerate(self.numbers):
            given = []
            for index, table in enumerate(self.features.columns):
                name, id = list(self.given)[index], self.columns[position, index]
                norm = float(table(torch.tensor(id, device=self.device)).norm())
                given.append(
                    Part(f"column {name}", self.given[name][position], bool(id), norm, PartLocation("columns", index))
                )
            for index, (run, layers) in enumerate(self.contextual.items()):
                norm, place = float(layers[0, position].norm()), PartLocation("contextual", index)
                given.append(Part(f"run {run}", self.words[position], True, norm, place))
            if self.subwords is not None:
                norm, place = self.norms[position], PartLocation("subwords")
                given.append(Part("subwords", self.words[position], True, norm, place))
            found.append([*parts[number], *given])
        return found

    def _parts_of_forms(self) -> list[list[Part]]:
        parts: list[list[Part]] = [[] for _ in self.forms.words]
        for kind, texts, known, vectors, place in self._columns_of_forms():
            norms = vectors.float().norm(dim=-1).tolist()
            for row, part in enumerate(zip(texts, known.tolist(), norms, strict=True)):
                parts[row].append(Part(kind, *part, place))
        return parts

    def _columns_of_forms(self) -> Iterator[tuple[str, list[str], NDArray[np.bool_], Tensor, PartLocation]]:
        """For each part of all distinct forms: its kind, its texts, whether they are known, and the vectors (U, d)."""
        features, lexicon, forms = self.features, self.lexicon, self.forms
        words, on_device = list(dict.fromkeys(self.words)), EncodedForms.of(forms, self.device)
        if features.words is not None:
            texts = [*map(lexicon.normalized, words)]
            yield "word", texts, forms.words > 0, features.words(on_device.words), PartLocation("words")
        if features.characters is not None:
            real = np.arange(forms.characters.shape[1]) < forms.lengths[:, None]
            vectors = features.characters(on_device.characters, torch.from_numpy(real).to(self.device))
            known = ~(real & (forms.characters == 0)).any(1)
            yield "characters", [*map(letters, words)], known, vectors, PartLocation("lengths")
        if features.affixes is not None:
            affixes, vectors = [lexicon.affixes_of(word) for word in words], features.affixes(on_device.affixes)
            for index in range(2 * lexicon.longest_affix):
                kind = "prefix" if index < lexicon.longest_affix else "suffix"
                texts, known = [found[index] for found in affixes], forms.affixes[:, index] > 0
                yield kind, texts, known, vectors[:, index], PartLocation("affixes", index)
        if features.shapes is not None:
            vectors = features.shapes(on_device.shapes)
            yield "shape", [*map(shape, words)], forms.shapes > 0, vectors, PartLocation("shapes")
        if features.vectors is not None:
            yield "vector", words, forms.vectors > 0, features.pretrained(on_device.vectors), PartLocation("vectors")


def _joined(forms: WordForms, others: WordForms) -> WordForms:
    """The rows of both."""
    longest = max(forms.characters.shape[1], others.characters.shape[1])

    def widened(ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.pad(ids, ((0, 0), (0, longest - ids.shape[1])))

    pairs = zip(forms, others, strict=True)
    return WordForms(*(np.concatenate([widened(a), widened(b)] if a is forms.characters else [a, b]) for a, b in pairs))


class CharacterView(NamedTuple):
    """A word's letters (L) and by name their effects, each an array (L,).

    An LSTM's "left to right" and "right to left" are `‖h_l - h_{l-1}‖` in the order in which it reads; a CNN's "maxima"
    counts the filters whose largest response is there.
    """

    letters: str
    traces: dict[str, NDArray[np.float64]]


@torch.inference_mode()
def characters_of(features: WordFeatures, read: ReadWords, num_words: int) -> list[CharacterView]:
    """The views of the first words; empty if the model does not read letters."""
    layer = features.characters
    if layer is None:
        return []
    views: dict[int, CharacterView] = {}
    effects: Callable[..., dict[str, NDArray[np.float64]]] = _lstm if isinstance(layer, CharacterLSTM) else _cnn
    for position, number in enumerate(read.numbers[:num_words].tolist()):
        if number not in views:
            ids = read.forms.characters[number, : read.forms.lengths[number]]
            traces = effects(layer, torch.from_numpy(ids[None]).to(device_of(layer))) if len(ids) else {}
            views[number] = CharacterView(letters(read.words[position]), traces)
    return [views[number] for number in read.numbers[:num_words].tolist()]


def _lstm(layer: CharacterLSTM, ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    with watch(layer, "*.hidden") as seen:
        layer(ids)

    def moves(states: list[torch.Tensor]) -> NDArray[np.float64]:
        h = exact(torch.cat([torch.zeros_like(states[0]), *states]))
        found: NDArray[np.float64] = h.diff(dim=0).norm(dim=-1).cpu().numpy()
        return found

    return {
        "left to right": moves(seen["rightward.hidden"]),
        "right to left": moves(seen["leftward.hidden"])[::-1],
    }


def _cnn(layer: CharacterCNN, ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    with watch(layer, "responses") as seen:
        layer(ids)
    winners = seen["responses"][0][0].cpu().numpy().argmax(0)  # among equal ones the first, as `MaxPooling` has it
    return {"maxima": np.bincount(winners, minlength=ids.shape[1]).astype(np.float64)}
