"""Cases of frames: files of every format, damaged or with wrong sizes, for readers, training and models."""

import io
import struct
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import save

from ensue.extensions.frames.data.series import SeriesOptions
from ensue.extensions.frames.data.source import FrameSource
from fuzz import frame_runs
from fuzz.case import Case
from fuzz.damage import damaged
from fuzz.material import TINY, Material
from fuzz.places import put

SIZES = [0, 1, 2, 255, 256, 65_535, 1 << 16, 10**9, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
"""Sizes for headers."""


def arrange(choose: Random, case: Case, material: Material) -> None:
    """Arrange up to three files of a format, or the data of a task, for a reader, for training or for a model."""
    task, (suffix, make) = choose.choice(list(frame_runs.TABLES)), choose.choice(KINDS)
    if of_task := choose.random() < 0.5:
        suffix = ".npz"
        contents = [frame_runs.write(case.folder / "0.npz", task).read_bytes()]
    else:
        contents = [make(choose) for _ in range(choose.choice([1, 1, 3]))]
    for number, content in enumerate(contents):
        is_intact = of_task and choose.random() < 0.4
        spoiled = with_size(choose, content) if choose.random() < 0.5 else damaged(choose, content, max_changes=2)
        put(case.folder / f"{number}{suffix}", content if is_intact else spoiled)
    location = choose.choice([f"0{suffix}", f"*{suffix}"])
    run = str(material.run(choose, task).path)
    match choose.randrange(5):
        case 0:
            case.action = partial(_read, location)
        case 1:
            case.arguments = ["data", location]
        case 2:
            case.arguments = ["train", RECIPES[task], "--train", location, "--out", "out", *TINY]
            case.arguments += [*frame_runs.settings(task), "--set", choose.choice(SETTINGS)]
            case.may_change, case.writes_progress = {"out"}, True
        case 3 if task in (frame_runs.DRAWING, "frame-prediction"):
            out = choose.choice(["out.npz", "out.csv", "out.png", "out.gif", "out.x", "out"])
            options = choose.choice(
                [["--samples", "0"], ["--frames", "9"], ["--temperature", "-1"], ["--prompt", location]]
            )
            case.arguments = ["generate", run, "--out", out, "--seed", "1", *options]
        case _:
            command, location = (
                choose.choice(frame_runs.QUESTIONS[task]),
                location + choose.choice(["", "[0]", "[99]", "[-1]"]),
            )
            case.arguments = [command, run, location, *(["--json"] if command != "inspect" else [])]


RECIPES = {
    "frame-classification": "classify-frames", "frame-labeling": "tag-frames", "frame-prediction": "predict-frames",
    frame_runs.CAPTIONING: "caption-lstm", frame_runs.GLIMPSES: "read-glimpses", frame_runs.DRAWING: "draw",
}  # fmt: skip
SETTINGS = [
    "encoder.d_model=3", "features.bands=0", "latent.size=40", "grid.halvings=9", "grid.colors=3", "glimpses.size=40",
    "glimpses.each=-1", "canvas.read=9", "canvas.colors=2", "decoder.d_model=5",
]  # fmt: skip
"""Sizes that may not fit the data or the task."""


def _read(place: str) -> None:
    for series in FrameSource(place, SeriesOptions(missing="mean")):
        assert series.frames.ndim == 2
        assert series.frames.size
        assert not np.isinf(series.frames).any()
        assert not series.per_frame or len(series.labels) == len(series.frames)


def with_size(choose: Random, content: bytes) -> bytes:
    """Write another size into the first bytes of the content."""
    index, size = choose.randrange(min(64, len(content))), choose.choice(SIZES)
    return content[:index] + struct.pack(choose.choice(["<I", ">I"]), size) + content[index + 4 :]


def numbers(choose: Random) -> Any:
    """Return frames (T, d), sometimes with odd values."""
    frames = np.random.default_rng(choose.randrange(10**6)).normal(size=(choose.randint(0, 9), choose.randint(1, 3)))
    if frames.size and choose.random() < 0.2:
        frames[0, 0] = choose.choice([np.nan, np.inf, 1e300, 5e-324])
    kind = choose.choice([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_])
    with np.errstate(all="ignore"):
        return frames.astype(kind)


def _wav(choose: Random) -> bytes:
    samples = bytes(choose.randrange(256) for _ in range(4 * choose.randint(0, 300)))
    channels, width = choose.choice([1, 2]), choose.choice([1, 2, 4])
    head = struct.pack("<HHIIHH", 1, channels, 8000, 8000 * channels * width, channels * width, 8 * width)
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _npy(choose: Random) -> bytes:
    file = io.BytesIO()
    np.save(file, numbers(choose))
    content = file.getvalue()
    if choose.random() < 0.8:
        return content
    shape = choose.choice([b"(9999999, 0, 3)", b"(4000000000, 9)", b"(-1, 2)"])
    return content.replace(content[content.find(b"(") : content.find(b")") + 1], shape)


def _npz(choose: Random) -> bytes:
    file = io.BytesIO()
    arrays = _arrays(choose)
    (np.savez if choose.random() < 0.5 else np.savez_compressed)(file, **arrays)
    return file.getvalue()


def _safetensors(choose: Random) -> bytes:
    return save({name: np.ascontiguousarray(array) for name, array in _arrays(choose).items()})


def _arrays(choose: Random) -> dict[str, Any]:
    arrays = {"frames": numbers(choose)}
    size = len(arrays["frames"])
    if choose.random() < 0.5:
        arrays["lengths"] = np.array([size - size // 2, size // 2], choose.choice([np.int64, np.uint64, np.int8]))
    if choose.random() < 0.5:
        arrays["labels"] = np.arange(choose.choice([1, 2, size]))
    if choose.random() < 0.3:
        arrays["rate"] = np.array(choose.choice([100.0, 0.0, -1.0, 5e-324, np.nan]))
    return arrays


def _idx(choose: Random) -> bytes:
    shape = [choose.randint(0, 4) for _ in range(choose.choice([3, 3, 3, 1, 2]))]
    content = bytes(choose.randrange(256) for _ in range(int(np.prod(shape))))
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + content


def _png(choose: Random) -> bytes:
    file = io.BytesIO()
    Image.new(choose.choice(["L", "RGB", "RGBA", "P", "1", "I;16"]), (choose.randint(1, 9), 3)).save(file, "png")
    return file.getvalue()


def _csv(choose: Random) -> bytes:
    odd = ["", "1", "nan", "inf", "1e400", "x", "2026-01-01T00:00:00"]
    rows = [
        f"{series},{time},{choose.gauss(0, 1) if choose.random() < 0.9 else choose.choice(odd)},{'ab'[series % 2]}"
        for series in range(choose.randint(0, 4))
        for time in range(choose.randint(0, 4))
    ]
    return "\n".join(["series,time,x,label", *rows, ""]).encode()


KINDS: list[tuple[str, Callable[[Random], bytes]]] = [
    (".wav", _wav), (".npy", _npy), (".npz", _npz), (".safetensors", _safetensors), ("-idx3-ubyte", _idx),
    (".png", _png), (".csv", _csv),
]  # fmt: skip
