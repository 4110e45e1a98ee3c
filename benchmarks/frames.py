"""Models of frames on real data: spoken digits, a speaker never heard, digits in a row, and images row by row.

    python benchmarks/frames.py DATA NAME ... [--seeds 1] [--set KEY=VALUE] [--recipe NAME] [--keep FOLDER]

DATA is a folder with `fsdd/recordings.tar.xz` and `mnist_t10k/t10k-{images-idx3,labels-idx1}-ubyte.gz`. Runs train with
one thread. The test data are scored once.

- digits: recordings 0 to 4 of each speaker and digit are the official test part; a tenth of the others is validation
- speaker-NAME: all recordings of a speaker are for testing, and all others for training. The mean of the six is that
  of "leave one out"
- joined: two to five recordings of one speaker in a row, of the same parts, with a digit for every frame; joined-crf:
  with a CRF. `exact` is the share of series whose digits are right if equal neighbors count once, in both
- next-gaussian, next-mixture, next-storn, next-vrnn: the next frame of the recordings of `digits`, in nats per frame
- strips: one to five digits and their caption, by `read-glimpses` (`drawn_images.py` draws them)
- mnist: the 10,000 images of MNIST's test part, 8,000 / 1,000 / 1,000 by order; 28 frames of 28
- pixels-lstm, pixels-gru, pixels-mingru, pixels-clockwork, pixels-lru: the same images pixel by pixel, 784 frames of 1
- permuted-lru: so, but the pixels of all images in one random order; permuted-lru-moved: and the images for training
  also moved, turned and bent a little, eleven times each

`linear` is the accuracy of logistic regression on the mean of a recording's log-mel features.
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
"""The recipes of models of the next frame, and their settings."""
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
"""Images pixel by pixel, and the settings."""
SPOKEN = ("digits", *(f"speaker-{name}" for name in SPEAKERS), "joined", "joined-crf", *NEXT)
NAMES = (*SPOKEN, "strips", "mnist", *PIXELS)
OFFICIAL = 5
"""Recordings below this number are for testing."""
MOVED = 11
"""How often each image for training is moved."""
ROUNDS = {"train": 4, "test": 1}
"""How often each recording is joined with others."""
PARTS = {"train": (0, 8_000), "valid": (8_000, 9_000), "test": (9_000, 10_000)}
MNIST = ("images-idx3", 16, 784), ("labels-idx1", 8, 1)
"""The names of idx files, the bytes of their heads, and those of an item."""


def trial_of(data: Path, name: str, folder: Path) -> Trial:
    """The data of that name, written into the folder."""
    if name == "strips":
        from drawn_images import strips  # noqa: PLC0415 (it imports this file)

        return Trial("read-glimpses", *strips(data, folder))
    if name == "mnist" or name in PIXELS:
        images = mnist(data / "mnist_t10k", folder)
        return Trial("classify-frames", *images) if name == "mnist" else pixels(images, folder, name)
    train_files, test_files = divided(recordings(data, folder), name)
    if name.startswith("joined"):
        settings = ("head.kind=crf",) if name.endswith("crf") else ()
        train = joined(train_files, folder / "joined-train.npz", ROUNDS["train"])
        return Trial(
            "tag-frames", train, "", joined(test_files, folder / "joined-test.npz", ROUNDS["test"]), settings, exact
        )
    train, test = (
        table(files, folder / f"{name}-{part}.csv") for part, files in (("train", train_files), ("test", test_files))
    )
    if name in NEXT:
        recipe, *settings = NEXT[name]
        return Trial(recipe, train, "", test, settings, by_importance)
    settings = ("data.valid_fraction=0.0",) if name.startswith("speaker") else ()
    return Trial("classify-frames", train, "", test, settings, lambda model, path: {"linear": linear(train, path)})


def by_importance(model: Any, path: str) -> dict[str, Any]:
    """The scores by 20 draws of the latent variables, if the model has any."""
    return dict(model.evaluate(path, draws=20).as_json())


def recordings(data: Path, folder: Path) -> list[Path]:
    """The recordings, unpacked."""
    if not (folder / "recordings").exists():
        with tarfile.open(data / "fsdd" / "recordings.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return sorted((folder / "recordings").glob("*.wav"))


def name_parts(path: Path) -> tuple[str, str, int]:
    """Digit, speaker and number of a recording."""
    digit, speaker, number = path.stem.split("_")
    return digit, speaker, int(number)


def divided(files: Sequence[Path], name: str) -> tuple[list[Path], list[Path]]:
    """The files for training and for testing."""
    speaker = name.partition("-")[2] if name.startswith("speaker") else ""
    is_test = [name_parts(path)[1] == speaker if speaker else name_parts(path)[2] < OFFICIAL for path in files]
    parts = [[path for path, test in zip(files, is_test, strict=True) if test == wanted] for wanted in (False, True)]
    return parts[0], parts[1]


def table(files: Sequence[Path], out: Path) -> str:
    """A table of paths and labels."""
    rows = [f"{path.relative_to(out.parent)},{name_parts(path)[0]}" for path in files]
    out.write_text("\n".join(["path,label", *rows, ""]))
    return str(out)


def joined(files: Sequence[Path], out: Path, rounds: int) -> str:
    """Arrays of series of two to five recordings, with the digit of each frame."""
    frames, lengths, labels = [], [], []
    for group in groups(files, rounds):
        parts = [next(iter(FrameSource(path, SeriesOptions()))).frames for path in group]
        frames += parts
        lengths.append(sum(map(len, parts)))
        labels += [name_parts(path)[0] for path, part in zip(group, parts, strict=True) for _ in part]
    np.savez(out, frames=np.concatenate(frames), lengths=lengths, labels=labels)
    return str(out)


def groups(files: Sequence[Path], rounds: int) -> Iterator[list[Path]]:
    """Two to five recordings of a speaker; each recording is in about one group of a round."""
    choose = random.Random(0)
    for _ in range(rounds):
        for speaker in SPEAKERS:
            rest = [path for path in files if name_parts(path)[1] == speaker]
            choose.shuffle(rest)
            while len(rest) > 1:
                size = choose.randint(2, 5)
                yield rest[:size]
                rest = rest[size:]


def exact(model: Any, path: str) -> dict[str, float]:
    """The share of series whose digits are right, in their order."""
    series = list(model.source(path))
    found = model.predict(series)
    right = [runs(one.labels) == runs(answer.labels) for one, answer in zip(series, found, strict=True)]
    return {"exact": float(np.mean(right))}


def runs(labels: Sequence[str]) -> list[str]:
    """The labels without repetitions."""
    return [label for label, _ in groupby(labels)]


def linear(train: str, test: str) -> float:
    """The accuracy of logistic regression on mean log-mel features."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(*averaged(train))
    return float(model.score(*averaged(test)))


