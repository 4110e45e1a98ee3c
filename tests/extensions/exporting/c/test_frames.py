"""Classifiers and taggers of frames as C have the labels and probabilities of ensue, and its frames of sounds."""

import ctypes
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ensue.errors import DataError
from ensue.extensions.frames.data.series import LogMel
from ensue.extensions.frames.data.sounds import log_mel, read_wav
from extensions.exporting.c import carried as runs
from extensions.exporting.c.framed import (
    KINDS,
    CarriedFrames,
    damaged,
    pipeline,
    series_in_c,
    series_of,
    sound_classifier,
    wav,
)
from extensions.exporting.c.printing import files_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not runs.COMPILERS, reason="neither gcc nor clang is installed")]
NOT_FINITE, NO_SOUND, OTHER_RATE = -8, -9, -10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CarriedFrames]:
    """Models by kind, each compiled once."""
    return cache(lambda kind: CarriedFrames(pipeline(kind), tmp_path_factory.mktemp(kind), kind))


@pytest.fixture(params=KINDS)
def carried(request: pytest.FixtureRequest, made: Callable[[str], CarriedFrames]) -> CarriedFrames:
    return made(request.param)


def check(carried: CarriedFrames, series: list[Any], close: float = runs.CLOSE) -> Any:
    from_c, model = carried.answered(series), carried.pipeline
    if carried.is_tagger:
        answers: Any = model.predict(series, confidence=True)
        assert from_c[0] == [label for one in answers for label in one.labels]
        np.testing.assert_allclose(from_c[1], [share for one in answers for share in one.probabilities], atol=close)
        return from_c[1]
    answers = model.predict(series)
    np.testing.assert_allclose(from_c, [list(one.probabilities.values()) for one in answers], atol=close)
    return from_c


def test_labels_and_probabilities_are_those_of_ensue(carried: CarriedFrames) -> None:
    check(carried, series_of(carried.pipeline, 1, 300))
    check(carried, series_of(carried.pipeline, 2, 2)[:1])


def test_a_series_has_the_same_numbers_in_any_batch_and_thread(carried: CarriedFrames) -> None:
    series = series_of(carried.pipeline, 3)
    together = check(carried, series)
    alone = [carried.answered([one], 30) for one in series]
    assert together.tobytes() == b"".join((one[1] if carried.is_tagger else one).tobytes() for one in alone)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda frames: carried.answered(series, frames), (31, 40, 99, 1000)))
    assert {(one[1] if carried.is_tagger else one).tobytes() for one in answers} == {together.tobytes()}


@pytest.mark.parametrize(("kind", "precision"), [("one", "int8"), ("crf", "f16")])
def test_lower_precisions_compute_with_the_rounded_numbers(
    kind: str, precision: str, made: Callable[[str], CarriedFrames], tmp_path: Path
) -> None:
    model = pipeline(kind)
    carried_frames = CarriedFrames(model, tmp_path, kind, precision=precision)
    runs.rounded(model.model, precision, but="vector.weight|start|end|pairs|transitions")
    shares = check(carried_frames, series_of(model, 1), runs.NEAR[precision])
    assert not np.array_equal(shares, made(kind).answered(series_of(model, 1))[1 if carried_frames.is_tagger else ...])


@pytest.mark.parametrize(
    ("rate", "features"),
    [(8000, {}), (11025, {"window": 0.05, "step": 0.02, "bands": 70, "lowest": 300, "highest": 3400,
              "top_db": 30}),
     (1000, {"window": 1e-3, "lowest": 0, "bands": 2, "step": 0.003})],
)  # fmt: skip
def test_frames_of_sounds_are_those_of_ensue(rate: int, features: dict[str, Any], tmp_path: Path) -> None:
    made = sound_classifier(rate, **features)
    carried_frames, rng = CarriedFrames(made, tmp_path, "sound"), np.random.default_rng(rate)
    sound: LogMel = made.recipe.reading().sound
    for count in (1, 2, round(sound.window * rate), 777, 12_345):
        samples = (rng.normal(size=count) * rng.choice([1e-4, 0.3])).astype(np.float32)
        expected = log_mel(sound, samples.astype(np.float64), rate)  # type: ignore[arg-type]  # as exact as C is
        np.testing.assert_allclose(carried_frames.frames(samples), expected, rtol=1e-5, atol=1e-5)


