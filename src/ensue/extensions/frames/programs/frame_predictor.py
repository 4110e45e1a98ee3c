"""A frame predictor with onnxruntime and numpy.

python predict.py FILE ...    prints the name of each series and the mean of the next frame, as `ensue predict` does
"""

import numpy as np
from frames import arguments, config, model

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def start(rows=1):
    """Return the state before the first frame, which is zeros, with empty keys and values of attention."""
    leaves = {x.name: x for x in model.get_inputs() if x.name.startswith("state")}
    sizes = {"batch": rows, "past": 0}
    return {name: np.zeros([sizes.get(n, n) for n in x.shape], TYPES[x.type]) for name, x in leaves.items()}


def read(frames, state):
    """Return the prediction after each frame (B, T, d), and the next state. The first frame must be the mean frame.

    The prediction is a mixture with weights (B, T, K), means and standard deviations (B, T, K, d).
    """
    weights, means, deviations, *leaves = model.run(None, {"frames": frames.astype(np.float32), **state})
    return (weights, means, deviations), dict(zip(state, leaves, strict=True))


def predict(frames):
    """Return the mean (d,) of the frame after a series (T, d)."""
    first = np.array([config["mean"]], np.float32)
    (weights, means, _), _ = read(np.concatenate((first, frames))[None], start())
    return (weights[0, -1, :, None] * means[0, -1]).sum(0)


if __name__ == "__main__":
    for name, frames in arguments():
        print(f"{name}\t{' '.join(f'{number:.6g}' for number in predict(frames))}")
