"""Train a small run of each task and store it with its outputs in `archives`.

`PYTHONPATH=tests python -m kept_runs.make NAME ...` writes a missing archive, for a new task or a new layer. An archive
is never written again: it has the files and outputs of an earlier version.
"""

import io
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from ensue.recipe import BUDGETS, Recipe, read_recipe, recipe_names, validate_recipe
from ensue.runs.reporter import Reporter, StepReport
from ensue.training.run import train_run
from kept_runs.answers import answer
from page_data import write_data
from training.tiny import plain_profile

ARCHIVES = Path(__file__).parent / "archives"
TAR_OPTIONS: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11.0 to 3.11.3 have no filters."""
SIZES: dict[str, dict[str, Any]] = {
    "encoder": {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_feedforward": 8, "d_cell": 8, "context": 64},
    "decoder": {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_feedforward": 8, "context": 64},
    "tokens": {"d_embedding": 8},
    "tokenizer": {"max_size": 90, "min_count": 1},
    "features": {"d_words": 6, "min_count": 1, "d_affix": 2, "d_shape": 2, "d_characters": 4, "d_character": 3},
    "head": {"ngram_buckets": 32, "d_context": 6, "d_hidden": 6, "sampled": 10},
    "vectors": {"d_words": 6, "ngram_buckets": 16},
    "words": {"d_words": 6, "filters": [[1, 3], [2, 3]]},
    "latent": {"size": 2, "d_hidden": 4},
    "canvas": {"glimpses": 2, "d_latent": 2, "read": 2, "write": 2},
    "grid": {"channels": [3], "halvings": 1},
    "glimpses": {"size": 4, "scales": 1, "convolutions": [2], "view": 2, "view_convolutions": [2]},
    "search": {"max_tokens": 8},
}
"""Small settings for the tables of a recipe."""
TRAIN = {"steps": 6, "validations": 2, "batch_size": 4, "learning_rate": 0.02, "precision": "float32"}
LAYERS = (
    "elman", "gru", "peephole", "coupled", "layer-norm", "projected", "depth-gated", "grid", "mingru",
    "minlstm", "qrnn",
)  # fmt: skip


class StoredRun(NamedTuple):
    """A recipe, its training data, the commands for its run, and settings."""

    recipe: str
    data: str
    commands: list[str]
    settings: Mapping[str, Any] = MappingProxyType({})


SCORED = ["score {run} small.txt --json", "evaluate {run} small.txt --json"]
WRITES = [
    "generate {run} --prompt The --max-tokens 12 --seed 1",
    "generate {run} --prompt The --max-tokens 6 --beams 3 --n-best 2",
]
TAGS = ["predict {run} plain.txt --json", "evaluate {run} dev.conllu --json"]
NAMED = ["predict {run} plain.txt --json", "predict {run} names.txt", "evaluate {run} names.txt --json"]
SAYS = ["predict {run} new.tsv --json", "evaluate {run} reviews.tsv --json"]
TRANSLATES = [
    "predict {run} dev.en --json --n-best 2",
    "score {run} dev.en,dev.de --json",
    "evaluate {run} dev.en,dev.de --json",
]
EMBEDS = ["embed {run} small.txt --json", "neighbors {run} sea --count 4 --json"]
IN_CONTEXT = ["embed {run} small.txt --json", "score {run} small.txt --json", "evaluate {run} small.txt --json"]
FILLS = [
    "predict {run} masks.txt --json --n-best 3",
    "score {run} small.txt --json",
    "embed {run} small.txt --json",
    "evaluate {run} small.txt --json",
]
OF_DATA = ["predict {run} {data} --json", "evaluate {run} {data} --json"]
OF_FEW = ["predict {run} few --json", "evaluate {run} few --json"]
SERIES = ["score {run} few --json", "evaluate {run} few --json"]
PUBLISHED = ("export {run} --format huggingface --out published", "import published --out again")
SPANS = (
    '{"text": "Bank of Lima grew", "spans": [[0, 12, "ORG"], [8, 12, "LOC"]]}\n'
    '{"text": "News of Bank of Lima came", "spans": [[0, 20, "NP"], [8, 20, "NP"], [8, 20, "ORG"], [16, 20, "LOC"]]}\n'
    '{"text": "Anna Novak sees Lima", "spans": [[0, 10, "PER"], [16, 20, "LOC"]]}\n'
)
TREEBANK = (
    "1\tDogs\tdog\tNOUN\t_\tNumber=Plur\t_\t_\t_\t_\n2\tbarked\tbark\tVERB\t_\tTense=Past|VerbForm=Fin\t_\t_\t_\t_\n\n"
    "1\tA\ta\tDET\t_\t_\t_\t_\t_\t_\n2\tcat\tcat\tNOUN\t_\tNumber=Sing\t_\t_\t_\t_\n3\tsleeps\tsleep\tVERB\t_\t_\t_\t_\t_\t_\n\n"
)
INFLECTED = "sea\tseas\tN;PL\nboat\tboats\tN;PL\nsea\tsea\tN;SG\nboat\tboat\tN;SG\n"


def exported(texts: str) -> list[str]:
    return ["export {run} --format onnx --out graph", f"graph/predict.py {texts}"]


RUNS: dict[str, StoredRun] = {
    "char-lstm": StoredRun("char-lstm", "book.txt", [*SCORED, *WRITES, *exported("small.txt")]),
    "stopped": StoredRun("char-lstm", "book.txt", ["train --out {run} --resume --threads 1", *SCORED]),
    **{name: StoredRun(f"char-{name}", "book.txt", SCORED) for name in LAYERS},
    "clockwork": StoredRun("char-clockwork", "book.txt", SCORED, {"encoder.d_model": 12}),
    "char-transformer": StoredRun("char-transformer", "book.txt", [*SCORED, *WRITES]),
    "word-window": StoredRun("word-window", "book.txt", [*SCORED, *WRITES]),
    "word-lstm-awd": StoredRun("word-lstm-awd", "book.txt", SCORED, {"encoder.num_layers": 2}),
    "bpe-transformer": StoredRun("bpe-transformer", "book.txt", [*SCORED, *WRITES], {"tokenizer.max_size": 300}),
    "tag-lstm": StoredRun("tag-lstm", "train.conllu", TAGS),
    "tag-lstm-crf": StoredRun("tag-lstm-crf", "names.txt", [*NAMED, *exported("plain.txt")]),
    "tag-transformer-crf": StoredRun("tag-transformer-crf", "names.txt", NAMED),
    "tag-vectors": StoredRun(
        "tag-lstm-crf", "names.txt", [*NAMED, "predict {run} plain.txt --json --vectors glove.txt"],
        {"features.vectors": "glove.txt"},
    ),
    "tag-pretrained": StoredRun("tag-pretrained", "names.txt", NAMED, {"encoder.from": "origin"}),
    "tag-contextual": StoredRun("tag-lstm-crf", "names.txt", NAMED, {"features.contextual": ["origin"]}),
    "tag-columns": StoredRun(
        "tag-columns", "treebank.conllu",
        [*OF_DATA, "predict {run} plain.txt --json --n-best 2", *exported("plain.txt")],
        {"data.labels": ["upos", "feats", "lemma"]},
    ),
    "tag-nested": StoredRun(
        "tag-nested", "spans.jsonl", [*OF_DATA, "predict {run} spans.jsonl", *exported("plain.txt")], {"data.nested": 2}
    ),
    "cut-lstm": StoredRun("cut-lstm", "train.conllu", ["predict {run} plain.txt", "evaluate {run} dev.conllu --json"]),
    "classify-lstm": StoredRun("classify-lstm", "reviews.tsv", [*SAYS, *exported("new.txt")]),
    "classify-bag": StoredRun("classify-bag", "topics.jsonl", OF_DATA),
    "classify-pairs": StoredRun("classify-pairs", "pairs.tsv", OF_DATA),
    "classify-pretrained": StoredRun("classify-pretrained", "reviews.tsv", SAYS, {"encoder.from": "origin"}),
    "translate-lstm": StoredRun("translate-lstm", "train.en,train.de", TRANSLATES),
    "translate-feeding": StoredRun("translate-lstm", "train.en,train.de", TRANSLATES, {"attention.feeding": True}),
    "translate-plain": StoredRun("translate-lstm-plain", "train.en,train.de", TRANSLATES),
    "translate-transformer": StoredRun("translate-transformer", "train.en,train.de", TRANSLATES),
    "summarize-pointer": StoredRun("summarize-pointer", "train.en,train.de", TRANSLATES),
    "summarize-lm": StoredRun("summarize-lm", "train.en,train.de", TRANSLATES, {"tokenizer.max_size": 300}),
    "transduce-lstm": StoredRun("transduce-lstm", "inflected.tsv", OF_DATA),
    "vectors-cbow": StoredRun("vectors-cbow", "book.txt", EMBEDS),
    "vectors-skipgram": StoredRun("vectors-skipgram", "book.txt", EMBEDS),
    "vectors-fasttext": StoredRun("vectors-fasttext", "book.txt", EMBEDS),
    "vectors-glove": StoredRun("vectors-glove", "book.txt", EMBEDS),
    "masked": StoredRun("bert-tiny", "book.txt", [*FILLS, *PUBLISHED, "predict again masks.txt --json --n-best 3"]),
    "elmo": StoredRun("elmo-small", "book.txt", IN_CONTEXT),
    "context2vec": StoredRun("context2vec", "book.txt", [*EMBEDS, "evaluate {run} small.txt --json"]),
    "classify-frames": StoredRun("classify-frames", "digits", OF_FEW),
    "tag-frames": StoredRun("tag-frames", "sensors.csv", OF_DATA),
    "predict-frames": StoredRun("predict-frames", "digits", SERIES),
    "vrnn": StoredRun("vrnn", "digits", SERIES),
    "storn": StoredRun("storn", "digits", SERIES),
    "captions": StoredRun("caption-lstm", "captions.csv", [*OF_DATA, "score {run} captions.csv --json"]),
    "glimpses": StoredRun("read-glimpses", "strips.npz", OF_DATA),
    "draw": StoredRun("draw", "images", ["evaluate {run} images --json --draws 3"]),
}  # fmt: skip
RUNS = {name: stored_run for name, stored_run in RUNS.items() if stored_run.recipe in recipe_names()}
"""The runs whose extension is installed."""


class _Stopping(Reporter):
    """A reporter that stops a run after three steps, like Ctrl-C."""

    def stepped(self, report: StepReport) -> None:
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGINT)


def small(stored_run: StoredRun) -> Recipe:
    recipe = read_recipe(stored_run.recipe, {"data.train": stored_run.data, **stored_run.settings})
    document = recipe.model_dump(exclude_none=True)
    for name, table in SIZES.items():
        taken = {key for key in table if f"{name}.{key}" in stored_run.settings}
        if isinstance(document.get(name), dict):
            document[name] |= {key: size for key, size in table.items() if key in document[name] and key not in taken}
    train = TRAIN | ({"sample_tokens": 8} if "sample_tokens" in document["train"] else {"steps": 40})
    document["train"] = {key: value for key, value in document["train"].items() if key not in BUDGETS} | train
    return validate_recipe(document, where=stored_run.recipe)


def write_training_data() -> None:
    """Write the training data of all runs into the current folder."""
    write_data(Path())
    Path("inflected.tsv").write_text(INFLECTED * 6)
    Path("treebank.conllu").write_text(TREEBANK * 8)
    Path("spans.jsonl").write_text(SPANS * 8)


def make(name: str) -> None:
    """Train a run in a new folder, and store it with its data and the outputs of its commands."""
    stored_run, archive = RUNS[name], ARCHIVES / f"{name}.tar.xz"
    assert not archive.exists(), f"{archive} is kept as it is"
    with tempfile.TemporaryDirectory() as folder, chdir(folder), pytest.MonkeyPatch.context() as patch:
        profile = plain_profile()
        Path("cache", "machines").mkdir(parents=True)
        Path("cache", "machines", profile.machine.path.name).write_text(profile.model_dump_json())
        patch.setenv("ENSUE_CACHE", str(Path("cache").resolve()))
        write_training_data()
        Path("small.txt").write_text("The sea was calm again.\n")
        Path("plain.txt").write_text("Anna Novak sees Lima.\nThe new boat leaves Oslo Bay.\n")
        Path("new.txt").write_text("A calm film.\nA dull, endless book.\n")
        for label in ("zero", "one"):
            Path("few", label).mkdir(parents=True)
            shutil.copy(f"digits/{label}/0.wav", f"few/{label}")
        train_run(small(RUNS["masked"]), Path("origin"), threads=1)
        train_run(small(stored_run), Path(name), threads=1, reporter=_Stopping() if name == "stopped" else Reporter())
        if name != "stopped":
            shutil.rmtree(Path(name) / "checkpoints")
        commands = [command.format(run=name, data=stored_run.data) for command in stored_run.commands]
        stored_paths = {word for command in commands for path in command.split() for word in path.split(",")}
        stored_paths |= {"stopped": {stored_run.data}, "captions": {"images"}}.get(name, set())
        paths = [path for path in sorted(stored_paths | {name}) if Path(path).exists()]
        with tarfile.open(archive, "x:xz", preset=9) as file:
            for path in paths:
                file.add(path, filter=_plain)
            answers = json.dumps([{"command": command, "answer": answer(command)} for command in commands], indent=1)
            entry = tarfile.TarInfo("answers.json")
            entry.size = len(answers.encode())
            file.addfile(entry, io.BytesIO(answers.encode()))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return the entry without owner and time, or None for a lock."""
    if entry.name.endswith(".lock"):
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def unpacked(name: str, folder: Path) -> list[dict[str, str]]:
    """Unpack a run and its data, and return the commands with their outputs."""
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as file:
        file.extractall(folder, **TAR_OPTIONS)
    answers: list[dict[str, str]] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return answers


if __name__ == "__main__":
    for argument in sys.argv[1:] or [name for name in RUNS if not (ARCHIVES / f"{name}.tar.xz").exists()]:
        make(argument)
        print(argument, (ARCHIVES / f"{argument}.tar.xz").stat().st_size)
