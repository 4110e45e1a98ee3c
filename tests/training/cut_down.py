"""All recipes with few steps and features, and data for each."""

from pathlib import Path
from typing import Any

import numpy as np

from ensue.recipe import Recipe, read_recipe, recipe_names
from ensue.tasks import task_entry
from training.classifiers import TEXTS
from training.taggers import TAGGED
from training.tiny import run_tiny, words
from training.tiny_pairs import pairs
from training.tiny_texts import columns, conllu, sentences, tsv

TRAINED = [name for name in recipe_names() if name != "vectors-static"]
"""All recipes except one, which is not trained."""
LINEAR = ("classify-linear", "classify-minirocket", "tag-linear")
"""Recipes that are solved in one step."""
IMAGES: dict[str, tuple[int, int, list[str]]] = {
    "read-glimpses": (5, 8, ["a", "b a", "c"] * 4),
    "draw": (5, 4, []),
    "caption-lstm": (5, 4, [f"{'abc'[number % 3]} {'de'[number % 2]}" for number in range(12)]),
}
"""Height, width and labels, if any, of the images that a recipe reads."""

SHORT: dict[str, Any] = {
    "train.steps": 4, "train.validations": 1, "train.precision": "float32", "train.batch_size": 4, "encoder.d_model": 8,
}  # fmt: skip


OF_PAIRS: dict[str, Any] = {
    "train.batch_tokens": 200, "train.samples": 0, "tokens.d_embedding": 8, "decoder.d_model": 8,
    "tokenizer.max_size": 300, "data.division": "rows",
}  # fmt: skip


OF_THE_KIND: dict[str, dict[str, Any]] = {
    "char": {"train.segment_length": 8, "train.sample_tokens": 0, "tokens.d_embedding": 6},
    "word": {"train.segment_length": 8, "train.sample_tokens": 0, "tokens.d_embedding": 8},
    "bert": {"tokenizer.max_size": 300, "encoder.context": 16, "encoder.num_heads": 2, "encoder.num_layers": 2},
    "bpe": {"tokenizer.max_size": 300, "train.sample_tokens": 0, "tokens.d_embedding": 8},
    "tag": {"train.batch_tokens": 60, "features.d_words": 8},
    "cut": {"train.batch_tokens": 60, "features.d_words": 8},
    "classify": {"train.batch_tokens": 60, "data.division": "sources"},
    **dict.fromkeys(("translate", "transduce", "summarize", "answer"), OF_PAIRS),
    "sentence": {"tokenizer.max_size": 300},
    "cbow": {"vectors.subsample": 0.0},
    "skipgram": {"vectors.subsample": 0.0},
    "fasttext": {"vectors.subsample": 0.0, "vectors.ngram_buckets": 50},
    "bag": {"head.ngram_buckets": 500},
    "elmo": {
        "train.segment_length": 8, "encoder.d_cell": 11, "words.filters": [[1, 3], [2, 4]], "words.d_character": 5,
        "head.sampled": 7,
    },
    "context2vec": {"train.segment_length": 8, "words.d_words": 6, "head.d_context": 5, "head.d_hidden": 7},
    "transformer": {"encoder.num_heads": 2, "encoder.context": 8},
    "clockwork": {"encoder.d_model": 12},
    "projected": {"encoder.d_cell": 11},
    "draw": {"decoder.d_model": 8, "canvas.glimpses": 3, "canvas.read": 2, "canvas.write": 2},
    "glimpses": {
        "data.division": "sources",
        "glimpses.size": 3,
        "glimpses.convolutions": [2],
        "glimpses.view_convolutions": [2],
    },
    "caption": {
        "train.samples": 0, "tokens.d_embedding": 8, "decoder.d_model": 8, "grid.channels": [4], "grid.halvings": 1,
    },
    "vrnn": {"latent.size": 3, "latent.d_hidden": 5},
    "storn": {"latent.size": 3},
}  # fmt: skip
"""Settings by parts of recipe names."""


def cut_down(name: str, data: Path, origin: Path | None = None) -> Recipe:
    """Return a recipe with few steps and features."""
    settings = {"data.train": str(data)} | SHORT
    for part in name.split("-"):
        settings |= OF_THE_KIND.get(part, {})
    if part == "transformer" and "decoder.d_model" in settings:
        settings["decoder.num_heads"] = 2
    if name in ("classify-bag", *LINEAR, "classify-pairs", "summarize-lm", "caption-lstm") or name.startswith(
        "vectors"
    ):
        del settings["encoder.d_model"]
    if name in LINEAR:
        return read_recipe(name, {"data.train": str(data), "train.precision": "float32"})
    if name.startswith("vectors"):  # their own optimizer, in one precision
        del settings["train.precision"]
        settings |= {"tokenizer.min_count": 1, "vectors.d_words": 8, "train.batch_size": 200}
    if name == "summarize-lm":
        settings["decoder.num_heads"] = 2
    if name.endswith("-pretrained"):
        del settings["encoder.d_model"]
        settings |= {"encoder.from": str(origin), "encoder.dropout": 0.0, "features.d_words": 0}
    if reads_frames(name):
        settings.pop("features.d_words", None)
    return read_recipe(name, settings)


def reads_frames(name: str) -> bool:
    """Return whether a recipe trains a model of frames."""
    return "frames.json" in task_entry(read_recipe(name).task).files


def cut_down_in(folder: Path, name: str) -> Recipe:
    """Return a small recipe after writing its data and, if it starts from a run, this run to the folder."""
    if name.endswith("-pretrained"):
        (folder / "origin.txt").write_text(words(200))
        run_tiny(cut_down("bert-tiny", folder / "origin.txt"), folder / "origin")
    if name in IMAGES:
        height, width, labels = IMAGES[name]
        frames, path = np.random.default_rng(0).random((12, height, width)), folder / "images.npz"
        np.savez(path, frames=frames, **({"labels": labels} if labels else {}))
    else:
        file, content = text_for(name)
        path = folder / file
        path.write_text(content)
    return cut_down(name, path, folder / "origin")


def text_for(name: str) -> tuple[str, str]:
    """Return the name and content of a data file for the recipe."""
    if name in ("cut-lstm", "tag-columns"):
        return "treebank.conllu", conllu(sentences(60))
    if reads_frames(name):
        return "frames.csv", sensors(label_frames=name.startswith("tag"))
    if name == "sentence-vectors" or "decoder" in read_recipe(name).model_dump():
        return "pairs.tsv", pairs(60)
    if name.startswith("tag-"):
        return "names.txt", columns(TAGGED)
    if name.startswith("classify-"):
        return "topics.tsv", tsv(TEXTS)
    return "text.txt", words(200)


def sensors(*, label_frames: bool) -> str:
    """Return twelve series of two features, with a label for each frame, or for each series."""
    rows = [
        f"{series},{time / 9},{series % 3},{'ab'[(time if label_frames else series) % 2]}"
        for series in range(12)
        for time in range(2 + series % 4)
    ]
    return "\n".join(["series,x,y,label", *rows, ""])
