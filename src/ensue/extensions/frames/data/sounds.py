"""Sounds: WAV files with whole numbers of 8, 16, 24 or 32 bits, as log-mel frames. Several channels are mixed.

The features are the energy of a sound in bands of frequency, frame by frame (Davis & Mermelstein 1980). Frame t has the
samples from t·S on, N of them, times a Hann window. With P the power of their Fourier transform, padded to K ≥ N, and W
the triangles of the bands, the features are `log max(W P, floor)`; with `top_db` relative to the largest one.
"""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import whole_bytes
from ensue.errors import DataError
from ensue.extensions.frames.data.series import LogMel, Series, SeriesOptions

MAX_BATCH_FRAMES = 4096
MAX_WEIGHTS, MAX_NUMBERS = 1 << 26, 1 << 28
"""The most weights of bands (half a gigabyte), and the most features of a sound (a gigabyte): headers of files may be
wrong.
"""


def log_mel(sound: LogMel, samples: NDArray[np.float32], rate: int, place: str = "") -> NDArray[np.float32]:
    """Return frames (T, bands) from samples (n,), T = 1 + ⌈(n − N) / S⌉; the last frame is filled up with silence.

    Raises DataError for bands that do not fit the rate, and for a rate that makes frames too large or too many.
    """
    if not 0 <= sound.lowest < (highest := sound.highest or rate / 2) <= rate / 2:
        odd = f"bands from {sound.lowest:g} to {highest:g} hertz do not fit a rate of {rate:,}"
        raise DataError(f"{odd}; features.lowest and features.highest set them", place)
    size, step, points = framing(sound, rate)
    count = 1 + max(0, -(-(len(samples) - size) // step))
    if size * sound.bands > MAX_WEIGHTS or count * sound.bands > MAX_NUMBERS:
        odd = f"a rate of {rate:,} makes {count:,} frames of {size:,} samples, in {sound.bands:,} bands"
        raise DataError(f"{odd}, which is too much; features.window and features.step set them", place)
    padded = np.zeros((count - 1) * step + size, np.float32)
    padded[: len(samples)] = samples[: len(padded)]
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::step]
    window = hann(size)
    triangles = mel_triangles(sound.bands, points, rate, sound.lowest, highest)
    features = np.empty((count, sound.bands), np.float32)
    for start in range(0, count, MAX_BATCH_FRAMES):
        part = slice(start, start + MAX_BATCH_FRAMES)
        power = np.abs(np.fft.rfft(frames[part] * window, points)) ** 2 / size
        features[part] = np.log(np.maximum(power @ triangles.T, sound.floor))
    return np.maximum(features - features.max(), np.float32(-sound.reach)) if sound.top_db else features


def framing(sound: LogMel, rate: int) -> tuple[int, int, int]:
    """Return the samples of a frame, N, and of a step, S, and the points of the Fourier transform, K."""
    size, step = max(1, round(sound.window * rate)), max(1, round(sound.step * rate))
    return size, step, 1 << (size - 1).bit_length()


def hann(size: int) -> NDArray[np.float32]:
    """Return the window of Hann (size,) that is periodic."""
    window: NDArray[np.float32] = np.hanning(size + 1)[:-1].astype(np.float32)
    return window


@lru_cache(maxsize=8)
def mel_triangles(bands: int, points: int, rate: int, lowest: float, highest: float) -> NDArray[np.float64]:
    """Return the weights (bands, points // 2 + 1) of the frequencies in each band.

    The corners are evenly spaced in mel, m = 2595 log₁₀(1 + f / 700). Band b rises from corner b to 1 at corner b + 1
    and falls to corner b + 2. One that is narrower than the distance of two frequencies takes the nearest one.
    """
    mels = np.linspace(_mel(lowest), _mel(highest), bands + 2)
    corners = 700 * (10 ** (mels / 2595) - 1)
    frequencies = np.arange(points // 2 + 1) * rate / points
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    empty = np.flatnonzero(~triangles.any(1))
    triangles[empty, np.abs(frequencies - corners[empty + 1, None]).argmin(1)] = 1
    return triangles


def _mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))


def read_sound(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a WAV file. Raises DataError for another format, and for a recording without samples."""
    samples, rate = read_wav(path)
    if not len(samples):
        raise DataError("an empty recording", path)
    frames = log_mel(reading.sound, samples.mean(1), rate, str(path))
    place = (str(path), None)
    yield Series(path.name, frames, rate=rate, place=place, channels=samples.shape[1])


def read_wav(path: Path) -> tuple[NDArray[np.float32], int]:
    """Return the samples (n, channels), from -1 to 1, and how many there are in a second."""
    try:
        with wave.open(io.BytesIO(whole_bytes(path))) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            content = file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError) as error:  # the last one is for a part that is said to be longer
        known = "expected a WAV file with whole numbers of 8 to 32 bits"
        raise DataError(f"{known} ({str(error) or 'it ends early'})", path) from None
    if width > 4 or rate < 1:
        raise DataError(f"samples of {8 * width} bits, {rate:,} a second; expected 8 to 32 bits", path)
    if len(content) % (width * channels):
        raise DataError("ends within a sample", path)
    return _numbers(content, width).reshape(-1, channels), rate


def _numbers(content: bytes, width: int) -> NDArray[np.float32]:
    """8 bits are without a sign; wider ones are little-endian, with a sign."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / np.float32(128)
    wide = np.zeros((len(content) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(content, np.uint8).reshape(-1, width)
    return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
