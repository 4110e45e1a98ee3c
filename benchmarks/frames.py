"""Models of frames on real data: spoken digits, unseen speakers, sequences of digits, and images row by row.

    python benchmarks/frames.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--recipe NAME] [--keep FOLDER]

DATA is a folder with `fsdd/recordings.tar.xz` and `mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`. Runs train with
one thread. The test data are scored once.

- digits: recordings 0 to 4 of each speaker and digit are the official test data; a tenth of the others is for
  validation
- speaker-NAME: all recordings of one speaker are for testing, all others for training. The mean over the six speakers
  is the leave-one-speaker-out accuracy
- joined: two to five recordings of one speaker in a row, with a digit as the label of each frame; training and test
  recordings are those of `digits`. joined-crf: with a CRF. `exact` is the share of series whose sequence of digits is
  right after repeated labels are collapsed
- next-gaussian, next-mixture, next-storn, next-vrnn: prediction of the next frame of the recordings of `digits`, in
  nats per frame
- strips: one to five digits with their caption (`drawn_images.py`), by `read-glimpses`
- mnist: the 10,000 test images of MNIST, as 28 frames of 28 pixels. In file order, 8,000 images are for training, 1,000
  for validation and 1,000 for testing
- pixels-lstm, pixels-gru, pixels-mingru, pixels-clockwork, pixels-lru: the same images pixel by pixel, 784 frames of 1
- permuted-lru: as pixels-lru, with the pixels of all images in one random order. permuted-lru-moved: as permuted-lru,
  with eleven distorted copies of each training image

`linear` is the accuracy of logistic regression on the mean log-mel features of a recording.
"""

from __future__ import annotations

import argparse
import random
import tarfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from trials import Trial, print_scores, trial_arguments

from ensue.data.decoding import load_bytes
from ensue.extensions.frames.data.series import SeriesOptions
from ensue.extensions.frames.data.source import FrameSource

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
NEXT = {
    "next-gaussian": ("predict-frames",),
    "next-mixture": ("predict-frames", "head.components=20"),
    "next-storn": ("storn",),
    "next-vrnn": ("vrnn",),
}
"""The recipes that predict the next frame, and their settings."""
PIXELS = {
    **{
        f"pixels-{kind}": (f'encoder={{kind="{kind}",d_model=128,dropout=0.1}}', "features.noise=0", "train.epochs=6")
        for kind in ("lstm", "gru", "mingru", "clockwork")
    },
    **dict.fromkeys(("pixels-lru", "permuted-lru", "permuted-lru-moved"), (
        'encoder={kind="lru",d_model=96,num_layers=4,residual=true,dropout=0.1}', "directions.bidirectional=false",
        "head.pooling=[\"mean\"]", "features.noise=0", "train.seconds=4500", "train.weight_decay=0.05",
    )),
}  # fmt: skip
"""The settings for images pixel by pixel."""
SPOKEN = ("digits", *(f"speaker-{name}" for name in SPEAKERS), "joined", "joined-crf", *NEXT)
NAMES = (*SPOKEN, "strips", "mnist", *PIXELS)
NUM_TEST_RECORDINGS = 5
"""Recordings below this number are for testing."""
NUM_DISTORTED = 11
"""The number of distorted copies of each training image."""
ROUNDS = {"train": 4, "test": 1}
"""The number of series in which each recording occurs, approximately."""
PARTS = {"train": (0, 8_000), "valid": (8_000, 9_000), "test": (9_000, 10_000)}
MNIST = ("images-idx3", 16, 784), ("labels-idx1", 8, 1)
"""The names of IDX files, the bytes of their headers, and the bytes of an item."""


