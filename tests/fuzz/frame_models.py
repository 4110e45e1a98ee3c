"""Cases of models that read frames, such as images that get captions: files that are damaged or odd, and the pages,
answers and trainings that come of them.
"""

from __future__ import annotations

import io
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from fuzz import odd
from fuzz.case import Case
from fuzz.damage import damaged
from fuzz.frame_files import KINDS as ANY_FRAMES
from fuzz.frame_files import lying
from fuzz.frame_runs import CAPTIONING, COLUMNS, DRAWING, GLIMPSES, QUESTIONS, ROWS, settings
from fuzz.material import TINY, Material
from fuzz.places import put
from fuzz.values import as_json

SERIES = {
    "frame-classification": "classify-frames",
    "frame-labeling": "tag-frames",
    "frame-prediction": "predict-frames",
}
RECIPES = {CAPTIONING: "caption-lstm", GLIMPSES: "read-glimpses", DRAWING: "draw", **SERIES}
GENERATING = {
    DRAWING: {"--samples": ["1", "3", "0"], "--frames": ["1", "2", "99"]},
    "frame-prediction": {
        "--samples": ["1", "3", "0"],
        "--frames": ["1", "9"],
        "--temperature": ["0", "1", "-1"],
        "--prompt": ["images.npz[0]", "0.png", "x"],
    },
}
USUAL = ["one", "two", "two one"]
CAPTIONS = ["one two one two one two one two", "", " ", "three", "é\u202e", "x" * 500]
OUT = ["out.npz", "out.npy", "out.csv", "out.png", "out.gif", "out.svg", "out.x", "out"]


def captions(choose: Random, case: Case, material: Material) -> None:
    _arrange(choose, case, material, CAPTIONING)


def glimpses(choose: Random, case: Case, material: Material) -> None:
    _arrange(choose, case, material, GLIMPSES)


def paintings(choose: Random, case: Case, material: Material) -> None:
    _arrange(choose, case, material, DRAWING)


def series(choose: Random, case: Case, material: Material) -> None:
    _arrange(choose, case, material, choose.choice(list(SERIES)))


def _arrange(choose: Random, case: Case, material: Material, task: str) -> None:
    place = _files(choose, case.folder, task)
    run = str(material.run(choose, task).path)
    if choose.random() < 0.3:
        case.arguments = ["train", RECIPES[task], "--train", place, "--out", "out", *TINY, *settings(task)]
        case.arguments += _odd_setting(choose, task) if choose.random() < 0.3 else []
        case.may_change, case.may_talk = {"out"}, True
    elif task in GENERATING and choose.random() < 0.4:
        case.arguments = ["generate", run, "--out", choose.choice(OUT), "--seed", "1"]
        for option, values in GENERATING[task].items():
            case.arguments += [option, choose.choice(values)] if choose.random() < 0.5 else []
    else:
        command = choose.choice(QUESTIONS[task])
        case.arguments = [command, run, place]
        if command == "inspect":
            number = choose.choice(["", "[0]", "[1]", "[99]", "[-1]"])
            case.arguments = [command, run, place + number]
            case.arguments += (
                ["--target", choose.choice(CAPTIONS)] if task == CAPTIONING and choose.random() < 0.4 else []
            )
        elif choose.random() < 0.5:
            case.arguments.append("--json")


def _odd_setting(choose: Random, task: str) -> list[str]:
    """A size that may not fit the images."""
    keys = {
        CAPTIONING: ["grid.halvings", "grid.colors", "decoder.d_model", "train.samples"],
        GLIMPSES: ["glimpses.size", "glimpses.scales", "glimpses.view", "glimpses.each", "glimpses.colors"],
        DRAWING: ["canvas.read", "canvas.write", "canvas.colors", "canvas.glimpses", "canvas.d_latent"],
    }
    others = ["encoder.d_model", "features.bands", "head.components", "latent.size"]
    return ["--set", f"{choose.choice(keys.get(task, others))}={choose.choice([0, 1, 2, 3, 5, 9, 40, -1, 10**9])}"]


def _files(choose: Random, folder: Path, task: str) -> str:
    """A file, or a few with a table of their captions; what names them."""
    if choose.random() < 0.15:
        suffix, make = choose.choice(ANY_FRAMES)
        put(folder / f"0{suffix}", damaged(choose, make(choose), most=1))
        return f"0{suffix}"
    if choose.random() < 0.5:
        content = _arrays(choose, task)
        put(folder / "images.npz", _spoiled(choose, content))
        return "images.npz"
    names = [f"{number}.png" for number in range(choose.randint(1, 4))]
    for name in names:
        put(folder / name, _spoiled(choose, _png(choose)))
    column = choose.choice(["caption", "label", "label", "label"])
    rows = [f"{choose.choice(names)},{_caption(choose)}" for _ in range(choose.randint(0, 6))]
    table = "\n".join([f"path,{column}", *rows, ""]).encode()
    put(folder / "table.csv", _spoiled(choose, table))
    return choose.choice(["table.csv", "table.csv", "*.png", "."])


def _spoiled(choose: Random, content: bytes) -> bytes:
    chance = choose.random()
    return content if chance < 0.85 else damaged(choose, content, most=2) if chance < 0.95 else lying(choose, content)


def _caption(choose: Random) -> str:
    return choose.choice(USUAL if choose.random() < 0.9 else CAPTIONS)


def _shape(choose: Random) -> tuple[int, int]:
    """Mostly that of the training data."""
    if choose.random() < 0.9:
        return ROWS, COLUMNS
    return choose.choice([(ROWS, 3 * COLUMNS), (1, COLUMNS), (ROWS, 1), (1, 1), (40, 40), (3, 3), (ROWS, COLUMNS + 1)])


def _arrays(choose: Random, task: str) -> bytes:
    generator, count = np.random.default_rng(choose.randrange(10**6)), choose.randint(1, 6)
    arrays: dict[str, Any] = {"frames": generator.random((count, *_shape(choose))).astype(np.float32)}
    if choose.random() < 0.1:
        arrays["frames"].flat[0] = choose.choice([np.nan, np.inf, -1, 2, 3e38, 1e-45])
    if choose.random() < 0.9:
        every = arrays["frames"].shape[1] * count
        usual = every if task == "frame-labeling" else count
        size = usual if choose.random() < 0.9 else choose.choice([1, count, every])
        arrays["labels"] = [_caption(choose) for _ in range(size)]
    if choose.random() < 0.05:
        arrays[odd.string(choose) or "x"] = np.zeros(2)
    file = io.BytesIO()
    try:
        np.savez(file, **arrays)
    except Exception:  # a name that no archive takes
        return as_json(choose, {"frames": []})
    return file.getvalue()


def _png(choose: Random) -> bytes:
    file, (rows, columns) = io.BytesIO(), _shape(choose)
    values = np.random.default_rng(choose.randrange(10**6)).integers(0, 256, (rows, columns)).astype(np.uint8)
    Image.fromarray(values).convert("L" if choose.random() < 0.9 else choose.choice(["RGB", "1", "P"])).save(
        file, "png"
    )
    return file.getvalue()
