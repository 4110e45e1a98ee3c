"""Small untrained encoder–decoders of all kinds that are exported to C."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ensue.data.examples import Pair, PairLayout
from ensue.data.records.record import Column
from ensue.models.build_text import build_encoder_decoder
from ensue.recipe.tables import TokenizerRecipe
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from training.tiny_pairs import pair_recipe

LEMMAS = ["sing", "w\u00e4hlen", "\U0001f600 a", "go", "x;y", "b\u00efg-top"]
CHARACTERS = TokenizerRecipe(kind="characters")
WORDS = TokenizerRecipe(kind="words", splitter="whitespace")
CELLS: dict[str, Any] = {"kind": "lstm", "d_model": 8}
KINDS: dict[str, dict[str, Any]] = {
    "bilinear": {"names": [2], "decoder": {**CELLS, "d_model": 12, "num_layers": 2}},
    "additive": {"attention": {"kind": "additive", "feeding": True}, "encoder": {**CELLS, "num_layers": 2}},
    "heads": {
        "attention": {"kind": "scaled-dot", "num_heads": 2, "feeding": True, "dropout": 0.1}, "target": WORDS,
        "encoder": {"kind": "gru", "d_model": 7}, "tied": "target", "names": [1, 3],
    },
    "dot": {
        "attention": {"kind": "dot"}, "encoder": {**CELLS, "dropout": 0.1}, "tokens": 4,
        "directions": {"bidirectional": False}, "tied": "all", "decoder": {"kind": "gru", "d_model": 8},
    },
    "plain": {"attention": {"kind": "none"}, "names": [2]},
    "subwords": {"source": TokenizerRecipe(kind="bpe", max_size=290), "names": [2], "tied": "all"},
    "bytes": {
        "source": TokenizerRecipe(kind="bytes"), "target": TokenizerRecipe(kind="bpe", max_size=280), "names": [3],
    },
    "words": {
        "source": TokenizerRecipe(kind="words", splitter="simple"), "names": [3],
        "target": TokenizerRecipe(kind="words", splitter="simple"), "tokens": 5,
    },
}  # fmt: skip


def transducer(
    *, names: list[int] | None = None, attention: dict[str, Any] | None = None, encoder: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None, source: TokenizerRecipe = CHARACTERS, target: TokenizerRecipe | None = None,
    tied: str = "none", tokens: int = 0, search: dict[str, Any] | None = None, directions: dict[str, Any] | None = None,
    columns: Sequence[str] = ("V;PST", "V|3 SG"),
) -> SequencePipeline:  # fmt: skip
    """Return an untrained model with large random weights. The last of `names` is the number of sources."""
    places = max(names or [1])
    recipe = pair_recipe(
        Path("x"), encoder=encoder or CELLS, decoder=decoder or CELLS, tokens={"d_embedding": 8, "tied": tied},
        attention=attention or {"kind": "bilinear"}, tokenizer=source.model_dump(), data={"names": names or []},
        directions=directions or {}, search={"max_tokens": 14, "length_penalty": 0.7, **(search or {})},
    )  # fmt: skip
    written = [lemma + ' "go", (x)' for lemma in LEMMAS]
    pairs = [
        Pair(tuple([lemma, columns[k % len(columns)], "N"][:places]), (written[k],)) for k, lemma in enumerate(LEMMAS)
    ]
    coder = PairCoder.train(pairs, source, target, names=names or [], source_tokens=tokens)
    torch.manual_seed(5)
    model = build_encoder_decoder(
        recipe.tokens, recipe.encoder, recipe.decoder, recipe.attention, recipe.head, directions=recipe.directions,
        source_size=coder.source.vocabulary_size, target_size=coder.target.vocabulary_size, is_joint=coder.is_joint,
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    layout = PairLayout("plain", tuple(Column(place) for place in range(1, places + 1)) if places > 1 else ())
    return SequencePipeline(model, coder, recipe=recipe, layout=layout, ratio=0.8)
