"""Five models pretrained on the same text for equal time, and the scores of taggers with their features.

    python benchmarks/equal_time.py DATA OUT [--seconds 1200] [--models elmo ...] [--uses conll2003 ...] [--pairs 200]
        [--dev] [--table]

The text is the English running text in DATA: the unlabeled reviews of IMDb, WikiText-2, Gutenberg and Brown, about 16
million words. One line in a hundred is for validation. Each model is trained on the text for `--seconds` in one thread.
`elmo` and `taglm` differ only in where their features enter the tagger, so they share one bidirectional language model.
Then taggers are trained with the frozen layers of each model as features, as in the publication of the model: names of
CoNLL-2003 and chunks of CoNLL-2000 (F1), and parts of speech of UD English-EWT (accuracy). `none` has no such features.
`--pairs` minimal pairs of each paradigm of BLiMP (0: none) are scored by the models that give probabilities of words.

The weights of a tagger are chosen on development data (for CoNLL-2000 a tenth of the training data), and its test data
are scored once; with `--dev` the development data of CoNLL-2003 and EWT are scored instead. Everything is kept in OUT:
finished runs are not repeated, interrupted runs are resumed, and the table shows all results with these `--seconds`,
with or without `--dev`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from data_files import data_path, read_lines
from fewer_labels import join_lines
from json_lines import append_json_line, read_json_lines
from machine import describe_machine
from pretrained import CONLL2003, EWT
from trials import Trial

import ensue
from ensue.data.decoding import load_bytes
from ensue.errors import EnsueError


@dataclass(frozen=True)
class Pretraining:
    """The run of a pretrained model, its recipe and settings, and the settings of a tagger with its features."""

    run: str
    recipe: str
    settings: tuple[str, ...] = ()
    feature_settings: tuple[str, ...] = ()


SUBWORDS = ("tokenizer.max_size=8192", "encoder.num_layers=4", "encoder.d_model=256", "encoder.num_heads=4")
MODELS = {
    "elmo": Pretraining("both-ways", "elmo-small"),
    "taglm": Pretraining("both-ways", "elmo-small", (), ("contextual_at=first-layer", "contextual_layers=[-1]")),
    "context2vec": Pretraining("context2vec", "context2vec", ("tokenizer.max_size=30000",)),
    "masked": Pretraining("masked", "bert-mini", ("tokenizer.lowercase=false",)),
    "causal": Pretraining(
        "causal", "bpe-transformer", (*SUBWORDS, "tokens.d_embedding=256", "train.learning_rate=0.001")
    ),
}
USES = {
    "conll2003": (
        "tag-lstm-crf",
        CONLL2003,
        ("features.columns=[2,3]", "train.epochs=12", "train.validations=12"),
        "f1",
    ),
    "conll2000": ("tag-lstm-crf", ("conll2000/train.txt", "", "conll2000/test.txt"), ("features.columns=[2]",), "f1"),
    "ewt": ("tag-lstm", EWT, (), "accuracy"),
}
"""The recipe, the paths of the data, the settings and the score."""


def running_text(data: Path) -> Iterator[str]:
    """Yield the lines of all texts."""
    yield from map(join_lines, read_lines(data, "imdb/unsup.txt"))
    yield from (line.strip() for line in read_lines(data, "wikitext-2/train.txt") if line.strip())
    for book in sorted((data / "gutenberg").glob("*.txt*")):
        yield from paragraphs(decode_book(load_bytes(book)).splitlines())
    for line in read_lines(data, "brown/brown.tagged.tsv"):
        yield " ".join(token.rpartition("/")[0] for token in line.split("\t")[2].split())


def decode_book(content: bytes) -> str:
    """Decode a book as UTF-8, or else as Latin-1."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Yield each paragraph of a book as one line."""
    for has_text, group in groupby(lines, key=lambda line: bool(line.strip())):
        if has_text:
            yield " ".join(line.strip() for line in group)


def write_texts(data: Path, out: Path) -> tuple[Path, Path]:
    """Write the training text and the validation text. Return their paths."""
    paths = out / "text.txt", out / "valid.txt"
    if not paths[1].exists():
        parts: tuple[list[str], list[str]] = ([], [])
        for number, line in enumerate(running_text(data)):
            parts[number % 100 == 0].append(line + "\n")
        for path, part in zip(paths, parts, strict=True):
            path.write_text("".join(part), encoding="utf-8")
    return paths


