"""The description of a trained model, from which exporters write files for programs without ensue or torch.

`Pipeline.describe` returns the description. An exporter depends on the classes of `input` and `output`, not on the name
of the task. So it can also export models of other packages.
"""

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


class OptionValue(NamedTuple):
    """The value and the default of an option of sampling or of a search."""

    value: Any
    default: Any


def settings_of(options: Any) -> dict[str, OptionValue]:
    """Return the fields of a dataclass of options with their values and defaults."""
    return {field.name: OptionValue(getattr(options, field.name), field.default) for field in fields(options)}


@dataclass(frozen=True)
class TokenInput:
    """A text as tokens: the input of a causal or a masked language model."""

    tokenizer: Tokenizer


@dataclass(frozen=True)
class WordInput:
    """One or two texts, as words with features."""

    lexicon: Lexicon
    splitter: str
    num_texts: int
    has_other_layers: bool
    """Whether the words also have vectors from the layers of another model."""
    max_words: int = 0
    """The number of words to which texts are truncated; 0: no truncation."""
    truncation_keeps: str = "start"
    """The words that truncation keeps: at the "start", at the "end", or half of `max_words` at each end ("both")."""
    max_read: int = 0
    """The maximum number of words of a text; longer texts are errors."""


@dataclass(frozen=True)
class SourceInput:
    """Texts and lists of names, as one sequence of tokens."""

    coder: TokenizerWithSpecials
    num_texts: int
    names: frozenset[int]
    """The indices of the texts that are lists of names."""
    between_names: str
    """A regular expression for the separators of names."""
    max_tokens: int
    """The number of tokens to which sources are truncated; 0: no truncation."""
    max_read: int
    """The maximum number of tokens of a source; longer sources are errors."""


@dataclass(frozen=True)
class SoundFeatures:
    """The parameters of log-mel features of sounds."""

    rate: int
    """The sample rate in hertz."""
    size: int
    """The number of samples of a frame."""
    step: int
    """The number of samples between the starts of neighboring frames."""
    points: int
    """The number of points of the Fourier transform."""
    floor: float
    """The minimum energy of a band."""
    dynamic_range: float
    """In nats: log energies are clipped to the maximum of the sound minus this number; 0: no clipping."""
    window: NDArray[Any]
    """The window function (size,)."""
    bands: NDArray[Any]
    """The weights of frequencies in each band (bands, points // 2 + 1)."""


@dataclass(frozen=True)
class SeriesInput:
    """A series of vectors of real numbers, from the columns of a table, from an array or from a sound."""

    mean: tuple[float, ...]
    """The mean (d,) that is subtracted from vectors."""
    deviation: tuple[float, ...]
    """The standard deviation (d,) by which vectors are divided."""
    columns: tuple[str, ...]
    """The names of the d columns of a table; empty without a table."""
    series_column: str
    label_column: str
    time_column: str
    group_column: str
    """The names of the columns with series, labels, times and groups; "" for a missing column."""
    max_length: int
    """The maximum number of vectors of a series."""
    has_missing: bool
    """Whether a missing value is read as the mean."""
    sound: SoundFeatures | None


@dataclass(frozen=True)
class TokenOutput:
    """Scores of the next token of a text."""

    sampling: Mapping[str, OptionValue]
    """The options of sampling."""


@dataclass(frozen=True)
class MaskedOutput:
    """Scores of masked tokens, and vectors of texts."""


@dataclass(frozen=True)
class TagOutput:
    """A label for each word of a sentence, or for each vector of a series."""

    labels: TaggerLabels


@dataclass(frozen=True)
class ClassOutput:
    """One label or several labels of a text or a series."""

    labels: Classes


@dataclass(frozen=True)
class TextOutput:
    """A text, found by a beam search."""

    coder: TokenizerWithSpecials
    ratio: float
    more_tokens: int
    """The maximum number of tokens of an output is `ratio · source tokens + more_tokens`."""
    search: Mapping[str, OptionValue]


@dataclass(frozen=True)
class VectorOutput:
    """Vectors of words or texts, or the distribution of the next vector of a series."""


Input = TokenInput | WordInput | SourceInput | SeriesInput
Output = TokenOutput | MaskedOutput | TagOutput | ClassOutput | TextOutput | VectorOutput


