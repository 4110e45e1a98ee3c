"""Features of words: vectors of words, characters, affixes and shapes, pretrained vectors, columns, contextual vectors.

Features that depend on the word form only are computed once for each distinct form in a batch.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.vectors import VectorIndex
from ensue.engine import ModuleCopy, weights_are_frozen
from ensue.models.layer_outputs import ContextualVectors, LayersShape
from ensue.models.subword_encoder import Subwords
from ensue.models.word_specification import FeatureSpecification, SentenceFeatureSpecification
from ensue.nn import CharacterCNN, CharacterLSTM, TokenEmbedding
from ensue.nn.draws import ElementDropout
from ensue.stored import Copyable
from ensue.text.lexicon import Lexicon, WordForms

CHUNK_FORMS = 1024
"""The number of word forms that are computed together."""
MAX_FORMS, MIN_ROWS = 1 << 16, 1 << 10
"""The maximum number of cached word forms, and the initial number of rows of the cache."""
CHARACTERS_PER_FORM = 64
"""A form of n characters counts as 1 + n // 64 forms, since a word may be very long."""
INITIAL_STD = 0.1
REACH = 2
"""The number of words on each side whose features a linear tagger reads."""
VARIANCES = {1: (1.0,), 3: (0.5, 2.0, 0.5), 5: (0.5, 1.0, 4.0, 1.0, 0.5)}
"""The prior variances of scores in a window of 1, 3 or 5 words, relative to C."""
SHAPE_VARIANCES = {3: (0.5, 2.0, 0.5), 5: (0.0, 0.5, 2.0, 0.5, 0.0)}
"""The prior variances of the scores of a complete shape. The scores of a short shape have `VARIANCES`."""
NO_VECTOR, NEW_CHARACTER, NEW_WORD = 1, 2, 4
"""Bits of `FormTable.lacks`."""


class EncodedForms(NamedTuple):
    """The ids of U word forms: `WordForms` as tensors."""

    words: Int[Tensor, " U"]
    characters: Int[Tensor, "U L"]
    lengths: Int[Tensor, " U"]
    affixes: Int[Tensor, "U A"]
    shapes: Int[Tensor, " U"]
    vectors: Int[Tensor, " U"]
    keys: Int[Tensor, "U ..."]

    @classmethod
    def of(cls, forms: WordForms, device: torch.device) -> Self:
        """Convert word forms to tensors on a device."""
        return cls(*(torch.from_numpy(ids).to(device) for ids in forms))


class Positions(Protocol):
    """The input of a feature layer: a batch (B, T) of words or other items."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of positions in each, (B, T)."""

    @property
    def mask(self) -> Bool[Tensor, "B T"] | None:
        """True at real positions; None without padding."""

    @property
    def subwords(self) -> Subwords | None:
        """The subwords of the words, for a `SubwordEncoder`."""

    @property
    def num_real(self) -> int:
        """The number of real positions."""

    @property
    def keys(self) -> Int[Tensor, "B T ..."]:
        """The key of the word at each position: an id of its form, and hashes of its n-grams of characters, if used."""