def pretrain(model: Pretraining, data: Path, out: Path, seconds: float) -> Path:
    """Pretrain a model unless its run is finished. Return the run."""
    run = out / model.run
    if not (run / "README.md").exists():
        train, valid = write_texts(data, out)
        settings = (
            *model.settings,
            f"train.seconds={seconds:g}",
            "train.validations=4",
            "data.valid_characters=300000",
        )
        ensue.train(model.recipe, train=train, valid=valid, out=run, threads=1, settings=settings, resume=run.exists())
    return run


def score_minimal_pairs(run: Path, data: Path, out: Path, count: int) -> float | None:
    """Return the accuracy on BLiMP: the share of minimal pairs whose better sentence is more probable.

    None for a model without probabilities of sentences.
    """
    file = out / f"blimp-{count}.jsonl"
    if not file.exists():
        with tarfile.open(data / "blimp" / "blimp.tar.xz") as archive:
            members = [archive.extractfile(member) for member in archive if member.name.endswith(".jsonl")]
            file.write_bytes(b"".join(line for member in members if member for line in islice(member, count)))
    try:
        return float(ensue.load(run).minimal_pairs(file).total.accuracy)
    except EnsueError as error:
        print(f"{run.name}: {error}", file=sys.stderr)
        return None


def train_tagger(name: str, use: str, run: Path | None, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train a tagger with the layers of a run as features, or without them. Return its score and seconds."""
    recipe, paths, settings, score = USES[use]
    if run is not None:
        features = (f"contextual=[{json.dumps(str(run.resolve()))}]", *MODELS[name].feature_settings)
        settings = (*settings, *(f"features.{setting}" for setting in features))
    train, valid, test = (data_path(arguments.data, path) if path else "" for path in paths)
    scored = valid if arguments.dev and valid else test
    scores = Trial(recipe, train, valid, scored, settings).scores(arguments.out / f"{use}-{name}")
    return {"score": 100 * scores[score], "seconds": scores["seconds"]}


def results(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the results in the file, and measure the other uses of models; each new result is appended to the file."""
    file, conditions = arguments.out / "results.jsonl", {"dev": arguments.dev, "budget": arguments.seconds}
    saved = [result for result in read_json_lines(file) if conditions.items() <= result.items()]
    yield from saved
    for use in [*arguments.uses, *(["blimp"] if arguments.pairs else [])]:
        for name in arguments.models:
            key = {"model": name, "use": use, **conditions}
            if (
                arguments.table
                or any(key.items() <= result.items() for result in saved)
                or (name, use) == ("none", "blimp")
            ):
                continue
            run = None if name == "none" else pretrain(MODELS[name], arguments.data, arguments.out, arguments.seconds)
            if use == "blimp":
                share = score_minimal_pairs(run, arguments.data, arguments.out, arguments.pairs) if run else None
                result = {**key, "score": None if share is None else 100 * share}
            else:
                result = {**key, **train_tagger(name, use, run, arguments)}
            append_json_line(file, result)
            yield result


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table with a row for each model and a column for each use."""
    uses = list(dict.fromkeys(row["use"] for row in rows))
    scores = {(row["model"], row["use"]): row["score"] for row in rows}
    head = [f"| model | {' | '.join(uses)} |", "|---" * (len(uses) + 1) + "|"]
    names = [name for name in ("none", *MODELS) if any(row["model"] == name for row in rows)]
    cells = [[scores.get((name, use)) for use in uses] for name in names]
    return "\n".join([*head, *(
        f"| {name} | {' | '.join('-' if score is None else f'{score:.2f}' for score in row)} |"
        for name, row in zip(names, cells, strict=True)
    )])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1200.0, help="of pretraining, for each model")
    parser.add_argument("--models", nargs="+", choices=["none", *MODELS], default=["none", *MODELS])
    parser.add_argument("--uses", nargs="*", choices=USES, default=list(USES))
    parser.add_argument("--pairs", type=int, default=200, help="of each paradigm of BLiMP")
    parser.add_argument("--dev", action="store_true", help="score the development data instead of the test data")
    parser.add_argument("--table", action="store_true", help="only print the table of the results")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    print(describe_machine(seed=0), file=sys.stderr)
    rows = list(results(arguments))
    print(table(rows))


if __name__ == "__main__":
    main()
