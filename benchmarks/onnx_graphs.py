"""Exported graphs in onnxruntime beside ensue: speed in one thread, and scores in float32 and in eight bits.

    python benchmarks/onnx_graphs.py --language RUN TEXT --tagger RUN SENTENCES --classifier RUN TEXTS

RUN is a trained run, TEXT a text, SENTENCES a file of labeled sentences, TEXTS a file of labeled texts. Each run is
exported in float32 and in eight bits. All programs process the same data in turns, in one process; the script prints
medians of processor time. It needs `pip install "ensue[onnx]"`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch
from machine import describe_machine
from timing import ratios, time_in_turns

import ensue
from ensue.metrics.labeling import LabelingTally
from ensue.tasks.contract.description import state_tensors

NUM_TURNS, NUM_SENTENCES, NUM_TEXTS, NUM_TOKENS, SEGMENT_TOKENS, BATCH_SIZE = 7, 1_000, 64, 60_000, 1_000, 32
FORMATS = ("float32", "int8")


def export(run: str, folder: Path) -> dict[str, Path]:
    """Export a run in each format. Return the directories."""
    directories = {name: folder / name for name in FORMATS}
    for name, directory in directories.items():
        for note in ensue.export_run(run, directory, "onnx", int8=name == "int8"):
            print(note)
    return directories


def session(directory: Path) -> onnxruntime.InferenceSession:
    """Return a session with one thread for an exported model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(directory / "model.onnx", options, providers=["CPUExecutionProvider"])


def print_speeds(title: str, unit: str, count: int, calls: dict[str, Callable[[], Any]]) -> None:
    """Print the units per second of each call, and the ratio to the first call."""
    seconds = time_in_turns(calls, NUM_TURNS)
    first = next(iter(seconds.values()))
    for name, values in seconds.items():
        turns, speed = ratios(first, values), count / median(values)
        print(f"{title}, {name}: {speed:,.0f} {unit}/s, {median(turns):.2f} × ({min(turns):.2f} to {max(turns):.2f})")