def recordings() -> list[bytes]:
    """Return complete recordings, and recordings with many kinds of damage."""
    rng, contents = np.random.default_rng(0), []
    for width, channels in ((1, 1), (2, 1), (2, 2), (3, 1), (4, 3)):
        recording = wav(rng.bytes(60 * width * channels), channels=channels, width=width)
        ends = (None, -1, -7, 30, 44)
        contents += [*(recording[:end] for end in ends), recording + b"LIST\1\0\0\0x"]
        listed = recording[:12] + b"LIST\3\0\0\0abc\0" + recording[12:]
        contents += [listed, recording[:36] + b"junk\2\0\0\0ab" + recording[36:], recording[:12] + recording[36:]]
    for _ in range(300):
        odd = bytearray(contents[int(rng.integers(len(contents)))])
        for place in rng.integers(0, min(len(odd), 50), 2):
            odd[place] = rng.choice([0, 1, 2, 255, rng.integers(256)])
        contents.append(bytes(odd))
    return [b"", b"RIFF", wav(b""), wav(b"\1\2" * 9, rate=44100), *contents]


def test_samples_of_recordings_are_those_of_ensue(made: Callable[[str], CarriedFrames], tmp_path: Path) -> None:
    codes, sounds = set(), made("sounds")
    for content in recordings():
        (tmp_path / "x.wav").write_bytes(content)
        samples_of_c = sounds.samples(content)
        try:
            samples, rate = read_wav(tmp_path / "x.wav")
        except DataError:
            assert samples_of_c in (NO_SOUND, OTHER_RATE)  # the rate is checked before the end of the file
            continue
        if isinstance(samples_of_c, int):
            codes.add(samples_of_c)
            assert samples_of_c == (OTHER_RATE if rate != 8000 else NO_SOUND if not len(samples) else None)
            continue
        np.testing.assert_allclose(samples_of_c, samples.mean(1), rtol=1e-6, atol=1e-9)
    assert codes == {NO_SOUND, OTHER_RATE}


def test_invalid_arguments_and_files_give_a_negative_code(carried: CarriedFrames) -> None:
    good = series_of(carried.pipeline, 1)
    sizes = [carried.call("memory", frames) for frames in (0, 1, 100_000, 100_001, 2**63)]
    assert [size > 0 for size in sizes] == [False, True, True, False, False]
    assert carried.answer(series_in_c(good), 29)[0] == runs.TOO_LONG
    assert carried.answer(series_in_c(good), 0, carried.memory(1))[0] == runs.ARGUMENT
    assert carried.answer(series_in_c([]))[0] == runs.OK
    none, empty = series_in_c(good), series_in_c(good)
    none[5].frames, empty[5].count = None, 0
    assert {carried.answer(wrong)[0] for wrong in (none, empty)} == {runs.ARGUMENT}
    for number in (np.inf, -np.inf, np.nan):
        wrong = [one.copy() for one in good]
        wrong[4][0, 0] = number
        is_read = np.isnan(number) and carried.pipeline.recipe.data.missing == "mean"
        assert carried.answer(series_in_c(wrong))[0] == (runs.OK if is_read else NOT_FINITE)
    assert carried.call("label", carried.model, 9999) is None
    assert len({carried.call("message", ctypes.c_int(code)) for code in (NOT_FINITE, NO_SOUND, OTHER_RATE)}) == (
        3 if carried.name == "sounds" else 2
    )


def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    broken = pipeline("several")
    damaged(broken.model)
    assert CarriedFrames(broken, tmp_path, "nan").answer(series_in_c(series_of(broken, 1)))[0] == runs.NUMBERS_FAIL


