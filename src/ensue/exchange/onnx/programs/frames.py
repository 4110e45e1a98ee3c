"""Files as series of frames: .npy, .npz with `frames` and perhaps `lengths`, and .wav as log-mel features."""

import json
import sys
import wave
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])


def series(path):
    """The name and the frames (T, d) of each series of a file."""
    path = Path(path)
    if path.suffix == ".wav":
        samples, rate = read_wav(path)
        return [(path.name, checked(log_mel(samples, rate), path))]
    arrays = np.load(path)
    if path.suffix == ".npy":
        arrays = {"frames": arrays}
    frames, lengths = arrays["frames"].astype(np.float32), arrays.get("lengths")
    parts = [frames] if frames.ndim == 2 else list(frames)
    if lengths is not None:
        parts = np.split(frames, np.cumsum(lengths)[:-1])
    names = [path.name] if len(parts) == 1 else [f"{path.name}[{number}]" for number in range(len(parts))]
    return [(name, checked(part, name)) for name, part in zip(names, parts, strict=True)]


def checked(frames, name):
    """The frames, if the model reads them."""
    if frames.ndim != 2 or frames.shape[1] != config["width"] or not len(frames):
        sys.exit(f"{name}: frames of the shape {frames.shape}; expected (T, {config['width']})")
    if not (np.isfinite(frames) | (np.isnan(frames) & config["missing"])).all():
        sys.exit(f"{name}: a number that is not finite")
    return frames


def inputs(some):
    """The inputs of the model for a list of series."""
    found = np.zeros((len(some), max(map(len, some)), config["width"]), np.float32)
    for row, frames in zip(found, some, strict=True):
        row[: len(frames)] = frames
    return {"frames": found, "lengths": np.array(list(map(len, some)), np.int64)}


def read_wav(path):
    """The samples (n,) from -1 to 1, several channels mixed, and how many there are in a second."""
    with wave.open(str(path)) as file:
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
        content = file.readframes(file.getnframes())
    wide = np.zeros((len(content) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(content, np.uint8).reshape(-1, width)
    samples = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    if width == 1:  # without a sign
        samples = (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / np.float32(128)
    return samples.reshape(-1, channels).mean(1), rate


def log_mel(samples, rate):
    """Log-mel frames (T, bands): a Hann window, the power of its spectrum, triangles that are even in mel."""
    sound = config["sound"]
    size, step = max(1, round(sound["window"] * rate)), max(1, round(sound["step"] * rate))
    count = 1 + max(0, -(-(len(samples) - size) // step))
    padded = np.zeros((count - 1) * step + size, np.float32)
    padded[: len(samples)] = samples[: len(padded)]
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::step]
    points = 1 << (size - 1).bit_length()
    hann = np.hanning(size + 1)[:-1].astype(np.float32)
    power = np.abs(np.fft.rfft(frames * hann, points)) ** 2 / size
    low, high = (2595 * np.log10(1 + f / 700) for f in (sound["lowest"], sound["highest"] or rate / 2))
    corners = 700 * (10 ** (np.linspace(low, high, sound["bands"] + 2) / 2595) - 1)
    frequencies = np.arange(points // 2 + 1) * rate / points
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    empty = np.flatnonzero(~triangles.any(1))  # narrower than the distance of two frequencies
    triangles[empty, np.abs(frequencies - corners[empty + 1, None]).argmin(1)] = 1
    return np.log(np.maximum(power @ triangles.T, sound["floor"])).astype(np.float32)
