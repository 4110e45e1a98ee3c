"""Files as series of frames, and these as the inputs of the model."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from ensue.errors import DataError
from ensue.extensions.frames.data.series import LogMel, SeriesOptions
from ensue.extensions.frames.data.source import FrameSource, Shape

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
reading = SeriesOptions(**{**config["reading"], "sound": LogMel(**config["reading"]["sound"])})
shape = Shape(**{**config["shape"], "columns": tuple(config["shape"]["columns"])})


def series(path):
    """The name and the frames (T, d) of each series of a file, a folder or a table of paths, as `ensue predict` reads
    them.
    """
    try:
        for one in FrameSource(path, reading, shape=shape):
            yield one.name, one.frames
    except DataError as mistake:
        sys.exit(str(mistake))


def inputs(some):
    """The inputs of the model for a list of series."""
    found = np.zeros((len(some), max(map(len, some)), shape.width), np.float32)
    for row, frames in zip(found, some, strict=True):
        row[: len(frames)] = frames
    return {"frames": found, "lengths": np.array(list(map(len, some)), np.int64)}
