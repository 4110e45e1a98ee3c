"""Material of cases: small data of every kind, and a small run of every kind of model."""

import importlib
import io
import pkgutil
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
import typer

import ensue.cli
from ensue.extensions.importing.importing import import_run
from ensue.recipe import Recipe, validate_recipe
from ensue.tasks.labeling.recipe import LabelingRecipe
from extensions.importing.published import Bert, wordpiece, write_bert
from fuzz import frame_runs
from fuzz.samples import glove
from training.tiny import MODELS, plain_profile, run_tiny, tiny_recipe, words
from training.tiny_masked import masked_recipe
from training.tiny_pairs import SMALL, pair_recipe, pairs
from training.tiny_texts import classifying, labelers, tagging

LANGUAGE_MODELS, TAGGERS, CLASSIFIERS = "language-modeling", "labeling", "classification"
SEQUENCES, MASKED = "sequence-to-sequence", "masked-language-modeling"

TINY = [
    part
    for setting in (
        "train.steps=2", "train.batch_size=4", "train.validations=1", "train.precision=float32",
    )
    for part in ("--set", setting)
] + ["--threads", "1", "--device", "cpu"]  # fmt: skip
"""Settings that keep a training short."""


class Run(NamedTuple):
    """A trained run, its task, and data for its commands."""

    path: Path
    task: str
    data: Path


class Material:
    """The runs in a folder and samples of data, shared by all cases."""

    def __init__(self, folder: Path, runs: list[Run]) -> None:
        self.folder, self.runs = folder, runs
        self.answers: dict[tuple[str, ...], bytes] = {}
        """The output of each undamaged run, by its name and the command."""

    def run(self, choose: Random, *tasks: str) -> Run:
        return choose.choice([run for run in self.runs if not tasks or run.task in tasks])


def trained(folder: Path) -> Material:
    """Train all runs, in about ten seconds."""
    torch.set_num_threads(1)
    labelers(folder)
    runs_and_data = [
        Run(folder / "names", TAGGERS, folder / "names.txt"),
        Run(folder / "upos", TAGGERS, folder / "upos.conllu"),
        Run(folder / "topics", CLASSIFIERS, folder / "topics.tsv"),
        Run(folder / "several", CLASSIFIERS, folder / "several.txt"),
        Run(folder / "pairs", CLASSIFIERS, folder / "pairs.tsv"),
    ]
    text = folder / "text.txt"
    text.write_text(words(800))
    (folder / "vectors.txt").write_text(glove(Random(0)))
    recipes: list[tuple[str, Path, Recipe]] = [
        ("characters", text, tiny_recipe(text, steps=4)),
        ("attention", text, tiny_recipe(text, model=MODELS["transformer"] | {"context": 64}, steps=4)),
        ("words", text, _tokenized(text, {"kind": "words"})), ("bytes", text, _tokenized(text, {"kind": "bytes"})),
        ("bpe", text, _tokenized(text, {"kind": "bpe", "max_size": 280})),
        ("wide", folder / "names.txt", _wide(folder)), ("bag", folder / "topics.tsv", _bag(folder)),
        ("masked", text, masked_recipe(text, train={"steps": 4}, encoder={"context": 64})), *_encoder_decoders(folder),
        ("tuned", folder / "names.txt", _tuned(folder)), ("beside", folder / "topics.tsv", _beside(folder)),
        *frame_runs.recipes(folder),
    ]  # fmt: skip
    for name, data, recipe in recipes:
        run_tiny(recipe, folder / name)
        runs_and_data.append(Run(folder / name, recipe.task, data))
    runs_and_data.append(Run(_imported(folder), MASKED, text))
    _warm(runs_and_data)
    return Material(folder, runs_and_data)


