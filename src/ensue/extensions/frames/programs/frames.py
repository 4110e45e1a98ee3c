"""Reading of files as series of frames, and conversion of series to a batch."""

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
    """Yield the name and the frames (T, d) of each series in a file, a folder or a table of paths."""
    try:
        for item in FrameSource(path, reading, shape=shape):
            yield item.name, item.frames
    except DataError as error:
        sys.exit(str(error))


def arguments():
    """Yield the name and the frames of each series in the files of the command line."""
    sys.stdout.reconfigure(encoding="utf-8")  # independent of the locale
    for path in sys.argv[1:]:
        yield from series(path)


def inputs(arrays):
    """Return a batch of arrays (T, d)."""
    padded = np.zeros((len(arrays), max(map(len, arrays)), shape.width), np.float32)
    for row, frames in zip(padded, arrays, strict=True):
        row[: len(frames)] = frames
    return {"frames": padded, "lengths": np.array(list(map(len, arrays)), np.int64)}
