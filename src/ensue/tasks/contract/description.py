"""The description of a trained model, from which exporters write files for programs without ensue or torch.

`Pipeline.describe` returns it. An exporter asks for the kinds of its `input` and `output`, not for the name of a task,
so that it writes each model whose input and output it knows, also those of other packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.text.label_columns import TaggerLabels
from ensue.text.labels import Classes
from ensue.text.lexicon import Lexicon
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.tokenizer import Tokenizer
from ensue.types import Shared, State, map_state


class Setting(NamedTuple):
    """The value of an option of sampling or of a search, and its default, at which the option changes nothing."""

    value: Any
    default: Any


def settings_of(options: Any) -> dict[str, Setting]:
    """Return the fields of a dataclass of options with their values and defaults."""
    return {each.name: Setting(getattr(options, each.name), each.default) for each in fields(options)}


@dataclass(frozen=True)
class TokenInput:
    """A text as tokens, read from left to right, or at once if it is the input of a masked model."""

    tokenizer: Tokenizer


@dataclass(frozen=True)
class WordInput:
    """One text, or two, as words with features."""

    lexicon: Lexicon
    splitter: str
    num_texts: int
    has_other_layers: bool
    """Whether words also have vectors from the layers of another model."""
    max_words: int = 0
    """The words that are read of a longer text; 0: all."""
    kept_end: str = "start"
    """The words that are read of a longer text: those at its "start", at its "end", or half of them at "both"."""
    max_read: int = 0
    """The most words of a text that the model can read."""


@dataclass(frozen=True)
class SourceInput:
    """Texts and lists of names, as one sequence of tokens."""

    coder: TokenizerWithSpecials
    num_texts: int
    names: frozenset[int]
    """The places of the lists of names among the texts."""
    between_names: str
    """A regular expression of the characters between names."""
    max_tokens: int
    """The tokens that are read of a longer source; 0: all."""
    max_read: int
    """The most tokens of a source that the model can read."""


@dataclass(frozen=True)
class SoundFeatures:
    """Log-mel features of sounds, as arrays for a program that computes them."""

    rate: int
    """Samples per second."""
    size: int
    step: int
    """Samples of a frame, and from one frame to the next."""
    points: int
    """Points of the Fourier transform."""
    floor: float
    """The least energy of a band."""
    reach: float
    """The largest distance below the maximum of a sound, as a natural logarithm; 0: no limit."""
    window: NDArray[Any]
    """(size,)."""
    bands: NDArray[Any]
    """(bands, points // 2 + 1), the weights of frequencies in each band."""


@dataclass(frozen=True)
class SeriesInput:
    """A series of vectors of real numbers, from the columns of a table, from an array or from a sound."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    """(d,), by which vectors are normalized."""
    columns: tuple[str, ...]
    """The names of the d columns of a table; empty: there are none."""
    series_column: str
    label_column: str
    time_column: str
    group_column: str
    """The other columns of a table; empty: there is none."""
    max_length: int
    """The most vectors of a series that the model can read."""
    has_missing: bool
    """Whether a missing value is read as the mean."""
    sound: SoundFeatures | None


@dataclass(frozen=True)
class TokenOutput:
    """Scores of the next token of a text."""

    sampling: Mapping[str, Setting]
    """The options with which text may be generated."""


@dataclass(frozen=True)
class MaskedOutput:
    """Scores of masked tokens, and vectors of texts."""


@dataclass(frozen=True)
class TagOutput:
    """A label for each word of a sentence, or for each vector of a series."""

    labels: TaggerLabels


@dataclass(frozen=True)
class ClassOutput:
    """Labels of a whole text or series."""

    labels: Classes


@dataclass(frozen=True)
class TextOutput:
    """A text, found by a beam search."""

    coder: TokenizerWithSpecials
    ratio: float
    """The most tokens of an output for each token of its source, to which `more_tokens` are added."""
    more_tokens: int
    search: Mapping[str, Setting]


@dataclass(frozen=True)
class VectorOutput:
    """Vectors of words or texts, or the distribution of the next vector of a series."""


Input = TokenInput | WordInput | SourceInput | SeriesInput
Output = TokenOutput | MaskedOutput | TagOutput | ClassOutput | TextOutput | VectorOutput


@dataclass(frozen=True)
class TensorForm:
    """The sizes of a tensor, where a word stands for any number, and its type."""

    sizes: tuple[int | str, ...]
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class TensorFunction:
    """A function of a model and named tensors, which can be traced; a state is a tensor for each leaf."""

    name: str
    function: Callable[..., dict[str, Tensor]]
    """(model, **inputs) to the outputs by name; what they are at padding is defined."""
    inputs: Mapping[str, TensorForm]
    sample: Callable[[int, int], dict[str, Tensor]]
    """Return inputs of some rows and positions, to compare a traced function with this one."""


@dataclass(frozen=True)
class ModelDescription:
    """A trained model: what it reads and gives, its modules, and its functions of tensors."""

    input: Input
    output: Output
    model: nn.Module
    """Its children are the features, the layers and the head. `ensue.engine.trace` turns a layer into a program."""
    functions: tuple[TensorFunction, ...]
    function_model: nn.Module
    """The model that the functions are given: `model`, or one that has it and others inside."""
    programs: tuple[str, ...]
    """The Python program that uses the functions, and the modules beside it that it imports: names of the exporter's
    programs, or dotted names of modules.
    """
    settings: Mapping[str, Any]
    """The settings that the program reads, as JSON values."""
    tokenizers: Mapping[str, Tokenizer] = field(default_factory=dict)
    """The tokenizers, by the names of their files."""
    data_set: Callable[[Any, Any], Any] | None = None
    """(recipe, run) to the labeled examples of the recipe, whose `split` has the validation data."""

    @property
    def kinds(self) -> tuple[type[Input], type[Output]]:
        """The classes of `input` and `output`, by which exporters choose."""
        return type(self.input), type(self.output)


def mask_of(numbers: Tensor, lengths: Tensor) -> Tensor:
    """(B, T), True at the first `lengths` positions of each row."""
    return torch.arange(numbers.shape[1], device=numbers.device) < lengths.unsqueeze(1)


def sample_lengths(batch: int, length: int) -> Tensor:
    """The lengths of some rows, 1 at least; the first one has them all."""
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[0] = length
    return lengths


def state_forms(state: State, longer: State = None) -> dict[str, TensorForm]:
    """The names and sizes of the leaves of an initial state of several rows.

    A size is free if it is 0 and grows, or differs from that in `longer`, the state after a longer source. It is "past"
    where attention grows, and "source" elsewhere. Of what rows share there are "texts"; each is read by as many rows.
    """
    others = _leaves(state if longer is None else longer, "state", None)
    found = {}
    for (name, leaf, word), (_, other, _) in zip(_leaves(state, "state", None), others, strict=True):
        pairs = zip(leaf.shape[1:], other.shape[1:], strict=True)
        sizes = [word or "source" if a != b or (a == 0 and word) else a for a, b in pairs]
        found[name] = TensorForm(("texts" if word == "source" else "batch", *sizes), leaf.dtype)
    return found


def state_tensors(state: State, prefix: str = "state") -> dict[str, Tensor]:
    """The leaves of a state by their names."""
    return {name: leaf for name, leaf, _ in _leaves(state, prefix, None)}


def state_from(like: State, tensors: Mapping[str, Tensor], count: int | None = None) -> State:
    """The state of the form `like` with these leaves. With `count` rows, equally many read each text, in order."""
    names = iter([name for name, _, _ in _leaves(like, "state", None)])

    def given(leaf: Tensor) -> Tensor:
        return tensors[next(names)]

    def shared(part: Shared) -> Shared:
        found = Shared.of(map_state(given, part.content))
        rows = torch.arange(count or found.texts, device=found.rows.device)
        return found if count is None else Shared(found.content, rows // max(1, count // max(1, found.texts)))

    return map_state(given, like, shared=shared)


def _leaves(state: State, path: str, more: str | None) -> Iterator[tuple[str, Tensor, str | None]]:
    """The name of each leaf, the leaf, and the word for a size of it that is 0 in the beginning."""
    if isinstance(state, Tensor):
        yield path, state, more
    elif isinstance(state, Shared):
        yield from _leaves(state.content, path, "source")
    elif state is not None:
        more = "past" if hasattr(state, "grows") else more
        names = getattr(state, "_fields", None) or range(len(state))
        for name, part in zip(names, state, strict=True):
            yield from _leaves(part, f"{path}.{name}", more)