def files(folder: Path, kind: str) -> list[str]:
    """Write series in all formats that the example reads."""
    made, rng = pipeline(kind), np.random.default_rng(7)
    series = series_of(made, 5, 9)
    for number, one in enumerate(series):
        stored = one.astype([np.float32, np.float64, np.int16][number % 3]) if np.isfinite(one).all() else one
        np.save(folder / f"{number}.npy", stored)
    np.save(folder / "all.npy", np.stack([one[:1] for one in series]))
    width = len(made.statistics.mean)
    images = rng.integers(0, 256, (5, 4, width), np.uint8)
    (folder / "t-images-idx3-ubyte").write_bytes(
        bytes([0, 0, 8, 3]) + np.array(images.shape, ">u4").tobytes() + images.tobytes()
    )
    names = made.statistics.shape.columns or tuple(f"f{k}" for k in range(width))
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    rows = [
        ",".join([f'"s{number}, x"', *(" " if np.isnan(x) else repr(float(x)) for x in row), "0.5"])
        for number, one in enumerate(series) for row in one
    ]  # fmt: skip
    (folder / "rows.csv").write_text(
        "\ufeff" + ",".join(["series", *quoted, "label"]) + "\r\n" + "\r\n".join(rows) + "\r\n"
    )
    (folder / "one.tsv").write_text(
        "\t".join(names) + "\n" + "\n".join("\t".join(map(str, row)) for row in series[0].tolist())
    )
    (folder / "paths.csv").write_text("label;path\nx;2.npy\ny;1.npy\n")
    paths = [*(f"{number}.npy" for number in range(9)), "all.npy", "t-images-idx3-ubyte", "rows.csv", "one.tsv"]
    if kind == "sounds":
        for number, content in enumerate([*recordings()[4:7], wav(rng.bytes(5000), channels=2)]):
            (folder / f"{number}.WAV").write_bytes(content)
            paths.append(f"{number}.WAV")
    return [*paths, "paths.csv"]


@pytest.mark.parametrize(("number", "kind"), list(enumerate(["crf", "sounds"])))
def test_examples_print_like_the_command_line_without_sanitizer_errors(number: int, kind: str, tmp_path: Path) -> None:
    made, compiler = pipeline(kind), runs.COMPILERS[number % len(runs.COMPILERS)]
    folder = runs.put(files_of(made, "say", embed=kind == "crf"), tmp_path)
    runs.compiled(folder, "-o", "say", "example.c", "say.c", compiler=compiler, options=runs.SANITIZED)

    def example(*arguments: str, text: str = "") -> tuple[str, str]:
        completed = subprocess.run(
            ["./say", *arguments], cwd=folder, input=text.encode(), capture_output=True, check=False
        )
        assert completed.returncode in (0, 2)
        assert (completed.returncode == 2) == bool(completed.stderr)
        return completed.stdout.decode(errors="replace"), completed.stderr.decode(errors="replace")

    names = files(folder, kind)
    lines = "".join("".join(made.prediction_lines(str(folder / name))) for name in names)
    assert example(*names) == example(text="\n".join(names)) == (lines, "")
    if kind == "crf":
        answer = made.predict([np.load(folder / "3.npy")], confidence=True)[0]
        name, labels, shares = example("--probabilities", "3.npy")[0].split("\t")
        assert (name, labels.split()) == ("3.npy", list(answer.labels))
        np.testing.assert_allclose([float(share) for share in shares.split()], answer.probabilities, atol=2e-6)
    else:
        chosen: Any = made
        strict = chosen.with_search(at_least=0.6)
        assert example("--at-least", "0.6", "all.npy")[0] == "".join(strict.prediction_lines(str(folder / "all.npy")))
    assert example("--else", "all.npy")[1].startswith("usage: say ")
    assert example("none.npy")[1] == "say: none.npy: cannot be read\n"
    assert example("say.h")[1] == "say: say.h: unknown suffix\n"
    (folder / "lines.csv").write_text('"a,\n"' + ",y" * 999)  # a header of two lines
    assert example("lines.csv")[1].startswith("say: lines.csv: ")
    rng, odd = np.random.default_rng(number), folder / "odd"
    odd.mkdir()
    for place, name in enumerate([*names * 2]):  # each is damaged or truncated
        content = bytearray((folder / name).read_bytes())
        for at in rng.integers(0, min(len(content), 200), 3):
            content[at] = rng.choice([0, 9, 10, 34, 44, 255, rng.integers(256)])
        damaged = content[: rng.integers(len(content))] if place % 3 == 0 else content
        (odd / name).write_bytes(bytes(damaged))
        (odd / "table.csv").write_text(f"path\n{name}\ntable.csv\n")
        example(f"odd/{name}")
        example("odd/table.csv")
