"""Exported graphs in onnxruntime beside ensue: speed on one thread, size, and what eight bits cost.

    python benchmarks/onnx_graphs.py --language RUN TEXT --tagger RUN SENTENCES --classifier RUN TEXTS

RUN is a trained run, TEXT a text, SENTENCES a file of labeled sentences, TEXTS one of labeled texts. Each run is
exported twice, in float32 and in eight bits. All read the same in turns, in one process, by processor time; the median
of the rounds is shown. It needs `pip install "ensue[onnx]"`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch

import ensue
from ensue.metrics.labeling import LabelingTally
from ensue.tasks.contract.description import state_tensors

ROUNDS, SENTENCES, TEXTS, TOKENS, PIECE, BATCH = 7, 1_000, 64, 60_000, 1_000, 32
FORMATS = ("float32", "int8")


def exported(run: str, folder: Path) -> dict[str, Path]:
    """The directories of a run's exports, by their formats."""
    places = {name: folder / name for name in FORMATS}
    for name, place in places.items():
        for note in ensue.export_run(run, place, "onnx", int8=name == "int8"):
            print(note)
    return places


def session(directory: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(directory / "model.onnx", options, providers=["CPUExecutionProvider"])


def processor_seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(what: str, unit: str, count: int, works: dict[str, Callable[[], Any]]) -> None:
    """Prints how much each does in a second, and how much more than the first one."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            seconds[name].append(processor_seconds(work))
    first = next(iter(seconds.values()))
    for name, found in seconds.items():
        ratios = [a / b for a, b in zip(first, found, strict=True)]
        speed = count / median(found)
        print(f"{what}, {name}: {speed:,.0f} {unit}/s, {median(ratios):.2f} × ({min(ratios):.2f} to {max(ratios):.2f})")


def language(run: str, text: Path) -> None:
    pipeline = ensue.load(run, device="cpu")
    model, tokenizer = pipeline.model, pipeline.tokenizer
    ids = tokenizer.encode(text.read_text(encoding="utf-8"))[:TOKENS].astype(np.int64)
    inputs = np.concatenate(([tokenizer.start_id], ids[:-1]))
    cuts = range(PIECE, len(ids), PIECE)
    pieces = list(zip(np.split(inputs, cuts), np.split(ids, cuts), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        sessions = {name: session(place) for name, place in exported(run, Path(folder)).items()}

    def start(rows: int) -> dict[str, Any]:
        return {name: leaf.numpy() for name, leaf in state_tensors(model.init_state(rows)).items()}

    def nats(running: onnxruntime.InferenceSession) -> float:
        state, total = start(1), 0.0
        for given, wanted in pieces:
            logits, *leaves = running.run(None, {"ids": given[None], **state})
            state = dict(zip(state, leaves, strict=True))
            log_p = torch.from_numpy(logits[0]).double().log_softmax(-1)
            total -= float(log_p[torch.arange(len(wanted)), torch.from_numpy(wanted)].sum())
        return total / len(ids)

    for name, running in sessions.items():
        print(f"{name}: {nats(running):.5f} nats per token of {len(ids):,}")

    def ours(given: np.ndarray, steps: int) -> Callable[[], Any]:
        rows = torch.from_numpy(given)

        @torch.inference_mode()
        def work() -> None:
            state = model.init_state(len(rows))
            for _ in range(steps):
                _, state = model.step(rows[:, 0], state) if rows.shape[1] == 1 else model(rows, state)

        return work

    def theirs(running: onnxruntime.InferenceSession, given: np.ndarray, steps: int) -> Callable[[], Any]:
        def work() -> None:
            state = start(len(given))
            for _ in range(steps):
                _, *leaves = running.run(None, {"ids": given, **state})
                state = dict(zip(state, leaves, strict=True))

        return work

    for rows, length, steps in ((1, PIECE, 5), (1, 1, 1_000), (64, 1, 100)):
        given = np.resize(ids, (rows, length))
        works = {"ensue": ours(given, steps)}
        works |= {f"onnxruntime {name}": theirs(running, given, steps) for name, running in sessions.items()}
        in_turns(f"{rows} × {length} tokens", "tokens", rows * length * steps, works)


def tagger(run: str, file: Path) -> None:
    pipeline = ensue.load(run, device="cpu")
    source = pipeline.source(file)
    found = [sentence for sentence in source if sentence.words]
    column = pipeline.column(source.format)
    sentences, gold = [list(s.words) for s in found], [source.format.labels(s, column) for s in found]
    with tempfile.TemporaryDirectory() as folder:
        places = exported(run, Path(folder))
        programs = {name: program(place) for name, place in places.items()}
        answers = {name: [predict(each, [words])[0] for words in sentences] for name, each in programs.items()}
    answers = {"ensue": [answer.labels for answer in pipeline.predict(sentences)], **answers}
    for name, labels in answers.items():
        tally = LabelingTally(spans=pipeline.labels.has_spans)
        for expected, each in zip(gold, labels, strict=True):
            tally.add(expected, each)
        same = sum(a == b for a, b in zip(labels, answers["ensue"], strict=True))
        print(f"{name}: {tally.scores(known=pipeline.labels.names).summary()}; {same:,} of {len(gold):,} as ensue")
    compared(
        "sentences", sentences[:SENTENCES], pipeline.predict, {n: partial(predict, p) for n, p in programs.items()}
    )


def classifier(run: str, file: Path) -> None:
    pipeline = ensue.load(run, device="cpu")
    documents = list(pipeline.source(file))
    texts, gold = [document.texts[0] for document in documents], [document.labels[0] for document in documents]
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: program(place) for name, place in exported(run, Path(folder)).items()}

    def shares(each: Any, texts: Sequence[str]) -> np.ndarray:
        return each.predict([each.read(text) for text in texts])  # type: ignore[no-any-return]

    names = pipeline.labels.names
    answers = {"ensue": [answer.label for answer in pipeline.predict(texts)]}
    for name, each in programs.items():
        answers[name] = [names[int(shares(each, [text]).argmax())] for text in texts]
    for name, labels in answers.items():
        right = np.mean([a == b for a, b in zip(labels, gold, strict=True)])
        same = sum(a == b for a, b in zip(labels, answers["ensue"], strict=True))
        print(f"{name}: accuracy {100 * right:.2f} %; {same:,} of {len(gold):,} as ensue")
    compared("texts", texts[:TEXTS], pipeline.predict, {n: partial(shares, p) for n, p in programs.items()})


def compared(
    what: str, some: Sequence[Any], ours: Callable[[Any], Any], theirs: dict[str, Callable[[Any], Any]]
) -> None:
    """One by one, and in batches of similar length."""
    by_length = sorted(some, key=len)
    batches = [by_length[first : first + BATCH] for first in range(0, len(some), BATCH)]
    for title, groups in ((f"single {what}", [[one] for one in some]), (f"{BATCH} {what}", batches)):
        works: dict[str, Callable[[], Any]] = {"ensue": lambda groups=groups: list(map(ours, groups))}
        for name, each in theirs.items():
            works[f"onnxruntime {name}"] = lambda each=each, groups=groups: list(map(each, groups))
        in_turns(title, what, len(some), works)


def program(directory: Path) -> Any:
    """The program in a directory, with a model of one thread."""
    modules = {}
    for name in ("subwords", "words", "predict"):
        if not (directory / f"{name}.py").exists():
            continue
        specification = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
        assert specification is not None
        assert specification.loader is not None
        modules[name] = importlib.util.module_from_spec(specification)
        if name != "predict":
            sys.modules[name] = modules[name]
        specification.loader.exec_module(modules[name])
    modules["words"].model = modules["predict"].model = session(directory)
    return modules["predict"]


def predict(module: Any, sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    return module.predict(sentences)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", nargs=2, metavar=("RUN", "TEXT"))
    parser.add_argument("--tagger", nargs=2, metavar=("RUN", "SENTENCES"))
    parser.add_argument("--classifier", nargs=2, metavar=("RUN", "TEXTS"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.language:
        language(arguments.language[0], Path(arguments.language[1]))
    if arguments.tagger:
        tagger(arguments.tagger[0], Path(arguments.tagger[1]))
    if arguments.classifier:
        classifier(arguments.classifier[0], Path(arguments.classifier[1]))


if __name__ == "__main__":
    main()
