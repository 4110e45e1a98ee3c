"""Classifiers of 50 to 300 series: `classify-minirocket` and `classify-frames`, and MiniRocket of aeon.

    python benchmarks/few_series.py DATA FOLDER [--draws 3]

DATA is as for `frames.py`. The training series are draws from the training part of spoken digits (recordings from
number 5 on) and from the first 8,000 images of MNIST (28 frames of 28). The test data are all recordings 0 to 4, and
the last 1,000 images. A line of FOLDER/results.jsonl is written for each model, and a second call goes on after it.
aeon's MiniRocket, with scikit-learn's ridge classifier, whose strength is chosen by leaving each series out, reads the
same frames, as series of one length: the beginnings of recordings, padded with zeros. It is left out if aeon is not
installed (`pip install aeon`).
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from frames import OFFICIAL, recordings, said, table

import ensue
from ensue.extensions.frames.data.series import LogMel, SeriesOptions
from ensue.extensions.frames.data.source import FrameSource

SIZES = (50, 100, 300)
MAX_FRAMES = 100
"""The number of frames to which recordings are cut or padded for aeon: one second."""
Series = tuple[list[np.ndarray], list[str], list[Path]]
"""Frames, labels, and the files of recordings; no files for images."""


def read(data: Path, folder: Path) -> dict[str, tuple[Series, Series]]:
    """Return the series for training and for testing of both sets."""
    sound = SeriesOptions(LogMel(floor=1e-10, top_db=43.0))
    spoken: tuple[Series, Series] = ([], [], []), ([], [], [])
    for path in recordings(data, folder):
        frames, labels, paths = spoken[said(path)[2] < OFFICIAL]
        frames.append(next(iter(FrameSource(path, sound))).frames)
        labels.append(said(path)[0])
        paths.append(path)
    images = list(FrameSource(data / "mnist_t10k" / "t10k-images-idx3-ubyte.gz", SeriesOptions()))
    train, test = (
        ([image.frames for image in part], [image.labels[0] for image in part], list[Path]())
        for part in (images[:8000], images[9000:])
    )
    return {"digits": spoken, "mnist": (train, test)}


def written(series: Series, out: Path) -> str:
    """Write a table of paths for recordings, or the frames of images. Return the path."""
    frames, labels, paths = series
    if paths:
        return table(paths, out.with_suffix(".csv"))
    np.savez(out, frames=np.concatenate(frames), lengths=[len(array) for array in frames], labels=labels)
    return str(out)


def of_aeon(train: Series, test: Series) -> float:
    """Return the accuracy of aeon's MiniRocket."""
    from aeon.transformations.collection.convolution_based import MiniRocket  # noqa: PLC0415
    from sklearn.linear_model import RidgeClassifierCV  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    def padded(frames: list[np.ndarray]) -> np.ndarray:
        length = min(MAX_FRAMES, max(map(len, frames)))
        return np.stack([np.pad(array[:length], ((0, length - len(array[:length])), (0, 0))).T for array in frames])

    strengths = np.logspace(-3, 5, 17)
    model = make_pipeline(MiniRocket(random_state=0, n_jobs=1), StandardScaler(), RidgeClassifierCV(alphas=strengths))
    both = padded([*train[0], *test[0]]).astype(np.float32)
    model.fit(both[: len(train[0])], np.array(train[1]))
    return float((model.predict(both[len(train[0]) :]) == np.array(test[1])).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    results = options.folder / "results.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for name, (train, test) in read(options.data, options.folder).items():
        tested = written(test, options.folder / f"{name}-test.npz")
        for draw in range(options.draws):
            order = np.random.default_rng(draw).permutation(len(train[0]))
            for size in SIZES:
                frames, labels, paths = train
                rows = order[:size].tolist()
                drawn = (
                    [frames[row] for row in rows],
                    [labels[row] for row in rows],
                    [paths[row] for row in rows if paths],
                )
                for method in ("classify-minirocket", "classify-frames", *(["aeon"] if find_spec("aeon") else [])):
                    key = {"data": name, "draw": draw, "size": size, "method": method}
                    if any(key.items() <= row.items() for row in done):
                        continue
                    start = time.process_time()
                    if method == "aeon":
                        row: dict[str, Any] = {**key, "accuracy": of_aeon(drawn, test)}
                    else:
                        path = written(drawn, options.folder / "train.npz")
                        model = ensue.train(method, train=path, out=options.folder / "run", overwrite=True, threads=1)
                        row = {**key, "accuracy": model.evaluate(tested).accuracy}
                    row["seconds"] = round(time.process_time() - start, 1)
                    done.append(row)
                    with results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    for name, size, method in sorted({(row["data"], row["size"], row["method"]) for row in done}):
        rows = [row for row in done if (row["data"], row["size"], row["method"]) == (name, size, method)]
        accuracy, seconds = (np.mean([row[key] for row in rows]) for key in ("accuracy", "seconds"))
        print(f"| {name} | {size} | {method} | {100 * accuracy:.1f} % | {seconds:.1f} | {len(rows)} |")


if __name__ == "__main__":
    main()
