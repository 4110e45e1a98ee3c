"""Classifiers of few series: `classify-minirocket`, `classify-frames`, and MiniRocket of aeon.

    python benchmarks/few_series.py DATA OUT --sizes 50 100 300 [--sets NAME ...] [--draws 2] [--methods NAME ...]

DATA is as for `frames.py`. Sets: spoken digits, trained with recordings from number 5 on and tested with all recordings
0 to 4; and MNIST row by row (28 frames of 28), trained with draws of the first 8,000 images and tested with the last
1,000. A draw takes `size` training series at random, the same for all methods. aeon's MiniRocket (`pip install aeon`),
with scikit-learn's ridge classifier, whose strength is chosen by leaving each series out, reads the same frames, as
series of one length: the beginnings of recordings, padded with zeros. Each result is a line of OUT/results.jsonl; a
result that is there is not measured again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from few_examples import Result, measure_all, train_recipe
from frames import OFFICIAL, name_parts, recordings

from ensue.extensions.frames.data.series import LogMel, SeriesOptions
from ensue.extensions.frames.data.source import FrameSource

PEER = "aeon"
MAX_FRAMES = 100
"""The number of frames to which recordings are cut or padded for aeon: one second."""


class Example(NamedTuple):
    """A series (T, d), its label, and the file of a recording."""

    frames: np.ndarray
    label: str
    path: Path | None


def read_digits(data: Path) -> tuple[list[Example], list[Example]]:
    """Return the recordings for training and for testing."""
    sound = SeriesOptions(LogMel(floor=1e-10, top_db=43.0))
    parts: tuple[list[Example], list[Example]] = ([], [])
    for path in recordings(data, Path(tempfile.mkdtemp())):
        example = Example(next(iter(FrameSource(path, sound))).frames, name_parts(path)[0], path)
        parts[name_parts(path)[2] < OFFICIAL].append(example)
    return parts


def read_images(data: Path) -> tuple[list[Example], list[Example]]:
    """Return the images for training and for testing."""
    images = FrameSource(data / "mnist_t10k" / "t10k-images-idx3-ubyte.gz", SeriesOptions())
    examples = [Example(image.frames, image.labels[0], None) for image in images]
    return examples[:8000], examples[9000:]


def write(examples: Sequence[Example], out: Path) -> Path:
    """Write a table of paths for recordings, or the frames of images. Return the path."""
    frames, labels, paths = zip(*examples, strict=True)
    if any(paths):
        out = out.with_suffix(".csv")
        out.write_text("\n".join(["path,label", *map(",".join, zip(map(str, paths), labels, strict=True))]))
    else:
        out = out.with_suffix(".npz")
        np.savez(out, frames=np.concatenate(frames), lengths=[*map(len, frames)], labels=labels)
    return out


def measure_peer(train: Sequence[Example], test: Sequence[Example]) -> Result:
    """Fit aeon's MiniRocket, and return its accuracy and seconds."""
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
    """Fit a method, and return its accuracy and seconds."""
    if method == PEER:
        return measure_peer(train, test)
    files = [write(examples, folder / part) for part, examples in (("train", train), ("test", test))]
    return train_recipe(method, *files, folder / "run", "accuracy")


if __name__ == "__main__":
    methods = ["classify-minirocket", "classify-frames", *([PEER] if find_spec(PEER) else [])]
    sets = {"digits": read_digits, "mnist": read_images}
    measure_all(__doc__, sets, methods, measure, draws=2, tested=1_000, defaults=methods)
