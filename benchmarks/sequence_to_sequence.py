"""Sequence-to-sequence models on real data: translation, inflection, pronunciation, instructions, summaries.

    python benchmarks/sequence_to_sequence.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--recipe NAME] [--dev]
        [--keep FOLDER]

DATA is a folder with the data sets that `DATA_SETS` names. Runs train with one thread. Weights are chosen on the
development data, and the test data are scored once; `--dev` scores the development data instead. `--recipe` trains a
recipe other than the default of the data set.

- CMUdict is divided by words: a word whose SHA-256 begins with a byte below 6 is for testing, below 12 for development,
  about 2.3 % each. `cmudict-39` has vowels without stress, as in most publications.
- SIGMORPHON 2017 is the setting "high" of task 1.
- The development data of SCAN are 2 % of its training data. `scan-length-counters` and `scan-jump-verbs` have modified
  training files (scan.py). With `--dev`, `scan-length-counters` trains on the commands of its training file with up to
  15 actions, and is scored on the others, with up to 22 actions. The development data of `scan-jump-verbs` are commands
  with verbs that its training file has only as one-word commands.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any

from data_files import data_path
from scan import command_and_actions, with_counters, with_more_functions, with_more_verbs, without_counters
from trials import Trial, print_scores, trial_arguments

from ensue.data.decoding import decode
from ensue.metrics.generation import nearest_edits

MAX_DEV_ACTIONS, MAX_ACTIONS = 15, 22
"""The maximum number of actions in training, with `--dev` and without, in SCAN's division by length."""
LANGUAGES = ("english", "german", "turkish", "finnish")


@dataclass(frozen=True)
class DataSet:
    """A recipe, and paths in DATA. Two paths with a comma between them are aligned files."""

    recipe: str
    train: str
    valid: str
    test: str
    settings: tuple[str, ...] = ()
    write: Callable[..., dict[str, str]] | None = None
    """A function that writes files into a folder and returns their paths; `dev` is true for scores on them."""
    extra_scores: Callable[[Any, str], dict[str, Any]] = Trial.extra_scores
    """A function that returns further scores."""


def multi30k(source: str, target: str) -> dict[str, str]:
    """Return the paths of a direction of translation."""
    names = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    return {part: ",".join(f"multi30k/{name}.{side}" for side in (source, target)) for part, name in names.items()}


def enja(source: str, target: str) -> dict[str, str]:
    """Return the paths of a direction of translation."""
    return {
        part: ",".join(f"small_parallel_enja/{name}.{side}" for side in (source, target))
        for part, name in {"train": "train", "valid": "dev", "test": "test"}.items()
    }


def scan(name: str, *settings: str, **options: Any) -> DataSet:
    """Return a division of SCAN."""
    train, test = (f"scan/tasks_{part}_{name}.txt" for part in ("train", "test"))
    words = ("tokenizer.kind=words", "target_tokenizer.kind=words", "data.names=[]", "tokens.tied=none")
    exact = ("head.label_smoothing=0", "train.epochs=24", "train.batch_tokens=2000", "train.learning_rate=0.002")
    return DataSet(
        "transduce-lstm", train, "", test, (*words, *exact, "data.valid_fraction=0.02", *settings), **options
    )


def join_paths(data: Path, paths: str) -> str:
    """Return paths in DATA, separated by commas; "" without paths."""
    return ",".join(data_path(data, path) for path in paths.split(",")) if paths else ""


def divide_cmudict(data: Path, folder: Path, *, dev: bool, stress: bool = True) -> dict[str, str]:
    """Divide CMUdict into files of words and pronunciations, with or without the stress of vowels."""
    lines: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for line in "".join(decode(Path(data_path(data, "cmudict/cmudict")), "utf-8")).splitlines():
        first = hashlib.sha256(line.split()[0].encode()).digest()[0]
        entry = line if stress else re.sub(r"(?<=[A-Z])[012]\b", "", line)
        lines["test" if first < 6 else "valid" if first < 12 else "train"].append(entry)
    return {part: write_lines(folder / f"cmudict.{part}", rows) for part, rows in lines.items()}


def write_scan_with_counters(data: Path, folder: Path, *, dev: bool) -> dict[str, str]:
    """Write SCAN's division by length with counters before the actions, and with more functions in training."""
    lines = scan_lines(data, "length", "train")
    if dev:
        parts = {"train": [*filterfalse(has_many_actions, lines)], "valid": [*filter(has_many_actions, lines)]}
    else:
        parts = {"train": lines, "test": scan_lines(data, "length", "test")}
    counted = {part: [*map(with_counters, lines)] for part, lines in parts.items()}
    counted["train"] += with_more_functions(MAX_DEV_ACTIONS if dev else MAX_ACTIONS)
    return {part: write_lines(folder / f"scan-counters.{part}", lines) for part, lines in counted.items()}


def has_many_actions(line: str) -> bool:
    return len(command_and_actions(line)[1].split()) > MAX_DEV_ACTIONS


def write_scan_with_more_verbs(data: Path, folder: Path, *, dev: bool) -> dict[str, str]:
    """Write the training part of SCAN's division by "jump" with more verbs, and commands with held-out verbs."""
    parts = zip(("train", "valid"), with_more_verbs(scan_lines(data, "addprim_jump", "train")), strict=True)
    return {part: write_lines(folder / f"scan-verbs.{part}", lines) for part, lines in parts}


