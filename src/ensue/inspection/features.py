"""The components of a word's features, the features of a text without a component, and the effects of letters.

A component is blanked by the id 0 (unknown). The characters of a word are one component; it is blanked by the length 0.
"""

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
from ensue.text.lexicon import Lexicon, WordForms, clip_characters, shape
from ensue.types import to_float64


class InputField(NamedTuple):
    """The location of a component's id: a field of `WordForms`, "columns", "contextual" or "subwords", and an index."""

    field: str
    number: int = -1
    """The index within the field; -1 if the field has a single id for a word."""


class Part(NamedTuple):
    """A component of a word's features: word, characters, prefix, suffix, shape, vector, "column X" or "run X"."""

    kind: str
    text: str
    """The text that the vocabulary maps to the component's id."""
    is_known: bool
    """Whether the text is in the vocabulary; for characters, whether all characters are in it."""
    norm: float
    """The norm of the component's vector."""
    place: InputField


class ReadFeatures(NamedTuple):
    """Inputs of layers: features `x` (B, T, d), word `keys` (B, T), and the subwords for encoders of subwords."""

    x: Tensor
    keys: Tensor
    subwords: Subwords | None = None


class ReadWords:
    """The words of a text as inputs of a model: distinct `forms`, and their `numbers` (T,) at the T positions.

    `columns` has the values of other columns of the data by name, and `contextual` the layers (1, T, L, d) of other
    runs by run. For encoders of subwords, `subwords` is a function from texts (with None for an unknown word) to
    inputs, and `norms` (T,) are the norms of the words' vectors.
    """

    def __init__(
        self, features: WordFeatures, lexicon: Lexicon, words: Sequence[str],
        columns: Mapping[str, Sequence[str]] | None = None, *, contextual: Mapping[str, Tensor] = MappingProxyType({}),
        subwords: Callable[[Sequence[Sequence[str | None]]], Subwords] | None = None, norms: Sequence[float] = (),
        device: torch.device,
    ) -> None:  # fmt: skip
        self.contextual, self.subwords, self.norms = contextual, subwords, norms
        self.features, self.lexicon, self.words, self.device = features, lexicon, tuple(words), device
        distinct = list(dict.fromkeys(words))
        number = {word: index for index, word in enumerate(distinct)}
        self.forms = lexicon.encode(distinct)
        self.numbers = np.array([number[word] for word in words], np.int64)
        self.column_values = {name: tuple((columns or {})[name]) for name in lexicon.columns}
        ids = [lexicon.encode_column(name, values) for name, values in self.column_values.items()]
        self.columns = np.stack(ids, -1) if ids else np.zeros((len(self.words), 0), np.int64)

    def __len__(self) -> int:
        return len(self.words)

    def inputs(self) -> ReadFeatures:
        """Return the inputs of the text, as a batch of one row."""
        texts = [self.words]
        return self._read(self.forms, self.numbers[None], self.columns[None], list(self.contextual.values()), texts)

    def blank_components(self, position: int, places: Sequence[InputField]) -> ReadFeatures:
        """Return a batch with a row for each of `places`. In a row, this component of word `position` is blank."""
        forms = self.forms.select(np.full(len(places), self.numbers[position]))
        numbers, columns, contextual, texts = self._repeat(len(places))
        for row, (field, index) in enumerate(places):
            if field == "columns":
                columns[row, position, index] = 0
            elif field == "contextual":
                contextual[index][row, position] = 0
            elif field == "subwords":
                texts[row][position] = None
            else:
                getattr(forms, field)[row if index < 0 else (row, index)] = 0
        numbers[:, position] = len(self.forms.words) + np.arange(len(places))
        return self._read(_concatenate(self.forms, forms), numbers, columns, contextual, texts)

    def blank_words(self, groups: Sequence[range]) -> ReadFeatures:
        """Return a batch with a row for each of `groups`. In a row, all components of the group's words are blank."""
        blank = WordForms(*(np.zeros((1, *ids.shape[1:]), np.int64) for ids in self.forms))
        numbers, columns, contextual, texts = self._repeat(len(groups))
        for row, group in enumerate(groups):
            numbers[row, group] = len(self.forms.words)
            columns[row, group] = 0
            for layers in contextual:
                layers[row, group.start : group.stop] = 0
            texts[row][group.start : group.stop] = [None] * len(group)
        return self._read(_concatenate(self.forms, blank), numbers, columns, contextual, texts)

    def _repeat(self, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Tensor], list[list[str | None]]]:
        """Return word ids, column ids, contextual vectors and words, each repeated for `rows` rows."""
        contextual = [layers.repeat(rows, 1, 1, 1) for layers in self.contextual.values()]
        texts: list[list[str | None]] = [list(self.words) for _ in range(rows)]
        return np.tile(self.numbers, (rows, 1)), np.tile(self.columns, (rows, 1, 1)), contextual, texts

    def _read(
        self, forms: WordForms, numbers: NDArray[np.int64], columns: NDArray[np.int64], contextual: Sequence[Tensor],
        texts: Sequence[Sequence[str | None]],
    ) -> ReadFeatures:  # fmt: skip
        table = self.features.table(forms, self.device)
        rows = torch.from_numpy(numbers).to(self.device)
        x = self.features.assemble(table.vectors, rows, torch.from_numpy(columns).to(self.device), contextual)
        return ReadFeatures(x, table.keys[rows], None if self.subwords is None else self.subwords(texts))

    def is_known(self) -> NDArray[np.bool_]:
        """Return whether words (T,) have a trained or pretrained vector."""
        return ((self.forms.words > 0) | (self.forms.vectors > 0))[self.numbers]

    @torch.inference_mode()
    def parts(self) -> list[list[Part]]:
        """Return the components of each word."""
        by_form: list[list[Part]] = [[] for _ in self.forms.words]
        for kind, texts, known, vectors, location in self._form_components():
            norms = vectors.float().norm(dim=-1).tolist()
            for parts, text, is_known, norm in zip(by_form, texts, known.tolist(), norms, strict=True):
                parts.append(Part(kind, text, is_known, norm, location))
        by_position = []
        for position, (number, word) in enumerate(zip(self.numbers, self.words, strict=True)):
            parts = list(by_form[number])
            for index, (name, values) in enumerate(self.column_values.items()):
                id = self.columns[position, index]
                norm = float(self.features.columns[index](torch.tensor(id, device=self.device)).norm())
                parts.append(Part(f"column {name}", values[position], bool(id), norm, InputField("columns", index)))
            for index, (run, layers) in enumerate(self.contextual.items()):
                norm = float(layers[0, position].norm())
                parts.append(Part(f"run {run}", word, True, norm, InputField("contextual", index)))
            if self.subwords is not None:
                parts.append(Part("subwords", word, True, self.norms[position], InputField("subwords")))
            by_position.append(parts)
        return by_position

    def _form_components(self) -> Iterator[tuple[str, list[str], NDArray[np.bool_], Tensor, InputField]]:
        """Yield the kind, texts, known flags, vectors (U, d) and location of each component of the distinct forms."""
        features, lexicon, forms = self.features, self.lexicon, self.forms
        words, on_device = list(dict.fromkeys(self.words)), EncodedForms.of(forms, self.device)
        if features.words is not None:
            texts = [*map(lexicon.normalize, words)]
            yield "word", texts, forms.words > 0, features.words(on_device.words), InputField("words")
        if features.characters is not None:
            real = np.arange(forms.characters.shape[1]) < forms.lengths[:, None]
            vectors = features.characters(on_device.characters, torch.from_numpy(real).to(self.device))
            known = ~(real & (forms.characters == 0)).any(1)
            yield "characters", [*map(clip_characters, words)], known, vectors, InputField("lengths")
        if features.affixes is not None:
            affixes, vectors = [lexicon.affixes_of(word) for word in words], features.affixes(on_device.affixes)
            for index in range(2 * lexicon.longest_affix):
                kind = "prefix" if index < lexicon.longest_affix else "suffix"
                texts, known = [of_word[index] for of_word in affixes], forms.affixes[:, index] > 0
                yield kind, texts, known, vectors[:, index], InputField("affixes", index)
        if features.shapes is not None:
            vectors = features.shapes(on_device.shapes)
            yield "shape", [*map(shape, words)], forms.shapes > 0, vectors, InputField("shapes")
        if features.vectors is not None:
            yield "vector", words, forms.vectors > 0, features.pretrained(on_device.vectors), InputField("vectors")


