"""Models exported as C, WebAssembly and ONNX beside ensue: speed, time to the first answer, memory.

    python benchmarks/carried.py RUN TEXT

RUN is a trained language model, and TEXT is a text. Or RUN is a classifier, a tagger or an encoder-decoder, and each
line of TEXT is a text or a sentence. For a model of frames, each line of TEXT is the path of a file. All programs
process the same data in turns, in one thread. Speeds are medians of processor time; for WebAssembly the start and the
compilation of Node are not included. The time to the first answer is the median wall-clock time of a process with one
line (for a language model, one character). The script needs a C compiler, for onnxruntime `pip install "ensue[onnx]"`,
and for WebAssembly Node and `pip install "ensue[web]"`. onnxruntime is measured only for recurrent language models.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from machine import describe_machine
from timing import elapsed, take_turns

import ensue

NODE = """
import { readFileSync } from "node:fs";
import { load } from "./model.js";
const [call, simd, count] = process.argv.slice(2), text = readFileSync(0, "utf-8");
const model = await load({ simd: simd === "SIMD" });
const calls = {
  score: () => model.score(text).map(token => `${token.nats.toFixed(4)}\\t${token.text}`).join("\\n"),
  generate: () => [...model.generate("", { maxTokens: Number(count), seed: 1 })].join(""),
  predict: () => model.predict(lines.map(input)),
};
const input = line => model.isPair ? line.split("\\t") : model.rate ? readFileSync(line) : line;
const lines = call === "predict" ? text.split("\\n").slice(0, -1) : [];
if (lines.length) model.predict(lines.slice(0, 300).map(input));
else model.score("The sea was calm. ".repeat(200));
const before = process.cpuUsage();
calls[call]();
const { user, system } = process.cpuUsage(before);
console.log((user + system) / 1e6);
"""
NUM_TURNS, NUM_CHARACTERS, NUM_TOKENS, NUM_TEXTS, NUM_SENTENCES = 7, 40_000, 4_000, 20_000, 300
MAX_PIPE_BYTES = 1 << 15
"""Bytes that a pipe holds without a reader."""


def run_program(command: list[str], content: bytes) -> float:
    """Run a program with an input. Return its processor seconds."""
    with tempfile.TemporaryFile() as text, open(os.devnull, "wb") as nowhere:
        text.write(content)
        text.seek(0)
        process = subprocess.Popen(command, stdin=text, stdout=nowhere, cwd=Path(command[0]).parent)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def peak_memory(command: list[str], content: bytes, *, close_input: bool) -> int:
    """Return the peak memory of a program in KiB, one second after its start with `content` as input."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(command[0]).parent
    ) as process:
        assert process.stdin is not None
        process.stdin.write(content)
        process.stdin.flush()
        if close_input:
            process.stdin.close()
        time.sleep(1)
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        process.kill()
    return int(status.partition("VmHWM:")[2].split()[0])


def print_speeds(title: str, count: int, measures: dict[str, Callable[[], float]]) -> None:
    """Print the speed of each program, also relative to the first one. Measures return processor seconds."""
    seconds = {name: median(values) for name, values in take_turns(measures, NUM_TURNS).items()}
    first = next(iter(seconds.values()))
    for name, value in seconds.items():
        print(f"{title}, {name}: {count / value:,.0f}/s ({first / value:.2f} of the first)")


