"""The description of an encoder-decoder for exporters: the state after a source, and one step of the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ensue.arguments import by_option_names
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError
from ensue.tasks.contract.description import (
    ModelDescription,
    SourceInput,
    TensorForm,
    TensorFunction,
    TextOutput,
    mask_of,
    sample_lengths,
    settings_of,
    state_forms,
    state_from,
    state_tensors,
)
from ensue.tasks.sequence_to_sequence.decoding import MORE_TOKENS, SEARCH_TOKENS, most_rows
from ensue.tasks.sequence_to_sequence.task import CHUNK, longest_read, most_written
from ensue.tasks.sequence_to_sequence.texts import BETWEEN_NAMES, PairCoder
from ensue.tasks.sequence_to_sequence.writer import Writer
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.portable import (
    PortableOrigins,
    WithOrigins,
    programs_of,
    reading_inputs,
    reading_samples,
    tokenizers_of,
)
from ensue.text.special_tokens import SPECIAL, TokenizerWithSpecials
from ensue.text.words import WordTokenizer
from ensue.types import select_rows


@torch.random.fork_rng(devices=[])  # samples are drawn
def describe(writer: Writer[Any], coder: PairCoder, contextual: ContextualFeatures) -> ModelDescription:
    """Return the description: two functions. The memory of a source, which does not change, is an input of each step.

    Args:
        writer: The encoder-decoder.
        coder: The tokenizers of both sides.
        contextual: The layers of other runs that its encoder reads.
    """
    both = WithOrigins(writer.model, contextual)
    origins = PortableOrigins(contextual, before=1)  # the source has ids of its own
    tokenizers = {"source.json": coder.source.tokenizer, "target.json": coder.target.tokenizer}
    tokenizers |= tokenizers_of(origins.readings)
    programs = tuple(dict.fromkeys(("translator", "subwords", *programs_of(origins.readings))))
    functions = _functions(both, origins, coder.source.vocabulary_size)
    source = SourceInput(
        coder.source, writer.num_texts, coder.names, BETWEEN_NAMES.pattern, coder.source_tokens,
        longest_read(writer.recipe)[0],
    )  # fmt: skip
    output = TextOutput(coder.target, writer.ratio, MORE_TOKENS, settings_of(writer.search))
    settings = _settings(writer, coder, origins)
    return ModelDescription(source, output, writer.model, functions, both, programs, settings, tokenizers)


def _functions(both: WithOrigins, origins: PortableOrigins, source_size: int) -> tuple[TensorFunction, ...]:
    """The encoder, from ids below `source_size` to a state, and the decoder's step."""

    def sources(batch: int, length: int) -> dict[str, Tensor]:
        ids = torch.randint(source_size, (batch, length))
        words = reading_samples(origins.readings, batch, {"": length})
        return {"ids": ids, "lengths": sample_lengths(batch, length), **words}

    def begun(both: WithOrigins, given: Mapping[str, Tensor]) -> Any:
        mask = mask_of(given["ids"], given["lengths"])
        return both.model.begin(given["ids"], mask, origins.layers(both, given))

    def read(both: WithOrigins, **given: Tensor) -> dict[str, Tensor]:
        return state_tensors(begun(both, given))

    with torch.inference_mode():
        like, longer = (begun(both, sources(2, length)) for length in (3, 4))

    def steps(batch: int, length: int) -> dict[str, Tensor]:
        beams = torch.arange(batch).repeat_interleave(2)
        ids = torch.randint(both.model.vocabulary_size, (2, len(beams)))
        _, state = both.model.step(ids[0], select_rows(begun(both, sources(batch, length)), beams))
        return {"ids": ids[1], **state_tensors(state)}

    def stepped(both: WithOrigins, ids: Tensor, **state: Tensor) -> dict[str, Tensor]:
        scores, after = both.model.step(ids, state_from(like, state, len(ids)))
        tensors = state_tensors(after, "state")
        changed = {name: tensor for name, tensor in tensors.items() if tensor is not state[name]}
        return {
            "scores": scores.log_softmax(-1),
            **{name.replace("state", "next", 1): tensor for name, tensor in changed.items()},
        }

    source = {
        "ids": TensorForm(("batch", "source"), torch.int64),
        "lengths": TensorForm(("batch",), torch.int64),
        **reading_inputs(origins.readings, ("",), time="source"),
    }
    step = {"ids": TensorForm(("batch",), torch.int64), **state_forms(like, longer)}
    return (
        TensorFunction("encoder", read, source, sources),
        TensorFunction("decoder", stepped, step, steps),
    )


def _settings(writer: Writer[Any], coder: PairCoder, origins: PortableOrigins) -> dict[str, Any]:
    """The settings of the program: both sides and the search."""
    search = writer.search
    if any(len(phrase) != 1 for phrase in search.forbidden):
        raise EnsueError(f"{writer.run}: a search that forbids phrases of several tokens cannot be exported")
    return {
        "source": _side(coder.source),
        "target": _side(coder.target),
        "names": sorted(coder.names),
        "between_names": BETWEEN_NAMES.pattern,
        "source_tokens": coder.source_tokens,
        "copies": coder.copies,
        "ratio": writer.ratio,
        "more": MORE_TOKENS + search.min_tokens,
        "most": min(search.max_tokens, most_written(writer.recipe.decoder) or search.max_tokens),
        **{name: getattr(search, field) for name, field in by_option_names(BeamSearch).items()},
        "forbidden": [phrase[0] for phrase in search.forbidden],
        "window": CHUNK,
        "rows": most_rows(search),
        "tokens": SEARCH_TOKENS,
        "readers": [reading.settings for reading in origins.readings],
    }


def _side(coder: TokenizerWithSpecials) -> dict[str, Any]:
    tokenizer = coder.tokenizer
    return {
        "before": tokenizer.before,
        "names": dict(zip(coder.names.symbols, coder.encode_names(coder.names.symbols).tolist(), strict=True)),
        "special": dict(zip(SPECIAL, range(tokenizer.vocabulary_size, coder.vocabulary_size), strict=False)),
        "size": coder.vocabulary_size,
        "unknown": tokenizer.unknown_id,
        "words": tokenizer.splitter if isinstance(tokenizer, WordTokenizer) else None,
    }
