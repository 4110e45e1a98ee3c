"""Sounds: WAV files with whole numbers of 8, 16, 24 or 32 bits, as log-mel frames. Several channels are mixed."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ensue.data.decoding import whole_bytes
from ensue.data.frames.log_mel import log_mel
from ensue.data.frames.series import Reading, Series
from ensue.errors import DataError


def read_sound(path: Path, reading: Reading) -> Iterator[Series]:
    """The series of a WAV file. Raises DataError for another format, and for a recording without samples."""
    samples, rate = read_wav(path)
    if not len(samples):
        raise DataError("an empty recording", path)
    frames = log_mel(reading.sound, samples.mean(1), rate, str(path))
    place = (str(path), None)
    yield Series(path.name, frames, rate=rate, place=place, channels=samples.shape[1])


def read_wav(path: Path) -> tuple[NDArray[np.float32], int]:
    """The samples (n, channels), from -1 to 1, and how many there are in a second."""
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
