"""A model as C beside ensue, and a language model beside onnxruntime: speed, time to the first answer, memory.

    python benchmarks/carried.py RUN TEXT

RUN is a trained language model and TEXT a text. Or RUN is a classifier, a tagger or an encoder-decoder, and
each line of TEXT is a text or a sentence; of a model of frames, each line is the path of a file. All read the same in
turns, on one thread, by processor time; the median of the rounds is shown. It needs a C compiler; for onnxruntime `pip
install "ensue[onnx]"`, and for WebAssembly Node and `pip install "ensue[web]"`. The start of Node, and what it
compiles, are not counted.
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

import ensue

NODE = """
import { readFileSync } from "node:fs";
import { load } from "./model.js";
const [what, simd, count] = process.argv.slice(2), text = readFileSync(0, "utf-8");
const model = await load({ simd: simd === "SIMD" });
const works = {
  score: () => model.score(text).map(token => `${token.nats.toFixed(4)}\\t${token.text}`).join("\\n"),
  generate: () => [...model.generate("", { maxTokens: Number(count), seed: 1 })].join(""),
  predict: () => model.predict(lines.map(given)),
};
const given = line => model.isPair ? line.split("\\t") : model.rate ? readFileSync(line) : line;
const lines = what === "predict" ? text.split("\\n").slice(0, -1) : [];
if (lines.length) model.predict(lines.slice(0, 300).map(given));
else model.score("The sea was calm. ".repeat(200));
const before = process.cpuUsage();
works[what]();
const { user, system } = process.cpuUsage(before);
console.log((user + system) / 1e6);
"""
ROUNDS, CHARACTERS, TOKENS, TEXTS, SENTENCES = 7, 40_000, 4_000, 20_000, 300
MOST_IN_PIPE = 1 << 15
"""Bytes that a pipe takes."""


def child(command: list[str], given: bytes) -> float:
    """The processor seconds of a program."""
    with tempfile.TemporaryFile() as text, open(os.devnull, "wb") as nowhere:
        text.write(given)
        text.seek(0)
        process = subprocess.Popen(command, stdin=text, stdout=nowhere, cwd=Path(command[0]).parent)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def peak(command: list[str], given: bytes, *, ends: bool = True) -> int:
    """The largest memory of a program in KiB, when it waits to write, or to read more than this."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(command[0]).parent
    ) as process:
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.flush()
        if ends:
            process.stdin.close()
        time.sleep(1)
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        process.kill()
    return int(status.partition("VmHWM:")[2].split()[0])