def scan_lines(data: Path, name: str, part: str) -> list[str]:
    path = data_path(data, f"scan/tasks_{part}_{name}.txt")
    return "".join(decode(Path(path), "utf-8")).splitlines()


def write_lines(path: Path, lines: Iterable[str]) -> str:
    """Write lines. Return the path."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def right_actions(model: Any, path: str) -> dict[str, float]:
    """Return the share of commands of SCAN with the right actions, without regard to counters."""
    lines = [command_and_actions(line) for line in Path(path).read_text().splitlines()]
    outputs = model.predict([command for command, _ in lines])
    right = sum(
        without_counters(output.text.split()) == without_counters(actions.split())
        for output, (_, actions) in zip(outputs, lines, strict=True)
    )
    return {"right_actions": 100 * right / len(lines)}


def without_stress(model: Any, path: str) -> dict[str, float]:
    """Return the error rates of phonemes and words without regard to stress, as in most publications."""
    references = defaultdict(list)
    for line in Path(path).read_text().splitlines():
        word, _, *phonemes = line.split()
        references[word].append([phoneme.rstrip("012") for phoneme in phonemes])
    outputs = [[token.rstrip("012") for token in output.text.split()] for output in model.predict(list(references))]
    edits = [nearest_edits(output, references[word]) for word, output in zip(references, outputs, strict=True)]
    num_phonemes = sum(length for _, length in edits)
    return {
        "edit_rate_without_stress": 100 * sum(count for count, _ in edits) / num_phonemes,
        "exact_match_without_stress": 100 * sum(not count for count, _ in edits) / len(edits),
    }


WORDS = ("tokenizer.kind=words", "tokenizer.max_size=8000", "target_tokenizer.kind=words", "tokens.tied=target")
PHONEMES = (
    *("target_tokenizer.kind=words", "encoder.num_layers=2", "encoder.dropout=0.2", "decoder.dropout=0.2"),
    *("encoder.dropout_input=0.1", "decoder.dropout_input=0.1"),
    *("train.epochs=12", "train.batch_tokens=3000", "train.learning_rate=0.002"),
)
DATA_SETS = {
    "multi30k-en-de": DataSet("translate-transformer", **multi30k("en", "de")),
    "multi30k-de-en": DataSet("translate-transformer", **multi30k("de", "en")),
    "multi30k-en-fr": DataSet("translate-transformer", **multi30k("en", "fr")),
    "multi30k-en-de-lstm": DataSet("translate-lstm", **multi30k("en", "de")),
    "multi30k-en-de-plain": DataSet("translate-lstm-plain", **multi30k("en", "de")),
    "en-ja": DataSet("translate-transformer", **enja("en", "ja")),
    "ja-en": DataSet("translate-transformer", **enja("ja", "en")),
    "en-ja-words": DataSet("translate-lstm", **enja("en", "ja"), settings=WORDS),
    **{
        f"sigmorphon-{language}": DataSet(
            "transduce-lstm", *(f"sigmorphon2017/{language}-{part}" for part in ("train-high", "dev", "test"))
        )
        for language in LANGUAGES
    },
    "cmudict": DataSet("transduce-lstm", "", "", "", PHONEMES, divide_cmudict, without_stress),
    "cmudict-39": DataSet(
        "transduce-lstm", "", "", "", (*PHONEMES, "data.format=cmudict"),
        partial(divide_cmudict, stress=False), without_stress,
    ),
    "scan-simple": scan("simple"),
    "scan-length": scan("length"),
    "scan-jump": scan("addprim_jump"),
    "scan-length-counters": scan(
        "length", "train.epochs=2", "search.max_tokens=200", "search.beams=1",
        write=write_scan_with_counters, extra_scores=right_actions,
    ),
    "scan-jump-verbs": scan("addprim_jump", "train.epochs=24", "search.beams=1", write=write_scan_with_more_verbs),
    "samsum-pointer": DataSet("summarize-pointer", *(f"samsum/{part}.csv" for part in ("train", "validation", "test"))),
    "samsum-transformer": DataSet(
        "summarize-transformer", *(f"samsum/{part}.csv" for part in ("train", "validation", "test"))
    ),
    "samsum-lm": DataSet("summarize-lm", *(f"samsum/{part}.csv" for part in ("train", "validation", "test"))),
    "dialogsum": DataSet(
        "summarize-pointer", *(f"dialogsum/dialogsum.{part}.jsonl" for part in ("train", "dev", "test"))
    ),
}  # fmt: skip


def trial_of(data: Path, name: str, folder: Path, *, dev: bool) -> Trial:
    """Return the trial of a data set."""
    data_set = DATA_SETS[name]
    paths = {part: join_paths(data, getattr(data_set, part)) for part in ("train", "valid", "test")}
    if data_set.write is not None:
        paths |= data_set.write(data, folder, dev=dev)
    return Trial(
        data_set.recipe, paths["train"], paths["valid"], paths["test"], data_set.settings, data_set.extra_scores
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    arguments = trial_arguments(parser, list(DATA_SETS))
    print_scores(arguments, lambda name, folder: trial_of(arguments.data, name, folder, dev=arguments.dev))


if __name__ == "__main__":
    main()