def _concatenate(a: WordForms, b: WordForms) -> WordForms:
    length = max(a.characters.shape[1], b.characters.shape[1])

    def pad(ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.pad(ids, ((0, 0), (0, length - ids.shape[1])))

    pairs = zip(a, b, strict=True)
    return WordForms(*(np.concatenate([pad(x), pad(y)] if x is a.characters else [x, y]) for x, y in pairs))


class CharacterView(NamedTuple):
    """The L letters of a word, and the effects (L,) of the letters by name.

    For an LSTM, "left to right" and "right to left" are `‖h_l - h_{l-1}‖`, where l - 1 is the letter that the LSTM read
    before letter l. For a CNN, "maxima" is the number of filters whose maximum is at the letter.
    """

    letters: str
    traces: dict[str, NDArray[np.float64]]


@torch.inference_mode()
def view_characters(features: WordFeatures, read: ReadWords, num_words: int) -> list[CharacterView]:
    """Return the views of the first `num_words` words; an empty list if the model has no character features."""
    layer = features.characters
    if layer is None:
        return []
    views: dict[int, CharacterView] = {}
    is_lstm = isinstance(layer, CharacterLSTM)
    effects: Callable[..., dict[str, NDArray[np.float64]]] = _lstm_effects if is_lstm else _cnn_effects
    for position, number in enumerate(read.numbers[:num_words].tolist()):
        if number not in views:
            ids = read.forms.characters[number, : read.forms.lengths[number]]
            traces = effects(layer, torch.from_numpy(ids[None]).to(device_of(layer))) if len(ids) else {}
            views[number] = CharacterView(clip_characters(read.words[position]), traces)
    return [views[number] for number in read.numbers[:num_words].tolist()]


def _lstm_effects(layer: CharacterLSTM, ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    with watch(layer, "*.hidden") as values_at:
        layer(ids)
    rightward, leftward = values_at["rightward.hidden"], values_at["leftward.hidden"]

    def changes(states: list[torch.Tensor]) -> NDArray[np.float64]:
        return to_float64(torch.cat([torch.zeros_like(states[0]), *states])).diff(dim=0).norm(dim=-1).cpu().numpy()

    return {"left to right": changes(rightward), "right to left": changes(leftward)[::-1]}


def _cnn_effects(layer: CharacterCNN, ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    with watch(layer, "responses") as values_at:
        layer(ids)
    winners = values_at["responses"][0][0].cpu().numpy().argmax(0)  # the first of equal maxima, as in `MaxPooling`
    return {"maxima": np.bincount(winners, minlength=ids.shape[1]).astype(np.float64)}