def processor_seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def in_turns(what: str, count: int, works: dict[str, Callable[[], float]]) -> None:
    """Prints how much each does in a second, and how much of the first one that is."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            seconds[name].append(work())
    first = median(next(iter(seconds.values())))
    for name, found in seconds.items():
        print(f"{what}, {name}: {count / median(found):,.0f}/s ({first / median(found):.2f} of the first)")


def onnx_reader(run: str, folder: Path, ids: Any) -> Callable[[], None]:
    """Reads a text token by token from state to state, as a program does that waits for what is typed."""
    import onnxruntime  # noqa: PLC0415 (it may not be installed)

    ensue.export_run(run, folder, "onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    leaves = {given.name: given.shape for given in session.get_inputs() if given.name != "ids"}

    def read() -> None:
        state = {name: np.zeros([1, *sizes[1:]], np.float32) for name, sizes in leaves.items()}
        for id in ids:
            _, *after = session.run(None, {"ids": np.array([[id]], np.int64), **state})
            state = dict(zip(state, after, strict=True))

    return read


def each(programs: dict[str, str], given: bytes, *arguments: str) -> dict[str, Callable[[], float]]:
    """The work of all programs."""
    return {name: partial(child, [program, *arguments], given) for name, program in programs.items()}


def classified(model: Any, programs: dict[str, str], text: str, web: dict[str, Path]) -> None:
    """Texts that are all at hand, in C by processes that end; ensue forgets the words that it has worked out."""
    lines = (text * (TEXTS // text.count("\n") + 1)).splitlines()[:TEXTS]
    given = "".join(f"{line}\n" for line in lines).encode()
    texts = [tuple(line.split("\t")) if model.num_texts == 2 else line for line in lines]

    def ensue_does() -> None:
        model.reader.memory.clear()
        model.predict(texts)

    works = each(programs, given) | {"ensue": lambda: processor_seconds(ensue_does)}
    works |= in_web(web, given.decode(), "predict")
    in_turns("texts classified", len(lines), works)


def framed(model: Any, programs: dict[str, str], paths: list[str], web: dict[str, Path]) -> None:
    """Series in files that are all named, and one call for each file in ensue. WebAssembly reads sounds alone."""
    given = "".join(f"{path}\n" for path in paths).encode()
    frames = sum(len(series.frames) for path in paths for series in model.source(path))
    works = each(programs, given) | {
        "ensue": lambda: processor_seconds(
            lambda: list(model.answers(chain.from_iterable(map(model.source, paths)), in_full=False))
        ),
        "ensue, file by file": lambda: processor_seconds(
            lambda: [list(model.prediction_lines(path)) for path in paths]
        ),
        **in_web(web, given.decode(), "predict"),
    }
    in_turns("frames answered", frames, works)


def transduced(model: Any, program: str, text: str, path: Path) -> None:
    """Outputs for all lines at hand, by the search of the run and without one."""
    for how, options, searched in (("beams", (), model), ("greedy", ("--beams", "1"), model.with_search(width=1))):
        lines = partial(
            searched.prediction_lines, str(path), format="plain", encoding="utf-8", as_json=False, color=False
        )
        works: dict[str, Callable[[], float]] = {
            "C": partial(child, [program, *options], text.encode()),
            "ensue": lambda lines=lines: processor_seconds(lambda: list(lines())),  # type: ignore[misc]
        }
        in_turns(f"texts answered, {how}", text.count("\n"), works)


def exported_web(run: str, folder: Path) -> dict[str, Path]:
    """Folders with the module of WebAssembly by its code and numbers, if a page can be made and Node is there."""
    if not (shutil.which("node") and find_spec("ziglang")):
        return {}
    for precision in ("f32", "int8"):
        ensue.export_run(run, folder / precision / "model", "web", precision=precision)
        (folder / precision / "model" / "speed.js").write_text(NODE)
        size = (folder / precision / "model" / "model.html").stat().st_size
        print(f"WebAssembly, {precision}: a page of {size / 1024:,.0f} KiB")
    return {"SIMD": folder / "f32" / "model", "no SIMD": folder / "f32" / "model",
            "SIMD, int8": folder / "int8" / "model"}  # fmt: skip


def in_node(folder: Path, text: str, *arguments: str) -> float:
    """The processor seconds of reading or writing in WebAssembly."""
    command = ["node", "speed.js", *arguments]
    return float(subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, check=True).stdout)


def in_web(folders: dict[str, Path], text: str, what: str, *arguments: str) -> dict[str, Callable[[], float]]:
    """The same work with all kinds of code."""
    return {
        f"WebAssembly, {kind}": partial(in_node, folder, text, what, kind.partition(",")[0], *arguments)
        for kind, folder in folders.items()
    }


def tagged(model: Any, programs: dict[str, str], text: str, path: Path, web: dict[str, Path]) -> None:
    """Labels of all sentences at hand, and of one after the other."""
    lines = text.splitlines(keepends=True)
    words = sum(map(len, model.predict(lines)))
    both: dict[str, Callable[[], float]] = {
        **each(programs, text.encode()),
        "C, with probabilities": lambda: child([programs["C"], "--probabilities"], text.encode()),
        "ensue": lambda: processor_seconds(lambda: list(model.prediction_lines(str(path), format="text"))),
        **in_web(web, text, "predict"),
    }
    in_turns("words labeled", words, both)
    some = lines[:SENTENCES]
    count = sum(map(len, model.predict(some)))
    # behind an empty line each sentence is labeled by itself
    alone: dict[str, Callable[[], float]] = {
        **each(programs, "\n".join(some).encode()),
        "ensue": lambda: processor_seconds(lambda: [model.predict([line]) for line in some]),
    }
    in_turns("words labeled, sentence by sentence", count, alone)


def read_and_written(
    model: Any, run: str, programs: dict[str, str], text: str, folder: Path, web: dict[str, Path]
) -> None:
    """Tokens of a text at hand, written ones, and ones that are read one by one."""
    ids, program = model.tokenizer.encode(text), programs["C"]
    works: dict[str, Callable[[], float]] = {
        **each(programs, text.encode()),
        "ensue": lambda: processor_seconds(lambda: sum(1 for _ in model.score(text))),
        **in_web(web, text, "score"),
    }
    some: dict[str, Callable[[], float]] = {
        "C": lambda: child([program, "--generate", str(TOKENS), "1"], b""),
        "ensue": lambda: processor_seconds(lambda: list(model.generate("", max_tokens=TOKENS, seed=1))),
        **in_web(web, "", "generate", str(TOKENS)),
    }
    in_turns("tokens scored", len(ids), works)
    in_turns("tokens generated", TOKENS, some)
    few = ids[:TOKENS]
    begin = model.tokenizer.decode(few).encode()
    ones: dict[str, Callable[[], float]] = {"C": lambda: child([program], begin)}
    if find_spec("onnxruntime") and model.model.context is None:  # a state that grows has no size before
        read = onnx_reader(run, folder / "onnx", few)
        ones["onnxruntime"] = lambda: processor_seconds(read)
    in_turns("tokens read one by one", len(few), ones)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run")
    parser.add_argument("text", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = options.text.read_text(encoding="utf-8")
    model: Any = ensue.load(options.run, device="cpu")
    reads_lines = hasattr(model, "predict")
    if not reads_lines:
        text = (text * (CHARACTERS // len(text) + 1))[:CHARACTERS]
    with tempfile.TemporaryDirectory() as name:
        programs = {}
        for what, precision in {"C": "f32", "C, f16": "f16", "C, int8": "int8"}.items():
            folder = Path(name) / precision / "model"
            *notes, _ = ensue.export_run(options.run, folder, "c", precision=precision)
            subprocess.run(["make", "-s"], cwd=folder, check=True)
            programs[what] = str(folder / "model")
            print(f"{what}: weights {(folder / 'model.weights').stat().st_size / 1024:,.0f} KiB", *notes)
        first: dict[str, list[float]] = {command: [] for command in [*programs.values(), "/bin/true"]}
        for _ in range(ROUNDS * 3):
            for command, found in first.items():
                start = time.perf_counter()
                child([command], (text.partition("\n")[0] if reads_lines else text[:1]).encode())
                found.append(time.perf_counter() - start)
        read = text.encode()[: MOST_IN_PIPE if reads_lines else None]
        arguments = ["--probabilities"] * hasattr(model, "label")
        for what, command in [*programs.items(), ("nothing", "/bin/true")]:
            print(f"{what}: first answer {median(first[command]) * 1000:.1f} ms after a process is asked for")
        for what, command in programs.items():
            most = peak([command, *arguments], read, ends=not reads_lines)
            print(f"{what}: largest memory {most:,} KiB, with a text of {len(read) / 1024:.0f} KiB")
        is_framed = hasattr(model, "seen")
        reads = not is_framed or model.seen.shape.is_sound
        web = exported_web(options.run, Path(name) / "web") if reads else {}
        if is_framed:
            framed(model, programs, text.splitlines(), web)
        elif hasattr(model, "prediction_lines") and hasattr(model, "label"):
            tagged(model, programs, text, options.text, web)
        elif hasattr(model, "coder"):
            transduced(model, programs["C"], text, options.text)
        elif reads_lines:
            classified(model, programs, text, web)
        else:
            read_and_written(model, options.run, programs, text, Path(name), web)


if __name__ == "__main__":
    main()
