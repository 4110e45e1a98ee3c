"""Reader of WAV files with integer samples of 8, 16, 24 or 32 bits, as log-mel frames. Channels are averaged.

The features are energies in frequency bands (Davis & Mermelstein 1980). Frame t is a Hann window times N samples from
sample t·S on. P is the power spectrum of the frame, padded to K ≥ N samples, and W are the triangular filters of the
bands. The features are `log max(W P, floor)`. With `top_db`, their maximum is subtracted, and they are clipped.
"""

import io
import wave
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import load_bytes
from ensue.errors import DataError
from ensue.extensions.frames.data.series import LogMel, Series, SeriesOptions

MAX_BATCH_FRAMES = 4096
MAX_WEIGHTS, MAX_FEATURES = 1 << 26, 1 << 28
"""The largest numbers of filter weights (half a gigabyte) and of features of a sound (a gigabyte)."""


def log_mel(sound: LogMel, samples: NDArray[np.float32], rate: int, path: str = "") -> NDArray[np.float32]:
    """Return the log-mel frames (T, bands) of samples (n,), T = 1 + ⌈max(0, n − N) / S⌉. The last frame is zero-padded.

    Raises DataError if the bands do not match the rate, or if the frames are too large or too many.
    """
    if not 0 <= sound.lowest < (highest := sound.highest or rate / 2) <= rate / 2:
        problem = f"bands from {sound.lowest:g} to {highest:g} hertz do not fit a rate of {rate:,}"
        raise DataError(f"{problem}; features.lowest and features.highest set them", path)
    size, step, points = framing(sound, rate)
    count = 1 + max(0, -(-(len(samples) - size) // step))
    if size * sound.bands > MAX_WEIGHTS or count * sound.bands > MAX_FEATURES:
        problem = f"a rate of {rate:,} makes {count:,} frames of {size:,} samples, in {sound.bands:,} bands"
        raise DataError(f"{problem}; reduce features.window or increase features.step", path)
    padded = np.zeros((count - 1) * step + size, np.float32)
    padded[: len(samples)] = samples[: len(padded)]
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::step]
    window = hann(size)
    triangles = mel_triangles(sound.bands, points, rate, sound.lowest, highest)
    features = np.empty((count, sound.bands), np.float32)
    for start in range(0, count, MAX_BATCH_FRAMES):
        batch = slice(start, start + MAX_BATCH_FRAMES)
        power = np.abs(np.fft.rfft(frames[batch] * window, points)) ** 2 / size
        features[batch] = np.log(np.maximum(power @ triangles.T, sound.floor))
    return np.maximum(features - features.max(), np.float32(-sound.dynamic_range)) if sound.top_db else features


def framing(sound: LogMel, rate: int) -> tuple[int, int, int]:
    """Return N and S, the numbers of samples in a frame and in a step, and K, the points of the Fourier transform."""
    size, step = max(1, round(sound.window * rate)), max(1, round(sound.step * rate))
    return size, step, 1 << (size - 1).bit_length()


def hann(size: int) -> NDArray[np.float32]:
    """Return the periodic Hann window (size,)."""
    return np.hanning(size + 1)[:-1].astype(np.float32)


@lru_cache(maxsize=8)
def mel_triangles(bands: int, points: int, rate: int, lowest: float, highest: float) -> NDArray[np.float64]:
    """Return the weights (bands, points // 2 + 1) of the frequencies in each band.

    The corners are evenly spaced in mel, m = 2595 log₁₀(1 + f / 700). The weights of band b rise from 0 at corner b to
    1 at corner b + 1, and fall to 0 at corner b + 2. A band without a frequency has the weight 1 at the
    nearest frequency.
    """
    lowest_mel, highest_mel = (2595 * float(np.log10(1 + hertz / 700)) for hertz in (lowest, highest))
    corners = 700 * (10 ** (np.linspace(lowest_mel, highest_mel, bands + 2) / 2595) - 1)
    frequencies = np.arange(points // 2 + 1) * rate / points
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    empty = np.flatnonzero(~triangles.any(1))
    triangles[empty, np.abs(frequencies - corners[empty + 1, None]).argmin(1)] = 1
    return triangles


def read_sound(path: Path, reading: SeriesOptions) -> Iterator[Series]:
    """Yield the series of a WAV file. Raises DataError for other formats and for recordings without samples."""
    samples, rate = read_wav(path)
    if not len(samples):
        raise DataError("an empty recording", path)
    frames = log_mel(reading.sound, samples.mean(1), rate, str(path))
    yield Series(path.name, frames, rate=rate, place=(str(path), None), channels=samples.shape[1])


def read_wav(path: Path) -> tuple[NDArray[np.float32], int]:
    """Return the samples (n, channels), from -1 to 1, and the samples per second."""
    try:
        with wave.open(io.BytesIO(load_bytes(path))) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            content = file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError) as error:  # RuntimeError: a chunk is shorter than its header
        expected = "expected a PCM WAV file of 8 to 32 bits"
        raise DataError(f"{expected} ({str(error) or 'truncated'})", path) from None
    if width > 4 or rate < 1:
        raise DataError(f"samples of {8 * width} bits, {rate:,} a second; expected 8 to 32 bits", path)
    if len(content) % (width * channels):
        raise DataError("ends within a sample", path)
    return _decode_samples(content, width).reshape(-1, channels), rate


def _decode_samples(content: bytes, width: int) -> NDArray[np.float32]:
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / np.float32(128)
    padded = np.zeros((len(content) // width, 4), np.uint8)
    padded[:, 4 - width :] = np.frombuffer(content, np.uint8).reshape(-1, width)
    return padded.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
