"""The lengths of the longest source and target that a model reads whole."""

from __future__ import annotations

from ensue.data.pairs import Pair
from ensue.models.specification import EncoderSpecification, TransformerEncoder
from ensue.tasks.contract.length import MOST_ATTENDED, check_read, most_read
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe

MOST_READ = 250_000
"""The most tokens of a text where nothing attends to it; what is kept of them takes about a gigabyte."""
CUT = "cut it, or train with data.source_tokens, which reads the first tokens of each source"
LEAVE = "cut it, or leave it out; in training data.target_tokens leaves out longer ones"


def check_lengths(recipe: SequenceToSequenceRecipe, pair: Pair, source: int, target: int = 0) -> None:
    """Raises DataError, with file and line, if the model does not read so many tokens of the source or the target."""
    otherwise = MOST_READ if recipe.attention.kind == "none" else MOST_ATTENDED
    for what, count, encoder, table, advice in (
        ("a source of tokens", source, recipe.encoder or recipe.decoder, "encoder", CUT),
        ("a target of tokens", target, recipe.decoder, "decoder", LEAVE),
    ):
        most = most_read(encoder, otherwise)
        check_read(what, count, most, encoder, table=table, advice=advice, path=pair.path, line=pair.line)


def most_written(*decoders: EncoderSpecification) -> int | None:
    """The most tokens that all decoders can write before an end, which is read after them; None: any number."""
    learned = [d for d in decoders if isinstance(d, TransformerEncoder) and d.positions == "learned"]
    return max(1, min(decoder.context for decoder in learned) - 1) if learned else None
