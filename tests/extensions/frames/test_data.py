"""Series of frames are read from files of all formats; invalid files are refused in one line."""

import gzip
import io
import struct
import wave
from pathlib import Path
from time import tzset
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import save_file

from ensue.errors import DataError, RecipeError
from ensue.extensions.frames.data.series import FrameRows, LogMel, Series, SeriesOptions, moments
from ensue.extensions.frames.data.sounds import log_mel, mel_triangles
from ensue.extensions.frames.data.source import FrameSource, compile_pattern
from ensue.extensions.surveying.summary import summarize

RATE = 8000


def wav(samples: NDArray[Any], *, bits: int = 16, rate: int = RATE) -> bytes:
    """Return a WAV file of samples (n, channels) from -1 to 1."""
    numbers = np.round(np.atleast_2d(samples.T).T * (2 ** (bits - 1) - 1)).astype(np.int64)
    if bits == 8:
        content = (numbers + 128).astype(np.uint8).tobytes()
    else:
        content = numbers.astype("<i8")[..., None].view(np.uint8)[..., : bits // 8].tobytes()
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((numbers.shape[1], bits // 8, rate, len(numbers), "NONE", ""))
        out.writeframes(content)
    return file.getvalue()


def idx(values: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def npz(*one: Any, **arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, *one, **arrays)
    return file.getvalue()


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def png(shape: tuple[int, ...], dtype: type[np.unsignedinteger[Any]] = np.uint8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full(shape, 255, dtype)).save(file, "png")
    return file.getvalue()


def read(folder: Path, files: dict[str, bytes], location: str = "", **reading: Any) -> list[Series]:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return list(FrameSource(folder / location, SeriesOptions(**reading)))


TONE = np.sin(np.arange(800) * 2 * np.pi * 1000 / RATE).astype(np.float32)
FRAMES = np.arange(12, dtype=np.float32).reshape(6, 2)


@pytest.mark.parametrize(("bits", "error"), [(8, 1e-2), (16, 1e-4), (24, 1e-6), (32, 1e-6)])
def test_samples_of_all_widths_have_the_same_features(tmp_path: Path, bits: int, error: float) -> None:
    (series,) = read(tmp_path, {"a.wav": wav(0.5 * TONE, bits=bits)}, sound=LogMel(floor=1e-2))
    expected = log_mel(LogMel(floor=1e-2), 0.5 * TONE, RATE)
    assert series.rate == RATE
    np.testing.assert_allclose(series.frames, expected, atol=30 * error)


def test_log_mel_features_follow_their_definition() -> None:
    """The Fourier sums and the triangular filters are computed directly."""
    sound = LogMel(window=0.004, step=0.002, bands=5, lowest=100, highest=3000, floor=1e-5)
    samples = np.random.default_rng(0).normal(size=75).astype(np.float32) / 4
    size, step, points = 32, 16, 32
    features = log_mel(sound, samples, RATE)
    assert features.shape == (1 + -(-(75 - size) // step), 5)
    padded = np.concatenate((samples, np.zeros(64)))
    mels = np.linspace(*(2595 * np.log10(1 + f / 700) for f in (100, 3000)), 7)
    corners = 700 * (10 ** (mels / 2595) - 1)
    for t, row in enumerate(features):
        window = padded[t * step : t * step + size] * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size))
        for b, value in enumerate(row):
            energy = 0.0
            for k in range(points // 2 + 1):
                f = k * RATE / points
                up, down = (
                    (f - corners[b]) / (corners[b + 1] - corners[b]),
                    (corners[b + 2] - f) / (corners[b + 2] - corners[b + 1]),
                )
                power = abs(np.sum(window * np.exp(-2j * np.pi * k * np.arange(size) / points))) ** 2 / size
                energy += max(0, min(up, down)) * power
            if mel_triangles(5, points, RATE, 100, 3000)[b].max() < 1:  # not a band between two frequencies
                assert value == pytest.approx(np.log(max(energy, 1e-5)), rel=1e-4)


def test_top_db_removes_the_loudness() -> None:
    noise = np.random.default_rng(0).normal(size=800).astype(np.float32) / 8
    sound = LogMel(top_db=30, floor=1e-12)
    features = log_mel(sound, TONE / 2 + noise / 100, RATE)
    assert (features.max(), features.min()) == (0, pytest.approx(-3 * np.log(10), abs=1e-5))
    np.testing.assert_allclose(log_mel(sound, TONE / 50 + noise / 2500, RATE), features, atol=1e-4)


def test_a_tone_is_in_its_band_and_no_band_is_empty() -> None:
    assert mel_triangles(40, 256, RATE, 20, 4000).max(1).min() > 0
    loudest = log_mel(LogMel(), TONE, RATE).mean(0).argmax()
    corners = 700 * (10 ** (np.linspace(*(2595 * np.log10(1 + f / 700) for f in (20, 4000)), 42) / 2595) - 1)
    assert corners[loudest] < 1000 < corners[loudest + 2]
    assert len(log_mel(LogMel(), TONE[:3], RATE)) == 1
    assert log_mel(LogMel(), 0 * TONE, RATE).max() == pytest.approx(np.log(1e-6))


def test_channels_are_averaged(tmp_path: Path) -> None:
    mixed, plain = read(tmp_path, {"a.wav": wav(np.stack((TONE, 0 * TONE), 1)), "b.wav": wav(0.5 * TONE)})
    assert (mixed.channels, plain.channels) == (2, 1)
    np.testing.assert_allclose(mixed.frames, plain.frames, atol=0.2)


ARRAYS: list[tuple[str, bytes, list[tuple[int, tuple[str, ...]]]]] = [
    ("a.npy", npy(FRAMES), [(6, ())]),
    ("a.npy", npy(FRAMES[:, 0]), [(6, ())]),
    ("a.npy", npy(FRAMES.reshape(3, 2, 2)), [(2, ()), (2, ()), (2, ())]),
    ("a.npz", npz(FRAMES), [(6, ())]),
    ("a.npz", npz(frames=FRAMES, labels="x"), [(6, ("x",))]),
    ("a.npz", npz(frames=FRAMES, lengths=[2, 4], labels=[3, 1]), [(2, ("3",)), (4, ("1",))]),
    ("a.npz", npz(frames=FRAMES, lengths=[2, 4], labels=list("aabbcc")), [(2, ("a", "a")), (4, tuple("bbcc"))]),
    ("a.npz", npz(frames=FRAMES.reshape(3, 2, 2), labels=[b"a", b"b", b"c"]), [(2, ("a",)), (2, ("b",)), (2, ("c",))]),
    ("a.npz.gz", gzip.compress(npz(frames=FRAMES, labels=list("aabbcc"))), [(6, tuple("aabbcc"))]),
]


@pytest.mark.parametrize(("name", "content", "expected"), ARRAYS)
def test_series_and_labels_are_read_from_arrays(
    tmp_path: Path, name: str, content: bytes, expected: list[tuple[int, tuple[str, ...]]]
) -> None:
    series = read(tmp_path, {name: content})
    assert [(len(one.frames), one.labels) for one in series] == expected
    assert np.concatenate([one.frames for one in series]).ravel()[0] == 0


def test_a_series_is_selected_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(npz(frames=FRAMES, lengths=[2, 4]))
    every = list(FrameSource(path, SeriesOptions()))
    for number, one in enumerate(every):
        (selected,) = FrameSource(f"{path}[{number}]", SeriesOptions())
        assert (selected.name, len(selected.frames)) == (f"a.npz[{number}]", len(one.frames))
    with pytest.raises(DataError, match="no series number 2"):
        list(FrameSource(f"{path}[2]", SeriesOptions()))
    (tmp_path / "a.npz[2]").mkdir()
    with pytest.raises(DataError, match="no file in this folder"):
        FrameSource(f"{path}[2]", SeriesOptions())


def test_series_and_labels_are_read_from_safetensors(tmp_path: Path) -> None:
    lengths = np.array([2, 4], np.int64)
    save_file({"frames": FRAMES, "lengths": lengths, "labels": lengths}, tmp_path / "a.safetensors")
    assert [one.labels for one in read(tmp_path, {})] == [("2",), ("4",)]


def test_images_and_their_labels_are_read(tmp_path: Path) -> None:
    images, labels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([7, 1], np.uint8)
    files = {"t10k-images-idx3-ubyte.gz": gzip.compress(idx(images)), "t10k-labels-idx1-ubyte.gz": b""}
    with pytest.raises(DataError, match=r"labels-idx1-ubyte\.gz: damaged"):
        read(tmp_path, files)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    first, second = FrameSource(tmp_path, SeriesOptions())
    assert (first.labels, second.labels) == (("7",), ("1",))
    np.testing.assert_allclose(second.frames, images[1] / 255)
    (tmp_path / "colors").mkdir()
    (color,) = read(tmp_path / "colors", {"a.png": png((3, 5, 3))})
    assert color.frames.shape == (3, 15)


CSV = b"series,time,x,y,label\na,0,1,2,walk\na,0.1,,3,run\nb,5,1,1,walk\n"


def test_series_are_read_from_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(CSV)
    first, second = FrameSource(tmp_path / "a.csv", SeriesOptions(missing="mean"))
    assert (first.name, first.labels, first.per_frame, first.columns) == ("a", ("walk", "run"), True, ("x", "y"))
    assert (first.rate, second.labels) == (pytest.approx(10), ("walk",))
    np.testing.assert_equal(first.frames, np.array([[1, 2], [np.nan, 3]], np.float32))
    summary: Any = summarize(tmp_path / "a.csv")
    assert (summary.detected.kind, summary.size, summary.per_frame, summary.error) == ("frames", 2, True, None)
    assert summary.ranges.missing.tolist() == [1, 0]
    np.testing.assert_allclose(summary.ranges.deviation, [0, np.std([2, 3, 1])])


def test_labels_are_read_from_folders_names_and_tables_of_paths(tmp_path: Path) -> None:
    tone = wav(TONE)
    by_folder = read(tmp_path / "folders", {"no/a.wav": tone, "yes/b.wav": tone, "yes/c.wav": tone})
    assert [series.labels for series in by_folder] == [("no",), ("yes",), ("yes",)]
    by_name = read(tmp_path / "names", {"0_jo_1.wav": tone, "7_b_12.wav": tone}, pattern="{label}_{}_{}.wav")
    assert [series.labels for series in by_name] == [("0",), ("7",)]
    table = b"path,label\nnames/0_jo_1.wav,a b\nfolders/yes/b.wav,\n"
    by_table = read(tmp_path, {"list.csv": table}, "list.csv")
    assert [series.labels for series in by_table] == [("a b",), ()]
    assert summarize(tmp_path / "list.csv").detected.kind == "frames"


def test_a_pattern_has_one_label() -> None:
    for wrong in ("{}_{}", "{label}{label}", ""):
        with pytest.raises(RecipeError, match=r"expected \{label\} once"):
            compile_pattern(wrong)


def with_rate(rate: int) -> bytes:
    """Return a WAV file whose header has another rate."""
    content = wav(TONE)
    return content[:24] + struct.pack("<I", rate) + content[28:]


def header(shape: tuple[int, ...]) -> bytes:
    """Return a `.npy` file that ends after its header."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue()


NO_NUMBER = struct.pack(">HBBIf", 0, 13, 1, 1, float("nan"))
"""A file of labels, one of which is NaN."""
WRONG: list[tuple[dict[str, bytes], str]] = [
    ({"a.wav": wav(TONE), "b.wav": wav(TONE, rate=16000)}, "b.wav: a rate of 16,000; expected 8,000"),
    ({"a.wav": wav(TONE[:0])}, "a.wav: an empty recording"),
    ({"a.wav": b"RIFFxxxxWAVEfmt "}, "expected a PCM WAV file"),
    ({"a.wav": b"RIFF\x10\0\0\0WAVELIST\xff\xff\0\0"}, "expected a PCM WAV file"),
    ({"a.wav": wav(TONE).replace(b"\x01\x00\x01\x00", b"\x03\x00\x01\x00", 1)}, "expected a PCM WAV file"),
    ({"a.wav": b""}, "expected a PCM WAV file"),
    ({"a.npy": npy(np.array([[1, np.nan]]))}, "frame 0, feature 1: a missing value"),
    ({"a.npy": npy(np.array([[1, np.inf]]))}, "frame 0, feature 1: an infinite number"),
    ({"a.npy": npy(FRAMES), "b.npy": npy(FRAMES.T)}, "b.npy: frames of 6 features; expected 2, as in a.npy"),
    ({"a.npy": npy(np.zeros((0, 2)))}, "a series without frames"),
    ({"a.npy": npy(np.zeros((1, 1, 1, 1)))}, r"the shape \(1, 1, 1, 1\); expected \(T, d\)"),
    ({"a.npy": npy(np.array(["a"]))}, "expected numbers, found an array of <U1"),
    ({"a.npy": npy(np.array([{}]))}, "damaged, or not a NumPy file"),
    ({"a.npz": npz(frames=FRAMES, lengths=[2, 5])}, "lengths sum to 7 frames; expected 6"),
    ({"a.npz": npz(frames=FRAMES, labels=[1, 2])}, r"labels of the shape \(2,\); expected 1 .* or 6"),
    ({"a.npz": npz(frames=FRAMES, label=[1, 2])}, 'unknown array "label"; did you mean "labels"'),
    ({"a.npz": b"PK"}, "damaged, or not a NumPy file"),
    ({"a.npy": npz(frames=FRAMES, lengths=[2, 5])}, "lengths sum to 7 frames; expected 6"),
    ({"a.npz": npy(np.array(["a"]))}, "expected numbers, found an array of <U1"),
    ({"a.safetensors": b"x"}, "damaged, or not a safetensors file"),
    ({"a.png": png((3, 5)), "b.png": png((3, 6))}, "b.png: frames of 6 features; expected 5, as in a.png"),
    ({"a.png": png((3, 5), np.uint16)}, "an image of the mode I"),
    ({"a.png": b"x"}, "damaged, or not an image"),
    ({"a-idx3-ubyte": idx(np.zeros((2, 3, 4), np.uint8))[:-1]}, "bytes do not match an idx file"),
    ({"a-idx3-ubyte": b"\0\0"}, "damaged, or not an idx file"),
    ({"a.csv": CSV}, "frame 1, feature \"x\": a missing value"),
    ({"a.csv": b"time,x\n0,1\n1,1\n3,1\n"}, 'a.csv:4: a gap in time: "3" is 2 s after "1" in line 3; .* new series'),
    ({"a.csv": b"time;x\n0;1,5\n1;2.5\n"}, 'a.csv:3: column "x": "2.5" after another decimal separator in line 2'),
    ({"a.csv": b'time,x\n0,"1,500"\n'}, 'a.csv:2: column "x": the comma in "1,500" may be a decimal comma'),
    ({"a.ts": b"@problemName a\n@classLabel true 1\n@data\n1,2:3:1\n"}, "a.ts:4: dimensions of 2, 1; expected"),
    ({"a.ts": b"@timeStamps true\n@data\n(0,1),(1,2):(0,1),(2,2)\n"}, "a.ts:3: the times of two dimensions"),
    ({"a.ts": b"@timeStamps true\n@data\n(0,1),(1,2),(9,3)\n"}, "a.ts:3: a gap in time: \"9\" is 8 s after"),
    ({"a.ts": b"@timeStamps true\n@data\n0,1,2\n"}, r"a.ts:3: expected \(time,value\), found \"0,1,2"),
    ({"a.ts": b"@targetLabel true\n@data\n1,2:0.5\n"}, "a.ts:1: regression targets"),
    ({"a.ts": b"@problemName a\n"}, "a.ts: no line @data"),
    ({"a.ts": b"export const x = 1\n"}, "a.ts:1: .* a line @data, found \"export"),
    ({"a.csv": b"series,x\na,y\n"}, 'a.csv:2: column "x": expected a number, found "y"'),
    ({"a.csv": b"series,x\na,1_2\n"}, 'a.csv:2: column "x": expected a number, found "1_2"'),
    ({"a.csv": b"1,2\n3,4\n"}, "a.csv:1: the first row has no names"),
    ({"a.csv": b"x,x\n3,4\n"}, "a.csv:1: the first row repeats a name"),
    ({"a.csv": b"series,label\n3,4\n"}, "a.csv:1: no column of features"),
    ({"a.csv": b"series,x\na,1,2\n"}, "a.csv:2: 3 columns; expected 2"),
    ({"a.csv": b"x,y\n1,2\n", "b.csv": b"y,x\n1,2\n"}, "columns y, x; expected x, y"),
    ({"a.csv": b"path,label\nb.wav,x\n"}, "a.csv:2: no such file: b.wav"),
    ({"a.txt": b"x"}, "unknown suffix; expected .wav"),
    ({"a.wav": with_rate(4_000_000_000)}, "a rate of 4,000,000,000 makes 1 frames of 100,000,000 samples"),
    ({"a.npy": header((2_000_000_000, 0, 3))}, r"the shape \(2000000000, 0, 3\): a series without frames"),
    ({"a.npy": npy(np.array([[1e300]]))}, "frame 0, feature 0: an infinite number"),
    ({"a.csv": b"x\n1e300\n"}, 'frame 0, feature "x": an infinite number'),
    ({"a.npz": npz(frames=FRAMES, lengths=[0, 6])}, r"lengths: expected integers \(N,\) above 0"),
    ({"a.npz": npz(frames=FRAMES, lengths=np.array([2**63, 2**63], np.uint64))}, "lengths sum to 18,446,744,073"),
    ({"t-images-idx3-ubyte": idx(np.zeros((1, 3, 4), np.uint8)), "t-labels-idx1-ubyte": NO_NUMBER}, "1 integers"),
    ({"a.csv": b"time,x\n0,1\ninf,2\ninf,3\n"}, 'a.csv:3: expected a time, .* found "inf"'),
    ({"a.csv": b"time,x\n0,1\n5e-324,2\n"}, "a.csv:3: a gap in time: .* expected a time above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_invalid_files_are_refused_in_one_line(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path, files)
    place, _, problem = str(error.value).partition(": ")
    assert "\n" not in problem
    assert str(tmp_path) in place
    assert f"{Path(place).name.partition(':')[0]}: " not in problem


def test_rounding_of_times_is_not_a_gap(tmp_path: Path) -> None:
    times = "".join(f"a,2026-01-01T00:00:{second:02},1\n" for second in range(3))
    (series,) = read(tmp_path, {"a.csv": f"series,time,x\n{times}".encode()})
    assert series.rate == 1


def test_times_without_a_zone_are_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times include the hour that clocks in Berlin skip on this day."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    tzset()
    try:
        times = "".join(f"a,2026-03-29T{hour:02}:30:00,1\n" for hour in range(4))
        (series,) = read(tmp_path, {"a.csv": f"series,time,x\n{times}".encode()})
    finally:
        monkeypatch.undo()
        tzset()
    assert series.rate == pytest.approx(1 / 3600)


def test_decompression_is_bounded_by_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, frames=np.zeros((10_000, 1), np.float32))
    for module in ("data.decoding", "extensions.frames.data.readers"):
        monkeypatch.setattr(f"ensue.{module}.memory", lambda: 40_000)
    with pytest.raises(DataError, match=r"arrays of 40,\d+ bytes, more than half of this machine's memory"):
        read(tmp_path, {"a.npz": file.getvalue()})
    with pytest.raises(DataError, match=r"b\.npy\.gz: more than 20,000 bytes, half of this machine's memory"):
        read(tmp_path, {"b.npy.gz": gzip.compress(npy(np.zeros((10_000, 1))))}, "b.npy.gz")


def test_series_are_padded_and_masked() -> None:
    rows = FrameRows.of([FRAMES[:1], FRAMES, FRAMES[2:4]])
    chosen = np.array([2, 0])
    np.testing.assert_equal(rows.padded(chosen), np.stack([FRAMES[2:4], [*FRAMES[:1], [0, 0]]]))
    np.testing.assert_equal(rows.mask(chosen), [[True, True], [True, False]])
    assert rows.mask(np.array([1])) is None
    np.testing.assert_equal(rows.select(chosen)[1], FRAMES[:1])


def test_moments_ignore_missing_values_and_constants() -> None:
    mean, deviation = moments([np.array([[1, 2, np.nan]], np.float32), np.array([[3, 2, np.nan]], np.float32)])
    np.testing.assert_allclose(mean, [2, 2, 0])
    np.testing.assert_allclose(deviation, [1, 1, 1])