def averaged(path: str) -> tuple[Any, list[str]]:
    """The mean frame and the label of each series."""
    series = list(FrameSource(path, SeriesOptions()))
    return np.stack([one.frames.mean(0) for one in series]), [one.labels[0] for one in series]


def mnist(source: Path, folder: Path) -> list[str]:
    """The three parts as idx files, images and labels side by side."""
    for name, head, size in MNIST:
        content = load_bytes(source / f"t10k-{name}-ubyte.gz")
        for part, (start, stop) in PARTS.items():
            count = (stop - start).to_bytes(4, "big")
            items = content[head + start * size : head + stop * size]
            (folder / f"{part}-{name}-ubyte").write_bytes(content[:4] + count + content[8:head] + items)
    return [str(folder / f"{part}-images-idx3-ubyte") for part in PARTS]


def pixels(images: Sequence[str], folder: Path, name: str) -> Trial:
    """The images as series of pixels; "permuted" ones all in one random order."""
    kind, *others = name.split("-")
    order = np.random.default_rng(0).permutation(784) if kind == "permuted" else np.arange(784)
    paths = []
    for part, path in zip(PARTS, images, strict=True):
        series = list(FrameSource(path, SeriesOptions()))
        found, labels = np.stack([one.frames for one in series]), [one.labels[0] for one in series]
        if part == "train" and "moved" in others:
            found, labels = moved(found), labels * (1 + MOVED)
        paths.append(str(folder / "-".join((kind, *others[1:], f"{part}.npz"))))
        np.savez(paths[-1], frames=found.reshape(-1, 784, 1)[:, order], labels=labels)
    return Trial("classify-frames", *paths, PIXELS[name])


def moved(images: np.ndarray) -> np.ndarray:
    """The images (N, 28, 28), and behind them as many for each round: shifted by up to 2 pixels, turned by up to 12
    degrees, larger or smaller by up to a tenth, and bent by a pixel or so.

    Source: elastic distortions, Simard et al. 2003.
    """
    chance = torch.Generator().manual_seed(0)

    def between(low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(shape, generator=chance)

    given = torch.from_numpy(images)[:, None]
    rounds, count = [given], len(images)
    for _ in range(MOVED):
        angle, size = between(-np.pi / 15, np.pi / 15, count), between(0.9, 1.1, count)
        turned = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), 1) / size[:, None]
        shifted = between(-2 / 14, 2 / 14, count, 2, 1)
        affine = torch.cat((turned.view(count, 2, 2), shifted), 2)
        places = functional.affine_grid(affine, list(given.shape), align_corners=False)
        bends = functional.interpolate(torch.randn(count, 2, 5, 5, generator=chance) / 14, size=28, mode="bicubic")
        rounds.append(functional.grid_sample(given, places + bends.movedim(1, 3), align_corners=False))
    return torch.cat(rounds)[:, 0].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    given = trial_arguments(parser, NAMES)
    print_scores(given, lambda name, folder: trial_of(given.data, name, folder))


if __name__ == "__main__":
    main()
