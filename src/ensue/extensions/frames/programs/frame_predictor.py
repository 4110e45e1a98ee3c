"""A model of the next frame with onnxruntime and numpy.

python predict.py FILE ...    prints name and mean of the frame behind each series, as `ensue predict` does
"""

import sys

import numpy as np
from frames import config, model, series

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def start(rows=1):
    """The state before the first frame: zeros, and of attention nothing."""
    leaves = {x.name: x for x in model.get_inputs() if x.name.startswith("state")}
    sizes = {"batch": rows, "past": 0}
    return {name: np.zeros([sizes.get(n, n) for n in x.shape], TYPES[x.type]) for name, x in leaves.items()}


def read(frames, state):
    """The weights (B, T, K), means and deviations (B, T, K, d) of what comes behind each frame (B, T, d), and the
    state. A frame of means stands before the first one.
    """
    weights, means, deviations, *leaves = model.run(None, {"frames": frames.astype(np.float32), **state})
    return (weights, means, deviations), dict(zip(state, leaves, strict=True))


def predict(frames):
    """The mean of the frame behind a series (T, d)."""
    first = np.array([config["mean"]], np.float32)
    (weights, means, _), _ = read(np.concatenate((first, frames))[None], start())
    return (weights[0, -1, :, None] * means[0, -1]).sum(0)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
    for path in sys.argv[1:]:
        for name, frames in series(path):
            print(f"{name}\t{' '.join(f'{number:.6g}' for number in predict(frames))}")