@dataclass(frozen=True)
class TensorSpec:
    """The shape and the type of a tensor; a string in `sizes` is the name of a dynamic size."""

    sizes: tuple[int | str, ...]
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class TensorFunction:
    """A traceable function of a model and named tensors; a state is passed as one tensor for each leaf."""

    name: str
    function: Callable[..., dict[str, Tensor]]
    """Maps the model and named inputs to named outputs. Outputs at padding must be defined, since they are compared."""
    inputs: Mapping[str, TensorSpec]
    sample: Callable[[int, int], dict[str, Tensor]]
    """Maps numbers of rows and positions to inputs, on which the traced function is compared with `function`."""


@dataclass(frozen=True)
class ModelDescription:
    """A trained model: its input and output, its modules, and its functions of tensors."""

    input: Input
    output: Output
    model: nn.Module
    """The module whose children are the features, the layers and the head."""
    functions: tuple[TensorFunction, ...]
    function_model: nn.Module
    """The first argument of the functions: `model`, or a module that contains it and other models."""
    programs: tuple[str, ...]
    """The Python program that uses the functions, then the modules that the program imports. An item is the name of a
    program of the exporter, or the dotted name of a module.
    """
    settings: Mapping[str, Any]
    """The settings of the Python program, as JSON values."""
    tokenizers: Mapping[str, Tokenizer] = field(default_factory=dict)
    """The tokenizers, by the names of their files."""
    data_set: Callable[[Any, Any], Any] | None = None
    """Maps recipe and run to the labeled examples, whose `split` has the validation data."""

    @property
    def kinds(self) -> tuple[type[Input], type[Output]]:
        """The classes of `input` and `output`."""
        return type(self.input), type(self.output)


def mask_of(numbers: Tensor, lengths: Tensor) -> Tensor:
    """Return a mask (B, T) for `numbers` (B, T, ...) that is True at the first `lengths` positions of each row."""
    return torch.arange(numbers.shape[1], device=numbers.device) < lengths.unsqueeze(1)


def sample_lengths(batch: int, length: int) -> Tensor:
    """Return random lengths (B,) of rows from 1 to `length`; the first row has `length`."""
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[0] = length
    return lengths


def state_specs(state: State, longer: State = None) -> dict[str, TensorSpec]:
    """Return the shapes and types of the leaves of a state. A size is dynamic if it differs in `longer`, the state for
    longer sources, or is 0 in a cache of positions or a shared memory. The name of a dynamic size is "past" in a cache
    of positions, and "source" elsewhere.
    """
    others = _iterate_leaves(state if longer is None else longer, "state")
    specs = {}
    for (name, leaf, dynamic), (_, other, _) in zip(_iterate_leaves(state, "state"), others, strict=True):
        pairs = zip(leaf.shape[1:], other.shape[1:], strict=True)
        sizes = [dynamic or "source" if a != b or (a == 0 and dynamic) else a for a, b in pairs]
        specs[name] = TensorSpec(("texts" if dynamic == "source" else "batch", *sizes), leaf.dtype)
    return specs


def state_tensors(state: State, prefix: str = "state") -> dict[str, Tensor]:
    """Return the leaves of a state by their names."""
    return {name: leaf for name, leaf, _ in _iterate_leaves(state, prefix)}


def state_from(like: State, tensors: Mapping[str, Tensor], count: int | None = None) -> State:
    """Return a state with the structure of `like`, from its leaves by their names in `state_tensors`. With `count`, the
    state has `count` rows, and equal blocks of rows share a memory. Otherwise rows share memories as in `like`.
    """
    names = iter([name for name, _, _ in _iterate_leaves(like, "state")])

    def leaf_tensor(leaf: Tensor) -> Tensor:
        return tensors[next(names)]

    def share_memory(memory: Shared) -> Shared:
        content = Shared.of(map_state(leaf_tensor, memory.content))
        rows = torch.arange(count or content.num_texts, device=content.rows.device)
        return content if count is None else Shared(content.content, rows // max(1, count // max(1, content.num_texts)))

    return map_state(leaf_tensor, like, shared=share_memory)


def _iterate_leaves(state: State, path: str, dynamic: str | None = None) -> Iterator[tuple[str, Tensor, str | None]]:
    """Yield the name and the tensor of each leaf, and the name of its dynamic size."""
    if isinstance(state, Tensor):
        yield path, state, dynamic
    elif isinstance(state, Shared):
        yield from _iterate_leaves(state.content, path, "source")
    elif state is not None:
        dynamic = "past" if hasattr(state, "num_positions") else dynamic
        for name, child in zip(getattr(state, "_fields", None) or range(len(state)), state, strict=True):
            yield from _iterate_leaves(child, f"{path}.{name}", dynamic)