def trial_of(data: Path, name: str, folder: Path) -> Trial:
    """Write the data. Return the trial."""
    if name == "strips":
        from drawn_images import draw_strips  # noqa: PLC0415 (drawn_images imports frames)

        return Trial("read-glimpses", *draw_strips(data, folder))
    if name == "mnist" or name in PIXELS:
        images = write_mnist(data / "mnist_t10k", folder)
        return Trial("classify-frames", *images) if name == "mnist" else write_pixels(images, folder, name)
    train_files, test_files = divide_recordings(unpack_recordings(data, folder), name)
    if name.startswith("joined"):
        settings = ("head.kind=crf",) if name.endswith("crf") else ()
        train = write_joined(train_files, folder / "joined-train.npz", ROUNDS["train"])
        return Trial(
            "tag-frames",
            train,
            "",
            write_joined(test_files, folder / "joined-test.npz", ROUNDS["test"]),
            settings,
            exact_share,
        )
    train, test = (
        write_table(files, folder / f"{name}-{part}.csv")
        for part, files in (("train", train_files), ("test", test_files))
    )
    if name in NEXT:
        recipe, *settings = NEXT[name]
        return Trial(recipe, train, "", test, settings, importance_scores)
    settings = ("data.valid_fraction=0.0",) if name.startswith("speaker") else ()
    return Trial(
        "classify-frames", train, "", test, settings, lambda model, path: {"linear": linear_accuracy(train, path)}
    )


def importance_scores(model: Any, path: str) -> dict[str, Any]:
    """Return the scores with 20 samples of the latent variables, if the model has latent variables."""
    return dict(model.evaluate(path, draws=20).as_json())


def unpack_recordings(data: Path, folder: Path) -> list[Path]:
    """Unpack the recordings into a folder. Return their paths."""
    if not (folder / "recordings").exists():
        with tarfile.open(data / "fsdd" / "recordings.tar.xz") as archive:
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return sorted((folder / "recordings").glob("*.wav"))


def name_parts(path: Path) -> tuple[str, str, int]:
    """Return the digit, the speaker and the number of a recording."""
    digit, speaker, number = path.stem.split("_")
    return digit, speaker, int(number)


def divide_recordings(files: Sequence[Path], name: str) -> tuple[list[Path], list[Path]]:
    """Return the recordings for training and for testing."""
    speaker = name.partition("-")[2] if name.startswith("speaker") else ""
    is_test = [
        name_parts(path)[1] == speaker if speaker else name_parts(path)[2] < NUM_TEST_RECORDINGS for path in files
    ]
    parts = [[path for path, test in zip(files, is_test, strict=True) if test == wanted] for wanted in (False, True)]
    return parts[0], parts[1]


def write_table(files: Sequence[Path], out: Path) -> str:
    """Write a table of paths and labels. Return its path."""
    rows = [f"{path.relative_to(out.parent)},{name_parts(path)[0]}" for path in files]
    out.write_text("\n".join(["path,label", *rows, ""]))
    return str(out)


def write_joined(files: Sequence[Path], out: Path, rounds: int) -> str:
    """Write series of two to five recordings, with the digit of each frame. Return the path."""
    frames, lengths, labels = [], [], []
    for group in group_recordings(files, rounds):
        parts = [next(iter(FrameSource(path, SeriesOptions()))).frames for path in group]
        frames += parts
        lengths.append(sum(map(len, parts)))
        labels += [name_parts(path)[0] for path, part in zip(group, parts, strict=True) for _ in part]
    np.savez(out, frames=np.concatenate(frames), lengths=lengths, labels=labels)
    return str(out)


def group_recordings(files: Sequence[Path], rounds: int) -> Iterator[list[Path]]:
    """Yield groups of two to five recordings of one speaker. In a round, each recording is in at most one group."""
    generator = random.Random(0)
    for _ in range(rounds):
        for speaker in SPEAKERS:
            remaining = [path for path in files if name_parts(path)[1] == speaker]
            generator.shuffle(remaining)
            while len(remaining) > 1:
                size = generator.randint(2, 5)
                yield remaining[:size]
                remaining = remaining[size:]


