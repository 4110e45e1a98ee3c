"""Examples of a masked language model from a text; and a sample of what it finds in their place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.examples import Frame, FramedBlocks, FramedExamples, FramedPairs
from ensue.data.corpus.masks import Masking
from ensue.data.corpus.token_file import TokenFile
from ensue.data.permutation import mix, random_numbers
from ensue.errors import DataError
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.tasks.masked_language_modeling.reading import mask_probabilities
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe
from ensue.text.document_stream import DocumentStream
from ensue.text.masked_tokens import MaskedTokenizer
from ensue.text.tokenizers import Tokenizer

FIXED_SEED = 15
"""The seed of the masks by which models are scored: the same for every model and every run."""


def stream_of(recipe: MaskedLanguageModelingRecipe, tokenizer: Tokenizer) -> DocumentStream:
    """How the texts of a recipe become ids."""
    data = recipe.data
    return DocumentStream(MaskedTokenizer(tokenizer), documents=data.documents, sentences=data.next_sentence)


def frame_of(coder: MaskedTokenizer) -> Frame:
    """The ids around the texts of an example."""
    return Frame(coder.begin_id, coder.separator_id, coder.padding_id)


def masking_of(recipe: MaskedLanguageModelingRecipe, coder: MaskedTokenizer) -> Masking:
    """The masking of this recipe."""
    table = recipe.masking
    can_hide = np.zeros(coder.vocabulary_size, bool)
    can_hide[coder.text_ids] = True
    begins = coder.begins_word if table.whole_words else None
    return Masking(coder.mask_id, coder.text_ids, can_hide, table.share, table.masked, table.random, begins)


def training_examples(
    recipe: MaskedLanguageModelingRecipe, tokens: TokenFile, coder: MaskedTokenizer
) -> FramedExamples:
    """The examples of the training text. Raises DataError for less than one."""
    length, path = recipe.block_tokens, recipe.data.train
    if recipe.data.next_sentence:
        return _pairs(recipe, tokens, coder, path, seed=recipe.train.seed)
    if len(tokens) < length:
        raise DataError(
            f"{len(tokens):,} tokens; a block has {length:,} (encoder.context {recipe.encoder.context:,} without [CLS] "
            "and [SEP]): expected more text or a smaller encoder.context",
            path,
        )
    return FramedBlocks(tokens, length=length, frame=frame_of(coder), seed=recipe.train.seed)


def scored_examples(
    recipe: MaskedLanguageModelingRecipe, tokens: TokenFile, coder: MaskedTokenizer, path: str
) -> FramedExamples:
    """The examples of a text that is scored: all of it, with masks that are always the same."""
    if recipe.data.next_sentence:
        return _pairs(recipe, tokens, coder, path, seed=FIXED_SEED)
    if not len(tokens):
        raise DataError("no token to hide", path)
    return FramedBlocks(tokens, length=recipe.block_tokens, frame=frame_of(coder), seed=FIXED_SEED, whole=True)


def _pairs(
    recipe: MaskedLanguageModelingRecipe, tokens: TokenFile, coder: MaskedTokenizer, path: str, *, seed: int
) -> FramedPairs:
    try:
        return FramedPairs(tokens, length=recipe.block_tokens, frame=frame_of(coder), seed=seed)
    except ValueError as error:
        raise DataError(f"{error} (data.next_sentence)", path) from None


TOKENS = 32
HIDDEN = 4


def filled_sample(model: MaskedLanguageModel, coder: MaskedTokenizer, tokens: TokenFile, *, seed: int) -> str:
    """Some tokens of a text from a random place on: `[found]`, or `[found, not right]` where something was hidden."""
    size = min(TOKENS, len(tokens), model.context - 2)
    start = mix(seed, 0) % (len(tokens) - size + 1)
    ids = tokens.read(start, start + size)
    ids = ids[~np.isin(ids, coder.special_ids)]
    hidden = np.sort(np.argsort(random_numbers(mix(seed, 1), np.arange(len(ids))))[: min(HIDDEN, len(ids))])
    if not len(hidden):
        return ""
    inputs = ids.copy()
    inputs[hidden] = coder.mask_id
    (probabilities,) = mask_probabilities(model, coder, [inputs])
    found = dict(zip(hidden.tolist(), probabilities.argmax(1).tolist(), strict=True))
    return _shown(coder, ids, found)


def _shown(coder: MaskedTokenizer, ids: NDArray[np.int64], found: dict[int, int]) -> str:
    decoder, pieces = coder.decoder(), []
    for place, id in enumerate(ids.tolist()):
        piece = decoder.feed(id)
        if place in found:
            guess, right = coder.symbol(found[place]).strip(), coder.symbol(id).strip()
            blank = piece[: len(piece) - len(piece.lstrip())]
            piece = f"{blank}[{guess}]" if found[place] == id else f"{blank}[{guess}, not {right}]"
        pieces.append(piece)
    return " ".join("".join(pieces).split())