def measure_language_model(run: str, text: Path) -> None:
    """Print the scores and speeds of a language model."""
    pipeline: Any = ensue.load(run, device="cpu")
    model, tokenizer = pipeline.model, pipeline.tokenizer
    ids = tokenizer.encode(text.read_text(encoding="utf-8"))[:NUM_TOKENS].astype(np.int64)
    inputs = np.concatenate(([tokenizer.start_id], ids[:-1]))
    boundaries = range(SEGMENT_TOKENS, len(ids), SEGMENT_TOKENS)
    segments = list(zip(np.split(inputs, boundaries), np.split(ids, boundaries), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        sessions = {name: session(directory) for name, directory in export(run, Path(folder)).items()}

    def initial_state(rows: int) -> dict[str, Any]:
        return {name: leaf.numpy() for name, leaf in state_tensors(model.init_state(rows)).items()}

    def nats(runtime: onnxruntime.InferenceSession) -> float:
        state, total = initial_state(1), 0.0
        for segment, targets in segments:
            logits, *leaves = runtime.run(None, {"ids": segment[None], **state})
            state = dict(zip(state, leaves, strict=True))
            log_p = torch.from_numpy(logits[0]).double().log_softmax(-1)
            total -= float(log_p[torch.arange(len(targets)), torch.from_numpy(targets)].sum())
        return total / len(ids)

    for name, runtime in sessions.items():
        print(f"{name}: {nats(runtime):.5f} nats per token of {len(ids):,}")

    def ensue_call(ids: np.ndarray, steps: int) -> Callable[[], Any]:
        rows = torch.from_numpy(ids)

        @torch.inference_mode()
        def call() -> None:
            state = model.init_state(len(rows))
            for _ in range(steps):
                _, state = model.step(rows[:, 0], state) if rows.shape[1] == 1 else model(rows, state)

        return call

    def onnx_call(runtime: onnxruntime.InferenceSession, ids: np.ndarray, steps: int) -> Callable[[], Any]:
        def call() -> None:
            state = initial_state(len(ids))
            for _ in range(steps):
                _, *leaves = runtime.run(None, {"ids": ids, **state})
                state = dict(zip(state, leaves, strict=True))

        return call

    for rows, length, steps in ((1, SEGMENT_TOKENS, 5), (1, 1, 1_000), (64, 1, 100)):
        batch = np.resize(ids, (rows, length))
        calls = {"ensue": ensue_call(batch, steps)}
        calls |= {f"onnxruntime {name}": onnx_call(runtime, batch, steps) for name, runtime in sessions.items()}
        print_speeds(f"{rows} × {length} tokens", "tokens", rows * length * steps, calls)


def measure_tagger(run: str, file: Path) -> None:
    """Print the scores and speeds of a tagger."""
    pipeline: Any = ensue.load(run, device="cpu")
    source = pipeline.source(file)
    labeled = [sentence for sentence in source if sentence.words]
    column = pipeline.column(source.format)
    sentences, gold = [list(s.words) for s in labeled], [source.format.labels(s, column) for s in labeled]
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: load_program(directory) for name, directory in export(run, Path(folder)).items()}
        answers = {name: [module.predict([words])[0] for words in sentences] for name, module in programs.items()}
    answers = {"ensue": [answer.labels for answer in pipeline.predict(sentences)], **answers}
    for name, labels in answers.items():
        tally = LabelingTally(spans=pipeline.labels.has_spans)
        for expected, predicted in zip(gold, labels, strict=True):
            tally.add(expected, predicted)
        same = sum(a == b for a, b in zip(labels, answers["ensue"], strict=True))
        print(
            f"{name}: {tally.scores(known=pipeline.labels.names).summary()}; "
            f"{same:,} of {len(gold):,} equal those of ensue"
        )
    calls = {name: module.predict for name, module in programs.items()}
    compare_speeds("sentences", sentences[:NUM_SENTENCES], pipeline.predict, calls)


def measure_classifier(run: str, file: Path) -> None:
    """Print the accuracies and speeds of a classifier."""
    pipeline: Any = ensue.load(run, device="cpu")
    documents = list(pipeline.source(file))
    texts, gold = [document.texts[0] for document in documents], [document.labels[0] for document in documents]
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: load_program(directory) for name, directory in export(run, Path(folder)).items()}

    def probabilities(module: Any, texts: Sequence[str]) -> np.ndarray:
        return module.predict([module.read(text) for text in texts])  # type: ignore[no-any-return]

    names = pipeline.labels.names
    answers = {"ensue": [answer.label for answer in pipeline.predict(texts)]}
    for name, module in programs.items():
        answers[name] = [names[int(probabilities(module, [text]).argmax())] for text in texts]
    for name, labels in answers.items():
        right = np.mean([a == b for a, b in zip(labels, gold, strict=True)])
        same = sum(a == b for a, b in zip(labels, answers["ensue"], strict=True))
        print(f"{name}: accuracy {100 * right:.2f} %; {same:,} of {len(gold):,} equal those of ensue")
    calls = {name: partial(probabilities, module) for name, module in programs.items()}
    compare_speeds("texts", texts[:NUM_TEXTS], pipeline.predict, calls)


def compare_speeds(
    unit: str, items: Sequence[Any], predict: Callable[[Any], Any], peers: dict[str, Callable[[Any], Any]]
) -> None:
    """Print the speeds with single items, and with batches of items of similar length."""
    by_length = sorted(items, key=len)
    batches = [by_length[first : first + BATCH_SIZE] for first in range(0, len(items), BATCH_SIZE)]
    for title, groups in ((f"single {unit}", [[item] for item in items]), (f"{BATCH_SIZE} {unit}", batches)):
        functions = {"ensue": predict} | {f"onnxruntime {name}": peer for name, peer in peers.items()}
        calls = {name: partial(call_all, function, groups) for name, function in functions.items()}
        print_speeds(title, unit, len(items), calls)


def call_all(function: Callable[[Any], Any], groups: Sequence[Any]) -> None:
    """Call a function with each group."""
    for group in groups:
        function(group)


def load_program(directory: Path) -> Any:
    """Return the module `predict` of an exported directory, with a session of one thread."""
    modules: dict[str, Any] = {}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", nargs=2, metavar=("RUN", "TEXT"))
    parser.add_argument("--tagger", nargs=2, metavar=("RUN", "SENTENCES"))
    parser.add_argument("--classifier", nargs=2, metavar=("RUN", "TEXTS"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine(seed=0))
    if arguments.language:
        measure_language_model(arguments.language[0], Path(arguments.language[1]))
    if arguments.tagger:
        measure_tagger(arguments.tagger[0], Path(arguments.tagger[1]))
    if arguments.classifier:
        measure_classifier(arguments.classifier[0], Path(arguments.classifier[1]))


if __name__ == "__main__":
    main()