def exact_share(model: Any, path: str) -> dict[str, float]:
    """Return the share of series with the right sequence of digits."""
    gold = list(model.source(path))
    pairs = zip(gold, model.predict(gold), strict=True)
    right = [collapse(series.labels) == collapse(answer.labels) for series, answer in pairs]
    return {"exact": float(np.mean(right))}


def collapse(labels: Sequence[str]) -> list[str]:
    """Return the labels with each run of equal labels as one label."""
    return [label for label, _ in groupby(labels)]


def linear_accuracy(train: str, test: str) -> float:
    """Return the accuracy of logistic regression on mean log-mel features."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(*mean_frames(train))
    return float(model.score(*mean_frames(test)))


def mean_frames(path: str) -> tuple[Any, list[str]]:
    """Return the mean frame and the label of each series."""
    source = list(FrameSource(path, SeriesOptions()))
    return np.stack([series.frames.mean(0) for series in source]), [series.labels[0] for series in source]


def write_mnist(source: Path, folder: Path) -> list[str]:
    """Write the three parts as IDX files of images and labels. Return the paths of the images."""
    for name, header, size in MNIST:
        content = load_bytes(source / f"t10k-{name}-ubyte.gz")
        for part, (start, stop) in PARTS.items():
            count = (stop - start).to_bytes(4, "big")
            items = content[header + start * size : header + stop * size]
            (folder / f"{part}-{name}-ubyte").write_bytes(content[:4] + count + content[8:header] + items)
    return [str(folder / f"{part}-images-idx3-ubyte") for part in PARTS]


def write_pixels(images: Sequence[str], folder: Path, name: str) -> Trial:
    """Write images as series of pixels, for "permuted" in one random order. Return the trial."""
    kind, *variant = name.split("-")
    order = np.random.default_rng(0).permutation(784) if kind == "permuted" else np.arange(784)
    paths = []
    for part, path in zip(PARTS, images, strict=True):
        series = list(FrameSource(path, SeriesOptions()))
        frames, labels = np.stack([image.frames for image in series]), [image.labels[0] for image in series]
        if part == "train" and "moved" in variant:
            frames, labels = distort(frames), labels * (1 + NUM_DISTORTED)
        paths.append(str(folder / "-".join((kind, *variant[1:], f"{part}.npz"))))
        np.savez(paths[-1], frames=frames.reshape(-1, 784, 1)[:, order], labels=labels)
    train, valid, test = paths
    return Trial("classify-frames", train, valid, test, PIXELS[name])


def distort(images: np.ndarray) -> np.ndarray:
    """Return the images (N, 28, 28), followed by their distorted copies.

    A copy is shifted by up to 2 pixels, rotated by up to 12 degrees, scaled by up to 10 %, and elastically distorted by
    about one pixel. Source: elastic distortions, Simard et al. 2003.
    """
    generator = torch.Generator().manual_seed(0)

    def between(low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator)

    originals = torch.from_numpy(images)[:, None]
    copies, count = [originals], len(images)
    for _ in range(NUM_DISTORTED):
        angle, size = between(-np.pi / 15, np.pi / 15, count), between(0.9, 1.1, count)
        rotation = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), 1) / size[:, None]
        shift = between(-2 / 14, 2 / 14, count, 2, 1)
        affine = torch.cat((rotation.view(count, 2, 2), shift), 2)
        places = functional.affine_grid(affine, list(originals.shape), align_corners=False)
        bends = functional.interpolate(torch.randn(count, 2, 5, 5, generator=generator) / 14, size=28, mode="bicubic")
        copies.append(functional.grid_sample(originals, places + bends.movedim(1, 3), align_corners=False))
    return torch.cat(copies)[:, 0].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    arguments = trial_arguments(parser, NAMES)
    print_scores(arguments, lambda name, folder: trial_of(arguments.data, name, folder))


if __name__ == "__main__":
    main()