def _warm(runs: list[Run]) -> None:
    """Import, compile and compute everything before the first fork that every case would repeat."""
    for module in pkgutil.walk_packages(ensue.__path__, "ensue."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    typer.main.get_command = cache(typer.main.get_command)
    asked = [["recipes"], ["recipes", "char-lstm"]]
    for run in runs:
        asked += [["evaluate", str(run.path), str(run.data)], ["data", str(run.data)]]
        if run.task in frame_runs.TABLES:
            continue
        asked += (
            [["generate", str(run.path), "--max-tokens", "5"], ["score", str(run.path), str(run.data)]]
            if run.task == LANGUAGE_MODELS
            else [["embed", str(run.path), str(run.data)], ["score", str(run.path), str(run.data)]]
            if run.task == MASKED
            else [["predict", str(run.path), str(run.data)]]
        )
        asked += [["score", str(run.path), str(run.data)]] if run.task == SEQUENCES else []
    for command in asked:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            typer.main.get_command(ensue.cli.command_line())(command, standalone_mode=False)
    torch.set_num_threads(1)


def make_cache(path: Path) -> Path:
    """Create a cache with a profile of the machine, whose measurement takes long."""
    profile = plain_profile()
    (path / "machines").mkdir(parents=True)
    (path / "machines" / profile.machine.path.name).write_text(profile.model_dump_json())
    return path


def _tokenized(text: Path, tokenizer: dict[str, object]) -> Recipe:
    recipe = tiny_recipe(text, model={"kind": "lstm", "d_embedding": 4, "d_model": 4}, steps=4)
    return recipe.model_copy(update={"tokenizer": recipe.tokenizer.model_copy(update=tokenizer)})


def _wide(folder: Path) -> LabelingRecipe:
    features = {
        "vectors": str(folder / "vectors.txt"), "affixes": 2, "d_affix": 3, "d_shape": 3, "characters": "cnn",
        "d_character": 4, "d_characters": 4, "columns": ["2"], "d_column": 3,
    }  # fmt: skip
    return tagging(folder / "names.txt", encoder="none", features=features, head={"kind": "viterbi"}, steps=4)


def _encoder_decoders(folder: Path) -> list[tuple[str, Path, Recipe]]:
    """Return recipes with bounded positions, copying, or a single vector of the source, and several tokenizers."""
    path = folder / "translated.tsv"
    path.write_text(pairs(40))
    learned = {side: SMALL[side] | {"positions": "learned", "context": 64} for side in ("encoder", "decoder")}
    recurrent = {side: {"kind": "lstm", "d_model": 8} for side in ("encoder", "decoder")}
    copying = {
        "attention": {"kind": "bilinear"},
        "head": {"copying": True},
        "tokens": {"d_embedding": 8, "tied": "all"},
    }
    plain = {"attention": {"kind": "none"}, "tokenizer": {"kind": "characters"}, "tokens": {"d_embedding": 8}}
    tables = {"translated": learned, "pointer": recurrent | copying, "plain": recurrent | plain}
    train = {"steps": 4, "validations": 1}
    return [(name, path, pair_recipe(path, train=train, **tables)) for name, tables in tables.items()]


def _bag(folder: Path) -> Recipe:
    head = {"pooling": [], "ngrams": 2, "ngram_buckets": 64}
    return classifying(folder / "topics.tsv", encoder="none", head=head, features={"d_words": 0}, steps=4)


def _tuned(folder: Path) -> Recipe:
    """Return a recipe of a tagger that tunes the layers of the masked model."""
    recipe = tagging(folder / "names.txt", features={"d_words": 0}, steps=4)
    return validate_recipe(recipe.model_dump() | {"encoder": {"from": str(folder / "masked")}}, where="tuned")


def _beside(folder: Path) -> Recipe:
    """Return a recipe with the layers of the masked model as features."""
    return classifying(folder / "topics.tsv", features={"contextual": [str(folder / "masked")]}, steps=4)


def publish(folder: Path) -> None:
    """Write a directory of transformers."""
    tokenizer = wordpiece(corpus=[words(800)])
    write_bert(folder, Bert.random(tokenizer.get_vocab_size(), context=64), tokenizer)


def _imported(folder: Path) -> Path:
    publish(folder / "published")
    import_run(folder / "published", folder / "imported")
    return folder / "imported"