class Words(NamedTuple):
    """A batch of texts: distinct word forms, and at each position the index of its form and ids of further columns.

    `contextual` are the layers (B, T, L, d) of other models, `subwords` the input of a `SubwordEncoder`.
    """

    forms: EncodedForms
    numbers: Int[Tensor, "B T"]
    columns: Int[Tensor, "B T C"]
    mask: Bool[Tensor, "B T"] | None
    contextual: tuple[Tensor, ...] = ()
    subwords: Subwords | None = None

    def slice_rows(self, rows: slice) -> Self:
        """Return a slice of the rows."""
        return self._replace(
            numbers=self.numbers[rows], columns=self.columns[rows], mask=None if self.mask is None else self.mask[rows],
            contextual=tuple(layers[rows] for layers in self.contextual),
            subwords=None if self.subwords is None else self.subwords.slice_rows(rows),
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of positions in each, (B, T)."""
        return self.numbers.shape[0], self.numbers.shape[1]

    @property
    def num_real(self) -> int:
        """The number of real words."""
        return self.numbers.numel() if self.mask is None else int(self.mask.sum())

    @property
    def keys(self) -> Int[Tensor, "B T ..."]:
        """The key of the word at each position: an id of its form, and hashes of its n-grams of characters, if used."""
        return self.forms.keys[self.numbers]


class FormTable(NamedTuple):
    """Features and keys of N word forms.

    `lacks` has the bit `NO_VECTOR` for words without a pretrained vector, `NEW_CHARACTER` for words with an unknown
    character, and `NEW_WORD` for words that are not in the vocabulary.
    """

    vectors: Float[Tensor, "N d"]
    keys: Int[Tensor, "N ..."]
    lacks: Int[Tensor, " N"]
    ids: Int[Tensor, "N F"] = torch.zeros(0, 0, dtype=torch.int64)
    """In a cache, the ids of words, shapes, pretrained vectors and affixes of the forms."""


class WordFeatures(nn.Module):
    """A map from `Words` to the concatenated features (B, T, d_out) of a recipe.

    The last `d_late` features are concatenated to the output of the first layer. `contextual` are the shapes of the
    layers of other models.
    """

    def __init__(
        self, specification: FeatureSpecification, lexicon: Lexicon, *, pretrained: Tensor | None = None,
        contextual: Sequence[LayersShape] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.dropout_words, self.dropout = specification.dropout_words, ElementDropout(specification.dropout)
        self.words = _build_table(len(lexicon.words), specification.d_words) if specification.d_words else None
        self.characters = _build_characters(specification, lexicon)
        self.affixes = _build_table(len(lexicon.affixes), specification.d_affix) if lexicon.affixes else None
        self.shapes = _build_table(len(lexicon.shapes), specification.d_shape) if lexicon.shapes else None
        self.vectors: nn.Embedding | None = None
        self.looked_up: Tensor | None = None
        saved: nn.Parameter | None = None
        if pretrained is not None:
            size = len(pretrained) - lexicon.kept_vectors
            self.vectors = nn.Embedding(size, pretrained.shape[1])
            self.vectors.weight = nn.Parameter(pretrained[:size].clone(), requires_grad=specification.train_vectors)
            if lexicon.kept_vectors:
                limit = torch.finfo(torch.float16).max
                saved = nn.Parameter(pretrained[size:].clamp(-limit, limit).half(), requires_grad=False)
        self.kept_vectors = saved
        d_column = specification.d_column if isinstance(specification, SentenceFeatureSpecification) else 0
        self.columns = nn.ModuleList(_build_table(len(vocabulary), d_column) for vocabulary in lexicon.columns.values())
        self.d_forms = sum(table.d_out for table in (self.words, self.characters, self.shapes) if table is not None)
        if self.affixes is not None:
            self.d_forms += 2 * lexicon.longest_affix * self.affixes.d_out
        if self.vectors is not None:
            self.d_forms += self.vectors.embedding_dim
        at, mix = specification.contextual_at, specification.contextual_mix
        places = [place for place in ("input", "first-layer") if contextual and at in (place, "both")]
        mixtures = [ContextualVectors(contextual, mix=mix) for _ in places]
        self.contextual = nn.ModuleList(mixtures)
        self.d_late = mixtures[-1].d_out if "first-layer" in places else 0
        self.d_out = self.d_forms + d_column * len(self.columns) + sum(mixture.d_out for mixture in mixtures)

    join: Callable[[list[Tensor]], Tensor] = partial(torch.cat, dim=-1)
    """The function that combines the features of words and of columns."""

    def form_vectors(self, forms: EncodedForms, *, character_vectors: Tensor | None = None) -> Float[Tensor, "U d"]:
        """Return the features of distinct words.

        `character_vectors` (U, d_characters) is the output of the character encoder, if it is already computed.
        """
        features = []
        if self.words is not None:
            words = forms.words
            if self.training and self.dropout_words:
                words = words.masked_fill(torch.rand(words.shape, device=words.device) < self.dropout_words, 0)
            features.append(self.words(words))
        if character_vectors is not None:
            features.append(character_vectors)
        elif self.characters is not None:
            real = torch.arange(forms.characters.shape[1], device=forms.lengths.device) < forms.lengths.unsqueeze(1)
            features.append(self.characters(forms.characters, real))
        if self.affixes is not None:
            features.append(self.affixes(forms.affixes).flatten(1))
        if self.shapes is not None:
            features.append(self.shapes(forms.shapes))
        if self.vectors is not None:
            features.append(self.pretrained(forms.vectors))
        if not features:
            return torch.zeros(len(forms.words), 0, dtype=torch.float32, device=forms.words.device)
        return torch.cat([tensor.float() for tensor in features], dim=-1)

    def pretrained(self, ids: Int[Tensor, " U"]) -> Float[Tensor, "U d"]:
        """Return pretrained vectors. Ids index the trainable table, then `kept_vectors`, then `looked_up`."""
        assert self.vectors is not None
        start = self.vectors.num_embeddings
        further = [rows for rows in (self.kept_vectors, self.looked_up) if rows is not None]
        x: Tensor = self.vectors(ids if self.training or not further else ids.masked_fill(ids >= start, 0))
        if self.training:
            return x
        for rows in further:
            inside = (ids >= start) & (ids < start + len(rows))
            x = x.where(~inside.unsqueeze(1), F.embedding((ids - start).masked_fill(~inside, 0), rows).to(x.dtype))
            start += len(rows)
        return x

    def with_vectors(self, rows: Float[Tensor, "N d"]) -> Self:
        """Return a copy with the pretrained vectors of additional words; see `Lexicon.with_vectors`."""
        other = copy(self)
        other.looked_up = rows
        return other

    @torch.inference_mode()
    def table(self, forms: WordForms, device: torch.device) -> FormTable:
        """Return the features of many forms, computed in chunks of similar length."""
        vectors = torch.empty(len(forms.words), self.d_forms, dtype=torch.float32, device=device)
        for rows in np.array_split(np.argsort(forms.lengths, kind="stable"), len(vectors) // CHUNK_FORMS + 1):
            vectors[torch.from_numpy(rows).to(device)] = self.form_vectors(EncodedForms.of(forms.select(rows), device))
        real = np.arange(forms.characters.shape[1]) < forms.lengths[:, None]
        lacks = NEW_CHARACTER * (real & (forms.characters == 0)).any(1)
        lacks += NEW_WORD * (np.atleast_2d(forms.keys.T)[0] < 0)
        if self.vectors is not None:
            lacks += NO_VECTOR * (forms.vectors == 0)
        return FormTable(vectors, *(torch.from_numpy(ids).to(device) for ids in (forms.keys, lacks)))

    def assemble(
        self, vectors: Float[Tensor, "U d"], numbers: Int[Tensor, "B T"], columns: Int[Tensor, "B T C"] | None = None,
        contextual: Sequence[Tensor] = (),
    ) -> Float[Tensor, "B T d_out"]:  # fmt: skip
        """Return the features of each position from the vectors of forms, columns and layers of other models."""
        x = F.embedding(numbers, vectors)
        if columns is not None and len(self.columns):
            x = self.join([x, *(table(ids) for table, ids in zip(self.columns, columns.unbind(-1), strict=True))])
        if len(self.contextual):
            x = torch.cat([x, *(mixture(contextual) for mixture in self.contextual)], dim=-1)
        return self.dropout(x) if self.training else x

    def forward(self, words: Words) -> Float[Tensor, "B T d_out"]:
        """Return the features of a batch of words."""
        return self.assemble(self.form_vectors(words.forms), words.numbers, words.columns, words.contextual)


class WindowScores(WordFeatures):
    """The features of a linear tagger: scores (B, T, W K) of K tags for the words in a window around each word.

    Block p of the W = 2 `REACH` + 1 blocks has the scores that the word at t adds to the word at t + p - `REACH`. The
    scores of all features of a word are added up. Words, columns and, with `d_shape` = 2, shapes have scores in all
    blocks. Shapes with another `d_shape` have scores in the three middle blocks, and affixes in the middle block. A
    complete word counts once as a prefix and once as a suffix. A short shape is a shape without repeated characters,
    such as `Xx-d` for `Xxxx-dd`. Its scores are added to the scores of its shapes: the solver has separate rows for
    short shapes, and the tables have the sums.
    """

    join = staticmethod(sum)  # type: ignore[assignment]

    def __init__(self, specification: FeatureSpecification, lexicon: Lexicon, num_tags: int) -> None:
        wide = (2 * REACH + 1) * num_tags
        sizes = {"d_words": wide if specification.d_words else 0, "d_affix": num_tags, "d_column": wide}
        sizes["d_shape"] = (5 if specification.d_shape == REACH else 3 if specification.d_shape else 0) * num_tags
        super().__init__(specification.model_copy(update=sizes), lexicon)
        self.num_tags, self.d_forms, self.d_out = num_tags, wide, wide
        shorts = [re.sub(r"(.)\1+", r"\1", shape) for shape in lexicon.shapes.symbols] if lexicon.shapes else []
        first = {short: number for number, short in reversed([*enumerate(shorts)])}
        self.short_shapes = torch.tensor([first[short] for short in shorts])
        """For each shape, the first shape with the same short shape."""
        self.set_rows(torch.zeros(len(self.variances), num_tags))

    def _iterate_tables(self) -> Iterator[tuple[TokenEmbedding, tuple[float, ...], Int[Tensor, " n"]]]:
        """Yield for each kind of feature its table, the prior variances of the blocks, and the feature of each row."""
        for table in (self.words, self.affixes, self.shapes, *self.columns):
            if isinstance(table, TokenEmbedding):
                variances = SHAPE_VARIANCES if table is self.shapes else VARIANCES
                yield table, variances[table.d_out // self.num_tags], torch.arange(len(table.weight))
        if self.shapes is not None:
            yield self.shapes, VARIANCES[self.shapes.d_out // self.num_tags], self.short_shapes

    @property
    def variances(self) -> Float[Tensor, " R"]:
        """The prior variances of all rows of K scores, relative to C; rows with the variance 0 are not used."""
        return torch.cat([torch.tensor(variances).repeat(len(ids)) for _, variances, ids in self._iterate_tables()])

    @torch.no_grad()
    def set_rows(self, scores: Float[Tensor, "R K"]) -> None:
        """Set the tables from all rows of K scores. The scores of short shapes are added to the scores of shapes."""
        for parameter in self.parameters():
            parameter.zero_()
        for table, variances, features in self._iterate_tables():
            rows, scores = scores.tensor_split([len(variances) * len(features)])
            table.weight.add_(rows.view_as(table.weight)[features])

    def _ids(self, forms: EncodedForms) -> Iterator[tuple[TokenEmbedding, Int[Tensor, "U n"]]]:
        """Yield the tables of word forms, with the ids of all forms in each; repeated affixes have the id 0."""
        repeats = F.pad(forms.affixes[:, 1:] == forms.affixes[:, :-1], (1, 0))
        ids = forms.words.unsqueeze(1), forms.affixes.masked_fill(repeats, 0), forms.shapes.unsqueeze(1)
        tables = zip((self.words, self.affixes, self.shapes), ids, strict=True)
        return ((table, ids_of_table) for table, ids_of_table in tables if table is not None)

    def form_vectors(self, forms: EncodedForms, *, character_vectors: Tensor | None = None) -> Float[Tensor, "U d"]:
        scores = torch.zeros(len(forms.words), self.d_forms, dtype=torch.float32, device=forms.words.device)
        for table, ids in self._ids(forms):
            scores = scores + F.pad(table(ids).sum(1), 2 * ((self.d_forms - table.d_out) // 2,))
        return scores

    def rows(self, words: Words) -> Int[Tensor, "P N"]:
        """Return for each position the rows of K scores whose sum is the emissions; -1 for no row.

        Rows are numbered through all tables, in the order of `variances`.
        """
        ids_by_table = {table: ids[words.numbers] for table, ids in self._ids(words.forms)}
        ids_by_table |= zip(self.columns, words.columns.unsqueeze(3).unbind(2), strict=True)  # type: ignore[arg-type]
        first, rows = 0, []
        for table, variances, features in self._iterate_tables():
            ids, num_blocks = ids_by_table[table], len(variances)
            is_none = (ids == 0) & (table is self.affixes)
            is_none |= is_none if words.mask is None else ~words.mask.unsqueeze(2)
            starts, reach = (first + num_blocks * features[ids]).masked_fill(is_none, -num_blocks), num_blocks // 2
            padded = F.pad(starts, (0, 0, reach, reach), value=-num_blocks)
            rows += [padded[:, num_blocks - 1 - p :][:, : ids.shape[1]] + p for p in range(num_blocks) if variances[p]]
            first += num_blocks * len(features)
        return torch.cat(rows, dim=2).clamp(min=-1).flatten(0, 1)


def _build_table(size: int, d_out: int) -> TokenEmbedding:
    """Build an embedding with small initial values, so that rare words have little influence (docs/log)."""
    table = TokenEmbedding(size, d_out)
    nn.init.normal_(table.weight, std=INITIAL_STD)
    return table


def _build_characters(specification: FeatureSpecification, lexicon: Lexicon) -> CharacterLSTM | CharacterCNN | None:
    if specification.characters == "none" or lexicon.characters is None:
        return None
    kind = CharacterLSTM if specification.characters == "lstm" else CharacterCNN
    return kind(len(lexicon.characters), d_character=specification.d_character, d_out=specification.d_characters)


class CachedForms(NamedTuple):
    """The row numbers of cached word forms, and a table of rows. A row never changes after it is written."""

    numbers: dict[str, int]
    rows: list[FormTable]
    """A list with one table, which is replaced by a larger table when it is full."""
    characters: ModuleCopy | None
    """A copy of the character layer with which the rows were computed."""

    @property
    def table(self) -> FormTable:
        """The rows of the forms so far."""
        return FormTable(*(tensor[: len(self.numbers)] for tensor in self.rows[0]))


class FormCache(Copyable):
    """A cache of the vectors of word forms, which is cleared if it exceeds `max_forms` or if a weight has changed.

    Unless `weights_are_frozen()`, each call compares the cached rows of its words with the current tables, and the
    small character layer with a copy. Pretrained vectors of words that the model lacks are read from `vectors`, a file.

    Threads may share the cache: each thread computes its new forms, and a lock protects lookup and insertion. A
    returned table never changes.
    """

    def __init__(
        self, features: WordFeatures, lexicon: Lexicon, device: torch.device, *, max_forms: int = MAX_FORMS,
        vectors: VectorIndex | None = None,
    ) -> None:  # fmt: skip
        self.features, self.lexicon, self.device = features, lexicon, device
        self.max_forms, self.vectors = max_forms, vectors
        self._lock = Lock()
        self.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cached": None}  # the cache is not copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.clear()

    def clear(self) -> None:
        """Remove all forms."""
        self._size = 0
        characters = self.features.characters
        self._cached = CachedForms({}, [self._rows(MIN_ROWS)], None if characters is None else ModuleCopy(characters))

    def look_up(self, words: Sequence[str]) -> tuple[FormTable, NDArray[np.int32]]:
        """Return a table that has a row for each of `words`, and the row number of each word (N,)."""
        distinct = dict.fromkeys(words)
        with self._lock:
            if self._size > self.max_forms or not (weights_are_frozen() or self._are_current(distinct)):
                self.clear()
            cached = self._cached
            new = [word for word in distinct if word not in cached.numbers]
        rows = self._compute(new) if new else None
        with self._lock:
            if rows is not None:
                self._add(cached, new, rows)
            return cached.table, np.fromiter(map(cached.numbers.__getitem__, words), np.int32, len(words))

    def read(self, words: Sequence[str]) -> tuple[WordFeatures, Lexicon]:
        """Return the features and the lexicon, extended by the vectors of `words` in the file."""
        if self.vectors is None or self.lexicon.vectors is None:
            return self.features, self.lexicon
        forms = dict.fromkeys(form for word in words for form in (word, word.lower()))
        new_forms, rows = self.vectors.find([form for form in forms if form not in self.lexicon.vectors.ids])
        if not new_forms:
            return self.features, self.lexicon
        return self.features.with_vectors(torch.from_numpy(rows).to(self.device)), self.lexicon.with_vectors(new_forms)

    @torch.inference_mode()
    def _are_current(self, words: Iterable[str]) -> bool:
        """Return whether the cached rows of `words` equal the vectors that the current weights give."""
        cached, characters = self._cached, self.features.characters
        numbers = sorted({cached.numbers[word] for word in words if word in cached.numbers})
        if characters is not None and not (cached.characters and cached.characters.equals(characters)):
            return False
        rows = torch.from_numpy(np.array(numbers, np.int64)).to(self.device)
        vectors, ids = cached.rows[0].vectors[rows], cached.rows[0].ids[rows]
        first = 0 if self.features.words is None else self.features.words.d_out
        character_vectors = None if characters is None else vectors[:, first : first + characters.d_out]
        word_ids, shapes, pretrained = ids[:, :3].unbind(1)
        table, saved, is_from_file = self.features.vectors, self.features.kept_vectors, None
        if table is not None:
            is_from_file = pretrained >= table.num_embeddings + (0 if saved is None else len(saved))
            pretrained = pretrained.masked_fill(is_from_file, 0)
        forms = EncodedForms(word_ids, ids[:, :0], word_ids, ids[:, 3:], shapes, pretrained, word_ids)
        current = self.features.form_vectors(forms, character_vectors=character_vectors)
        if table is not None:
            current[is_from_file, -table.embedding_dim :] = vectors[is_from_file, -table.embedding_dim :]
        return torch.equal(current, vectors)

    def _compute(self, words: Sequence[str]) -> FormTable:
        features, lexicon = self.read(words)
        forms = lexicon.encode(words)
        ids = np.column_stack([forms.words, forms.shapes, forms.vectors, forms.affixes])
        return features.table(forms, self.device)._replace(ids=torch.from_numpy(ids).to(self.device))

    def _add(self, cached: CachedForms, words: list[str], rows: FormTable) -> None:
        """Insert the rows of words, except words that another thread has inserted meanwhile."""
        new = [index for index, word in enumerate(words) if word not in cached.numbers]
        if len(new) < len(words):
            selected = torch.tensor(new, dtype=torch.int64, device=self.device)
            words, rows = [words[index] for index in new], FormTable(*(tensor[selected] for tensor in rows))
        count, total = len(cached.numbers), len(cached.numbers) + len(words)
        if total > len(cached.rows[0].keys):  # doubled, so that rows are seldom copied
            larger = self._rows(max(total, 2 * len(cached.rows[0].keys)))
            _write(larger, 0, FormTable(*(tensor[:count] for tensor in cached.rows[0])))
            cached.rows[0] = larger
        _write(cached.rows[0], count, rows)
        cached.numbers.update(zip(words, range(count, total), strict=True))
        self._size += sum(1 + len(word) // CHARACTERS_PER_FORM for word in words)

    @torch.inference_mode(False)  # so that rows can be written inside and outside of inference mode
    def _rows(self, count: int) -> FormTable:
        empty, lacks = self.lexicon.encode([]), torch.zeros(count, dtype=torch.int64, device=self.device)
        vectors = torch.zeros(count, self.features.d_forms, dtype=torch.float32, device=self.device)
        keys = lacks.new_zeros(count, *empty.keys.shape[1:])
        return FormTable(vectors, keys, lacks, lacks.new_zeros(count, 3 + empty.affixes.shape[1]))


def _write(table: FormTable, start: int, rows: FormTable) -> None:
    for column, values in zip(table, rows, strict=True):
        column[start : start + len(values)] = values
