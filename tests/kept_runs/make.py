"""Made the archives in `archives`: trains a small run of each task and writes down what it answers.

`PYTHONPATH=tests python -m kept_runs.make NAME ...` makes one that is not there yet, for a new task or a new layer. An
archive is never made again: it says what an earlier version wrote and answered.
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
"""Of what a recipe has."""
TRAIN = {"steps": 6, "validations": 2, "batch_size": 4, "learning_rate": 0.02, "precision": "float32"}
LAYERS = (
    "elman", "gru", "peephole", "coupled", "layer-norm", "projected", "depth-gated", "grid", "mingru",
    "minlstm", "qrnn",
)  # fmt: skip


class Made(NamedTuple):
    """A recipe, its training data, the commands that its run answers, and settings."""

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


RUNS: dict[str, Made] = {
    "char-lstm": Made("char-lstm", "book.txt", [*SCORED, *WRITES, *exported("small.txt")]),
    "stopped": Made("char-lstm", "book.txt", ["train --out {run} --resume --threads 1", *SCORED]),
    **{name: Made(f"char-{name}", "book.txt", SCORED) for name in LAYERS},
    "clockwork": Made("char-clockwork", "book.txt", SCORED, {"encoder.d_model": 12}),
    "char-transformer": Made("char-transformer", "book.txt", [*SCORED, *WRITES]),
    "word-window": Made("word-window", "book.txt", [*SCORED, *WRITES]),
    "word-lstm-awd": Made("word-lstm-awd", "book.txt", SCORED, {"encoder.num_layers": 2}),
    "bpe-transformer": Made("bpe-transformer", "book.txt", [*SCORED, *WRITES], {"tokenizer.max_size": 300}),
    "tag-lstm": Made("tag-lstm", "train.conllu", TAGS),
    "tag-lstm-crf": Made("tag-lstm-crf", "names.txt", [*NAMED, *exported("plain.txt")]),
    "tag-transformer-crf": Made("tag-transformer-crf", "names.txt", NAMED),
    "tag-vectors": Made(
        "tag-lstm-crf", "names.txt", [*NAMED, "predict {run} plain.txt --json --vectors glove.txt"],
        {"features.vectors": "glove.txt"},
    ),
    "tag-pretrained": Made("tag-pretrained", "names.txt", NAMED, {"encoder.from": "origin"}),
    "tag-contextual": Made("tag-lstm-crf", "names.txt", NAMED, {"features.contextual": ["origin"]}),
    "tag-columns": Made(
        "tag-columns", "treebank.conllu",
        [*OF_DATA, "predict {run} plain.txt --json --n-best 2", *exported("plain.txt")],
        {"data.labels": ["upos", "feats", "lemma"]},
    ),
    "tag-nested": Made(
        "tag-nested", "spans.jsonl", [*OF_DATA, "predict {run} spans.jsonl", *exported("plain.txt")], {"data.nested": 2}
    ),
    "cut-lstm": Made("cut-lstm", "train.conllu", ["predict {run} plain.txt", "evaluate {run} dev.conllu --json"]),
    "classify-lstm": Made("classify-lstm", "reviews.tsv", [*SAYS, *exported("new.txt")]),
    "classify-bag": Made("classify-bag", "topics.jsonl", OF_DATA),
    "classify-pairs": Made("classify-pairs", "pairs.tsv", OF_DATA),
    "classify-pretrained": Made("classify-pretrained", "reviews.tsv", SAYS, {"encoder.from": "origin"}),
    "translate-lstm": Made("translate-lstm", "train.en,train.de", TRANSLATES),
    "translate-feeding": Made("translate-lstm", "train.en,train.de", TRANSLATES, {"attention.feeding": True}),
    "translate-plain": Made("translate-lstm-plain", "train.en,train.de", TRANSLATES),
    "translate-transformer": Made("translate-transformer", "train.en,train.de", TRANSLATES),
    "summarize-pointer": Made("summarize-pointer", "train.en,train.de", TRANSLATES),
    "summarize-lm": Made("summarize-lm", "train.en,train.de", TRANSLATES, {"tokenizer.max_size": 300}),
    "transduce-lstm": Made("transduce-lstm", "inflected.tsv", OF_DATA),
    "vectors-cbow": Made("vectors-cbow", "book.txt", EMBEDS),
    "vectors-skipgram": Made("vectors-skipgram", "book.txt", EMBEDS),
    "vectors-fasttext": Made("vectors-fasttext", "book.txt", EMBEDS),
    "vectors-glove": Made("vectors-glove", "book.txt", EMBEDS),
    "masked": Made("bert-tiny", "book.txt", [*FILLS, *PUBLISHED, "predict again masks.txt --json --n-best 3"]),
    "elmo": Made("elmo-small", "book.txt", IN_CONTEXT),
    "context2vec": Made("context2vec", "book.txt", [*EMBEDS, "evaluate {run} small.txt --json"]),
    "classify-frames": Made("classify-frames", "digits", OF_FEW),
    "tag-frames": Made("tag-frames", "sensors.csv", OF_DATA),
    "predict-frames": Made("predict-frames", "digits", SERIES),
    "vrnn": Made("vrnn", "digits", SERIES),
    "storn": Made("storn", "digits", SERIES),
    "captions": Made("caption-lstm", "captions.csv", [*OF_DATA, "score {run} captions.csv --json"]),
    "glimpses": Made("read-glimpses", "strips.npz", OF_DATA),
    "draw": Made("draw", "images", ["evaluate {run} images --json --draws 3"]),
}  # fmt: skip
RUNS = {name: made for name, made in RUNS.items() if made.recipe in recipe_names()}
"""Those whose extension is there."""


class _Stopping(Reporter):
    """Stops a run after three steps, as Ctrl-C does."""

    def stepped(self, report: StepReport) -> None:
        if report.step == 3:
            os.kill(os.getpid(), signal.SIGINT)


def small(made: Made) -> Recipe:
    recipe = read_recipe(made.recipe, {"data.train": made.data, **made.settings})
    document = recipe.model_dump(exclude_none=True)
    for name, table in SIZES.items():
        kept = {key for key in table if f"{name}.{key}" in made.settings}
        if isinstance(document.get(name), dict):
            document[name] |= {key: size for key, size in table.items() if key in document[name] and key not in kept}
    train = TRAIN | ({"sample_tokens": 8} if "sample_tokens" in document["train"] else {"steps": 40})
    document["train"] = {key: value for key, value in document["train"].items() if key not in BUDGETS} | train
    return validate_recipe(document, where=made.recipe)


def write_training_data() -> None:
    """Write the training data of all runs into the present folder."""
    write_data(Path())
    Path("inflected.tsv").write_text(INFLECTED * 6)
    Path("treebank.conllu").write_text(TREEBANK * 8)
    Path("spans.jsonl").write_text(SPANS * 8)


def make(name: str) -> None:
    """Trains the run of that name in a new folder, asks it, and packs both with the data that the commands name."""
    made, archive = RUNS[name], ARCHIVES / f"{name}.tar.xz"
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
        train_run(small(made), Path(name), threads=1, reporter=_Stopping() if name == "stopped" else Reporter())
        if name != "stopped":
            shutil.rmtree(Path(name) / "checkpoints")
        commands = [command.format(run=name, data=made.data) for command in made.commands]
        kept = {word for command in commands for path in command.split() for word in path.split(",")}
        kept |= {"stopped": {made.data}, "captions": {"images"}}.get(name, set())
        paths = [path for path in sorted(kept | {name}) if Path(path).exists()]
        with tarfile.open(archive, "x:xz", preset=9) as file:
            for path in paths:
                file.add(path, filter=_plain)
            answers = json.dumps([{"command": command, "answer": answer(command)} for command in commands], indent=1)
            entry = tarfile.TarInfo("answers.json")
            entry.size = len(answers.encode())
            file.addfile(entry, io.BytesIO(answers.encode()))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without owner and time; locks stay out."""
    if entry.name.endswith(".lock"):
        return None
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def unpacked(name: str, folder: Path) -> list[dict[str, str]]:
    """The run, its data, and the commands with their answers."""
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as file:
        file.extractall(folder, **TAR_OPTIONS)
    answers: list[dict[str, str]] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return answers


if __name__ == "__main__":
    for argument in sys.argv[1:] or [name for name in RUNS if not (ARCHIVES / f"{name}.tar.xz").exists()]:
        make(argument)
        print(argument, (ARCHIVES / f"{argument}.tar.xz").stat().st_size)