def onnx_reader(run: str, folder: Path, ids: Any) -> Callable[[], None]:
    """Return a function that reads a text token by token with onnxruntime, like an interactive program."""
    import onnxruntime  # noqa: PLC0415 (optional)

    ensue.export_run(run, folder, "onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    leaves = {node.name: node.shape for node in session.get_inputs() if node.name != "ids"}

    def read() -> None:
        state = {name: np.zeros([1, *sizes[1:]], np.float32) for name, sizes in leaves.items()}
        for id in ids:
            _, *next_state = session.run(None, {"ids": np.array([[id]], np.int64), **state})
            state = dict(zip(state, next_state, strict=True))

    return read


def program_measures(programs: dict[str, str], content: bytes, *arguments: str) -> dict[str, Callable[[], float]]:
    """Return a measure for each program in C."""
    return {name: partial(run_program, [program, *arguments], content) for name, program in programs.items()}


def compare_classifiers(model: Any, programs: dict[str, str], text: str, web: dict[str, Path]) -> None:
    """Compare classifiers on a file of texts. The cache of ensue is emptied before each turn."""
    lines = (text * (NUM_TEXTS // text.count("\n") + 1)).splitlines()[:NUM_TEXTS]
    content = "".join(f"{line}\n" for line in lines).encode()
    texts = [tuple(line.split("\t")) if model.num_texts == 2 else line for line in lines]

    def predict() -> None:
        model.reader.memory.clear()
        model.predict(texts)

    measures = program_measures(programs, content) | {"ensue": lambda: elapsed(predict)}
    measures |= web_measures(web, content.decode(), "predict")
    print_speeds("texts classified", len(lines), measures)


def compare_frame_models(model: Any, programs: dict[str, str], paths: list[str], web: dict[str, Path]) -> None:
    """Compare models of frames on files; ensue also with one call for each file. WebAssembly reads only sounds."""
    content = "".join(f"{path}\n" for path in paths).encode()
    frames = sum(len(series.frames) for path in paths for series in model.source(path))
    measures = program_measures(programs, content) | {
        "ensue": lambda: elapsed(
            lambda: list(model.answers(chain.from_iterable(map(model.source, paths)), in_full=False))
        ),
        "ensue, file by file": lambda: elapsed(lambda: [list(model.prediction_lines(path)) for path in paths]),
        **web_measures(web, content.decode(), "predict"),
    }
    print_speeds("frames answered", frames, measures)


def compare_translators(model: Any, program: str, text: str, path: Path) -> None:
    """Compare encoder-decoders on a file of lines, with the search of the run and with greedy search."""
    for search, options, pipeline in (("beams", (), model), ("greedy", ("--beams", "1"), model.with_search(width=1))):
        lines = partial(
            pipeline.prediction_lines, str(path), format="plain", encoding="utf-8", as_json=False, color=False
        )
        measures: dict[str, Callable[[], float]] = {
            "C": partial(run_program, [program, *options], text.encode()),
            "ensue": lambda lines=lines: elapsed(lambda: list(lines())),  # type: ignore[misc]
        }
        print_speeds(f"texts answered, {search}", text.count("\n"), measures)


def export_web(run: str, folder: Path) -> dict[str, Path]:
    """Export WebAssembly modules, if Node and a compiler are installed. Return their folders."""
    if not (shutil.which("node") and find_spec("ziglang")):
        return {}
    for precision in ("f32", "int8"):
        ensue.export_run(run, folder / precision / "model", "web", precision=precision)
        (folder / precision / "model" / "speed.js").write_text(NODE)
        size = (folder / precision / "model" / "model.html").stat().st_size
        print(f"WebAssembly, {precision}: a page of {size / 1024:,.0f} KiB")
    return {"SIMD": folder / "f32" / "model", "no SIMD": folder / "f32" / "model",
            "SIMD, int8": folder / "int8" / "model"}  # fmt: skip


def run_in_node(folder: Path, text: str, *arguments: str) -> float:
    """Run a WebAssembly module in Node. Return its processor seconds."""
    command = ["node", "speed.js", *arguments]
    return float(subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, check=True).stdout)


def web_measures(folders: dict[str, Path], text: str, call: str, *arguments: str) -> dict[str, Callable[[], float]]:
    """Return a measure for each WebAssembly module."""
    return {
        f"WebAssembly, {kind}": partial(run_in_node, folder, text, call, kind.partition(",")[0], *arguments)
        for kind, folder in folders.items()
    }


def compare_taggers(model: Any, programs: dict[str, str], text: str, path: Path, web: dict[str, Path]) -> None:
    """Compare taggers on a file of sentences, and sentence by sentence."""
    lines = text.splitlines(keepends=True)
    words = sum(map(len, model.predict(lines)))
    measures: dict[str, Callable[[], float]] = {
        **program_measures(programs, text.encode()),
        "C, with probabilities": lambda: run_program([programs["C"], "--probabilities"], text.encode()),
        "ensue": lambda: elapsed(lambda: list(model.prediction_lines(str(path), format="text"))),
        **web_measures(web, text, "predict"),
    }
    print_speeds("words labeled", words, measures)
    excerpt = lines[:NUM_SENTENCES]
    count = sum(map(len, model.predict(excerpt)))
    # the program in C labels the sentences before an empty line together
    single: dict[str, Callable[[], float]] = {
        **program_measures(programs, "\n".join(excerpt).encode()),
        "ensue": lambda: elapsed(lambda: [model.predict([line]) for line in excerpt]),
    }
    print_speeds("words labeled, sentence by sentence", count, single)


def compare_language_models(
    model: Any, run: str, programs: dict[str, str], text: str, folder: Path, web: dict[str, Path]
) -> None:
    """Compare language models that score a text, generate tokens, and read tokens one by one."""
    ids, program = model.tokenizer.encode(text), programs["C"]
    scoring: dict[str, Callable[[], float]] = {
        **program_measures(programs, text.encode()),
        "ensue": lambda: elapsed(lambda: sum(1 for _ in model.score(text))),
        **web_measures(web, text, "score"),
    }
    generation: dict[str, Callable[[], float]] = {
        "C": lambda: run_program([program, "--generate", str(NUM_TOKENS), "1"], b""),
        "ensue": lambda: elapsed(lambda: list(model.generate("", max_tokens=NUM_TOKENS, seed=1))),
        **web_measures(web, "", "generate", str(NUM_TOKENS)),
    }
    print_speeds("tokens scored", len(ids), scoring)
    print_speeds("tokens generated", NUM_TOKENS, generation)
    first_ids = ids[:NUM_TOKENS]
    beginning = model.tokenizer.decode(first_ids).encode()
    reading: dict[str, Callable[[], float]] = {"C": lambda: run_program([program], beginning)}
    if find_spec("onnxruntime") and model.model.context is None:  # a growing state has no fixed shape
        read = onnx_reader(run, folder / "onnx", first_ids)
        reading["onnxruntime"] = lambda: elapsed(read)
    print_speeds("tokens read one by one", len(first_ids), reading)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("text", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine(seed=0))
    text = options.text.read_text(encoding="utf-8")
    model: Any = ensue.load(options.run, device="cpu")
    reads_lines = hasattr(model, "predict")
    if not reads_lines:
        text = (text * (NUM_CHARACTERS // len(text) + 1))[:NUM_CHARACTERS]
    with tempfile.TemporaryDirectory() as name:
        programs = {}
        for title, precision in {"C": "f32", "C, f16": "f16", "C, int8": "int8"}.items():
            folder = Path(name) / precision / "model"
            *notes, _ = ensue.export_run(options.run, folder, "c", precision=precision)
            subprocess.run(["make", "-s"], cwd=folder, check=True)
            programs[title] = str(folder / "model")
            print(f"{title}: weights {(folder / 'model.weights').stat().st_size / 1024:,.0f} KiB", *notes)
        first_answers: dict[str, list[float]] = {command: [] for command in [*programs.values(), "/bin/true"]}
        for _ in range(NUM_TURNS * 3):
            for command, seconds in first_answers.items():
                start = time.perf_counter()
                run_program([command], (text.partition("\n")[0] if reads_lines else text[:1]).encode())
                seconds.append(time.perf_counter() - start)
        content = text.encode()[: MAX_PIPE_BYTES if reads_lines else None]
        arguments = ["--probabilities"] * hasattr(model, "label")
        for title, command in [*programs.items(), ("/bin/true", "/bin/true")]:
            print(
                f"{title}: first answer {median(first_answers[command]) * 1000:.1f} ms after the start of the process"
            )
        for title, command in programs.items():
            memory = peak_memory([command, *arguments], content, close_input=not reads_lines)
            print(f"{title}: peak memory {memory:,} KiB, with a text of {len(content) / 1024:.0f} KiB")
        has_frames = hasattr(model, "seen")
        has_web = not has_frames or model.seen.shape.is_sound
        web = export_web(options.run, Path(name) / "web") if has_web else {}
        if has_frames:
            compare_frame_models(model, programs, text.splitlines(), web)
        elif hasattr(model, "prediction_lines") and hasattr(model, "label"):
            compare_taggers(model, programs, text, options.text, web)
        elif hasattr(model, "coder"):
            compare_translators(model, programs["C"], text, options.text)
        elif reads_lines:
            compare_classifiers(model, programs, text, web)
        else:
            compare_language_models(model, options.run, programs, text, Path(name), web)


if __name__ == "__main__":
    main()
