"""Classifiers of few series: `classify-minirocket`, `classify-frames`, and MiniRocket of aeon.

    python benchmarks/few_series.py DATA OUT --sizes 50 100 300 [--sets NAME ...] [--draws 2] [--methods NAME ...]

DATA is the folder that `frames.py` describes. One set is spoken digits: recordings 0 to 4 of each speaker and digit are
for testing, the others for training. The other set is MNIST row by row (28 frames of 28 pixels): the first 8,000 images
are for training, the last 1,000 for testing. A draw is a random sample of `size` training series, the same for all
methods. MiniRocket of aeon (`pip install aeon`) has the same frames, but needs series of equal length, so recordings
are cut or padded with zeros. Its ridge classifier is scikit-learn's, with the strength chosen by leave-one-out
cross-validation. Each result is a line of OUT/results.jsonl; a finished result is not measured again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from few_examples import Result, measure_all, train_recipe
from frames import NUM_TEST_RECORDINGS, name_parts, unpack_recordings

from ensue.extensions.frames.data.series import LogMel, SeriesOptions
from ensue.extensions.frames.data.source import FrameSource

PEER = "aeon"
MAX_FRAMES = 100
"""The maximum number of frames (one second) of a recording for aeon."""


class Example(NamedTuple):
    """A series (T, d), its label, and its file if it is a recording."""

    frames: np.ndarray
    label: str
    path: Path | None


def read_digits(folder: Path, data: Path) -> tuple[list[Example], list[Example]]:
    """Unpack the recordings into `folder`. Return those for training and for testing."""
    sound = SeriesOptions(LogMel(floor=1e-10, top_db=43.0))
    parts: tuple[list[Example], list[Example]] = ([], [])
    for path in unpack_recordings(data, folder):
        digit, _, number = name_parts(path)
        parts[number < NUM_TEST_RECORDINGS].append(Example(next(iter(FrameSource(path, sound))).frames, digit, path))
    return parts


def read_images(data: Path) -> tuple[list[Example], list[Example]]:
    """Return the images for training and for testing."""
    images = FrameSource(data / "mnist_t10k" / "t10k-images-idx3-ubyte.gz", SeriesOptions())
    examples = [Example(image.frames, image.labels[0], None) for image in images]
    return examples[:8000], examples[9000:]


def write(examples: Sequence[Example], out: Path) -> Path:
    """Write a table of paths (recordings) or an archive of frames (images). Return its path."""
    frames, labels, paths = zip(*examples, strict=True)
    if any(paths):
        out = out.with_suffix(".csv")
        out.write_text("\n".join(["path,label", *map(",".join, zip(map(str, paths), labels, strict=True))]))
    else:
        out = out.with_suffix(".npz")
        np.savez(out, frames=np.concatenate(frames), lengths=[*map(len, frames)], labels=labels)
    return out


def measure_peer(train: Sequence[Example], test: Sequence[Example]) -> Result:
    """Train MiniRocket of aeon. Return its accuracy and seconds."""
    from aeon.transformations.collection.convolution_based import MiniRocket  # noqa: PLC0415
    from sklearn.linear_model import RidgeClassifierCV  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    start, longest = time.process_time(), max(len(example.frames) for example in (*train, *test))
    series = np.zeros((len(train) + len(test), train[0].frames.shape[1], min(MAX_FRAMES, longest)), np.float32)
    for row, example in zip(series, (*train, *test), strict=True):
        frames = example.frames[: row.shape[1]]
        row[:, : len(frames)] = frames.T
    classifier = RidgeClassifierCV(alphas=np.logspace(-3, 5, 17))
    model = make_pipeline(MiniRocket(random_state=0, n_jobs=1), StandardScaler(), classifier)
    model.fit(series[: len(train)], np.array([example.label for example in train]))
    seconds = time.process_time() - start
    right = model.predict(series[len(train) :]) == np.array([example.label for example in test])
    return {"score": float(right.mean()), "seconds": seconds}


def measure(name: str, method: str, train: Sequence[Example], test: Sequence[Example], folder: Path) -> Result:
    """Train a method. Return its accuracy and seconds."""
    if method == PEER:
        return measure_peer(train, test)
    return train_recipe(
        method, write(train, folder / "train"), write(test, folder / "test"), folder / "run", "accuracy"
    )


if __name__ == "__main__":
    methods = ["classify-minirocket", "classify-frames", *([PEER] if find_spec(PEER) else [])]
    with tempfile.TemporaryDirectory() as recordings:
        sets = {"digits": partial(read_digits, Path(recordings)), "mnist": read_images}
        measure_all(__doc__, sets, methods, measure, draws=2, tested=1_000, defaults=methods)
