"""Classifiers and taggers of frames as web pages and modules have the answers of ensue in Node and Chromium."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import ensue
from ensue.extensions.frames.data.sounds import log_mel, read_wav
from ensue.extensions.frames.data.source import Shape
from ensue.extensions.frames.labeling import FrameLabelingPipeline, FrameTaggerParts
from ensue.extensions.frames.tasks.model import FrameStatistics
from ensue.text.schemes import spans as spans_of
from extensions.exporting.c.framed import pipeline, series_of, wav
from extensions.exporting.c.modules import in_a_browser, in_node, node, opened, put_module, run_module
from extensions.exporting.c.printing import files_of
from extensions.frames.small_frames import built, recipe_of
from inspection.small import PLAIN

pytestmark = pytest.mark.slow
DRIVER = """
import { readFileSync } from "node:fs";
import { load } from "./hear.js";
const input = JSON.parse(readFileSync(0, "utf-8"), (key, value) => value === "NaN" ? NaN : value), output = {};
const typed = one => new Float32Array(one.flat()), series = input.series, sounds = input.sounds.map(typed);
const files = input.files.map(file => Uint8Array.from(atob(file), sign => sign.charCodeAt(0)));
for (const simd of [true, false]) {
  const model = await load({ simd }), zeros = new Float32Array(model.width), failures = [
    () => model.predict("a"), () => model.predict([3]), () => model.predict([["a"]]), () => model.predict([[[0]]]),
    () => model.predict([[]]), () => model.predict([[zeros.map(() => NaN)], [zeros]]),
    () => model.predict([Array(input.tooLong).fill(zeros)]), () => model.samples(new Uint8Array(3)),
    () => model.frames([]), () => model.samples([1]), () => model.predict([[zeros]], { atleast: 0 }),
  ].map(call => { try { return `no error: ${JSON.stringify(call())}`; } catch (error) { return error.message; } });
  output[simd] = {
    simd: model.simd, labels: model.labels, width: model.width, rate: model.rate, failures, none: model.predict([]),
    answers: model.predict(series), flat: model.rate ? [] : model.predict(series.map(typed)),
    sounds: model.predict(sounds), files: model.predict(files), buffers: model.predict(files.map(file => file.buffer)),
    frames: sounds.slice(0, 1).map(one => [...model.frames(one)]),
    sure: model.predict(series, ...(model.isMultiple === undefined ? [] : [{ atLeast: 0.6 }])),
    members: [...Object.getOwnPropertyNames(Object.getPrototypeOf(model)), ...Object.keys(model)],
  };
}
console.log(JSON.stringify(output));
"""


def sound_tagger() -> FrameLabelingPipeline:
    statistics = FrameStatistics(Shape(9, 8000.0, (), True, "x"), (-7.0,) * 9, (3.0,) * 9)
    recipe = recipe_of("frame-labeling", features={"bands": 9}, head={"kind": "crf"}, data={"train": "x"})
    pipeline: FrameLabelingPipeline = built(FrameTaggerParts(statistics, PLAIN), recipe, FrameLabelingPipeline)
    return pipeline


def sounds_of(seed: int) -> list[NDArray[np.int16]]:
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=count) * 3000).astype(np.int16) for count in (1, 199, 200, 3000, 8001)]


def segments(labels: Any, has_spans: bool, seconds: float) -> list[tuple[str, float, float]]:
    """Return spans, or runs of equal labels."""
    if has_spans:
        return [(name, begin * seconds, end * seconds) for name, begin, end in spans_of(labels)]
    ends = [t for t in range(1, len(labels) + 1) if t == len(labels) or labels[t] != labels[t - 1]]
    return [(labels[end - 1], begin * seconds, end * seconds) for begin, end in zip([0, *ends], ends, strict=False)]


def check(answers: Any, model: Any, series: list[Any], close: float = 1e-5, at_least: float = 0.0) -> None:
    """Check that the answers of a module are those of ensue."""
    if not isinstance(model, FrameLabelingPipeline):
        for answer, wanted, one in zip(
            answers, model.with_search(at_least=at_least).predict(series), series, strict=True
        ):
            assert_allclose(answer["probabilities"], list(wanted.probabilities.values()), atol=close)
            assert (answer["labels"], answer["label"] or "") == (list(wanted.labels), wanted.label)
            assert answer["probability"] == pytest.approx(wanted.probability, abs=close)
            assert one.ndim == 1 or answer["frames"] == len(one)
        return
    seconds = 0.01 if model.statistics.shape.is_sound else 1.0
    for answer, wanted in zip(answers, model.predict(series, confidence=True), strict=True):
        assert answer["labels"] == list(wanted.labels)
        assert_allclose(answer["probabilities"], wanted.probabilities, atol=close)
        parts = segments(wanted.labels, model.labels.has_spans, seconds)
        assert [part["label"] for part in answer["segments"]] == [name for name, _, _ in parts]
        places = [(part["begin"], part["end"]) for part in answer["segments"]]
        assert_allclose(places, [part[1:] for part in parts], atol=1e-9)
        shares = [
            np.mean(wanted.probabilities[round(begin / seconds) : round(end / seconds)]) for _, begin, end in parts
        ]
        assert_allclose([part["probability"] for part in answer["segments"]], shares, atol=close)


def inputs_of(model: Any, series: list[Any], sounds: list[Any], files: list[bytes]) -> str:
    inputs = {
        "series": [one.tolist() for one in series], "sounds": [(one / 2**15).tolist() for one in sounds],
        "files": [b64encode(file).decode() for file in files], "tooLong": model.recipe.most_frames + 1,
    }  # fmt: skip
    return json.dumps(inputs).replace("NaN", '"NaN"')


@in_node
@pytest.mark.parametrize("kind", ["several", "sounds", "spans", "crf", "sound_tagger"])
def test_a_module_has_the_labels_and_probabilities_of_ensue(kind: str, tmp_path: Path) -> None:
    model: Any = sound_tagger() if kind == "sound_tagger" else pipeline(kind)
    is_tagger, is_sound = isinstance(model, FrameLabelingPipeline), model.statistics.shape.is_sound
    page = "frame_tags" if is_tagger else "frame_classes"
    put_module(files_of(model, "hear"), "hear", page, tmp_path, DRIVER)
    series, sounds = series_of(model, 1, 300), sounds_of(2) if is_sound else []
    inputs = inputs_of(model, series, sounds, [wav(one.tobytes()) for one in sounds])
    samples = [(one / 2**15).astype(np.float32) for one in sounds]
    for output in run_module(tmp_path, f"{page} frames", inputs):
        assert (output["width"], output["none"]) == (len(model.statistics.mean), [])
        assert output["rate"] == (8000 if is_sound else None)
        check(output["answers"], model, series)
        check(output["sure"], model, series, at_least=0.6)
        assert output["flat"] == ([] if is_sound else output["answers"])
        check(output["sounds"], model, samples)
        assert output["sounds"] == output["files"] == output["buffers"]
        if is_sound:
            expected = log_mel(model.recipe.reading().sound, samples[0], 8000).reshape(-1)
            assert_allclose(output["frames"][0], expected, rtol=1e-5, atol=1e-5)
        kinds, width = "a series is neither numbers nor rows of numbers", len(model.statistics.mean)
        of_one = f"expected frames of {width} numbers, found 1"
        sound = "not a PCM WAV file of 8 to 32 bits, or truncated"
        no_sound = "the model does not read sounds; found the bytes of a file"
        missing, option = "a number of a frame is missing or infinite", 'no option "atleast"'
        assert [failure.partition(": [")[0] for failure in output["failures"]] == [
            "the series are not an array", kinds, "a series has a value that is not a number", of_one,
            "a sound has no samples" if is_sound else "a series has no frames",
            missing if model.recipe.data.missing == "refuse" else "no error", "a series is too long",
            sound if is_sound else no_sound, "a sound has no samples" if is_sound else "the model does not read sounds",
            "a file is neither a Uint8Array nor an ArrayBuffer" if is_sound else no_sound,
            "no error" if is_tagger else option,
        ]  # fmt: skip


@in_a_browser
def test_a_sound_classifier_page_shows_the_labels_of_ensue(
    dark: bool, with_page: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = with_page("classify-frames")
    model: Any = ensue.load(folder / "classify-frames")
    files = sorted((folder / "few").rglob("*.wav"))[:2]
    rate, samples = round(model.statistics.shape.rate), read_wav(files[0])[0]
    twice = (np.repeat(samples[:, 0], 2) * 32767).astype(np.int16)
    for name, content in (
        ("twice.wav", wav(twice.tobytes(), rate=2 * rate)), ("none.wav", b"RIFF"),
        ("long.wav", wav(bytes(2 * 201 * rate), rate=rate)),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content)
    paths = [*files, *(tmp_path / name for name in ("twice.wav", "none.wav", "long.wav"))]
    with opened(folder, dark=dark) as browser:
        browser.until("document.getElementById('told').textContent.startsWith('Choose or record a sound. The labels')")
        browser.find("#files").send_keys("\n".join(map(str, paths)))
        browser.until("document.querySelectorAll('#shown tbody tr').length === 3")
        answers = [next(iter(model.predict(model.source(str(path))))) for path in files]
        rows = [
            [", ".join(one.labels), f"{one.probability:.4f}", path.name]
            for one, path in zip(answers, files, strict=True)
        ]
        assert browser.texts("#shown td")[:6] == [cell for row in rows for cell in row]
        wrong = "This did not work: none.wav: neither the model nor this browser can read this sound (and 1 more)"
        assert browser.text("#wrong") == wrong
        browser.find("#shown").send_keys("\ue014")  # the arrow to the right
        ranked = sorted(answers[1].probabilities.items(), key=lambda item: -item[1])
        assert browser.text("#told") == f"{files[1].name} ({len(read_wav(files[1])[0]) / rate:.2f} s)"
        assert browser.texts("#bars th") == [name for name, _ in ranked]
        assert browser.texts("#bars .number") == [f"{share:.4f}" for _, share in ranked]
        browser.find("#shown").send_keys("\ue010")  # the key to the end
        assert "decoded by the browser" in browser.text("#told")
        first = dict(zip(browser.texts("#bars th"), map(float, browser.texts("#bars .number")), strict=True))
        assert_allclose([first[name] for name in model.labels.names], list(answers[0].probabilities.values()), atol=0.1)
        browser.run(
            "navigator.mediaDevices.getUserMedia = async () => { const sound = new AudioContext(), "
            "tone = sound.createOscillator(), to = sound.createMediaStreamDestination(); "
            "tone.connect(to); tone.start(); return to.stream }"
        )
        browser.find("#record").click()
        browser.until("document.getElementById('record').textContent === 'Stop (1 s)'")
        browser.find("#record").click()
        browser.until("document.getElementById('told').textContent.startsWith('recording (1.')")
        browser.run(
            "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError') }"
        )
        browser.find("#record").click()
        browser.until("!document.getElementById('wrong').hidden")
        assert browser.text("#wrong") == "This did not work: access to the microphone was denied"


def series_files(folder: Path) -> list[Path]:
    """Write series of two features in all formats that a page reads."""
    rng = np.random.default_rng(3)
    for name, kind in (("a", "<f4"), ("b", ">f8"), ("c", "<i2"), ("d", "|u1"), ("e", "<i8")):
        np.save(folder / f"{name}.npy", rng.integers(0, 9, (7, 2)).astype(kind))
    np.save(folder / "all.npy", rng.normal(size=(3, 5, 2)))
    (folder / "t-images-idx3-ubyte").write_bytes(
        bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2]) + rng.bytes(12)
    )
    (folder / "rows.csv").write_text(
        '\ufeff"x","series",y,label\r\n 1,"s ""1"", x",2,\r\n\r\n"3","s ""1"", x",-1e0,b\r\n1,t,0,c\r\n'
    )
    (folder / "one.tsv").write_text("x\ty\n1\t2\n3\t4.5")
    (folder / "other.csv").write_text("x;y\n1;2\n3;4,5\n".replace(",", "."))
    return sorted(folder.iterdir())


@in_a_browser
def test_a_frame_tagger_page_shows_the_segments_of_ensue(
    dark: bool, with_page: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = with_page("tag-frames")
    model: Any = ensue.load(folder / "tag-frames")
    (tmp_path / "data").mkdir()
    files = [*series_files(tmp_path / "data"), folder / "sensors.csv"]
    lines = [line.rstrip("\n").split("\t") for path in files for line in model.prediction_lines(str(path))]
    parts = [segments(labels.split(), False, 1) for _, labels in lines]
    with opened(folder, dark=dark) as browser:

        def says(wrong: str) -> None:
            browser.until("!document.getElementById('wrong').hidden")
            assert browser.text("#wrong") == f"This did not work: {wrong}"

        browser.until("document.getElementById('told').textContent.startsWith('Choose a file')")
        browser.find("#files").send_keys("\n".join(map(str, files)))
        browser.until(f"document.querySelectorAll('#shown tbody tr').length === {len(lines)}")
        rows = [[" ".join(label for label, _, _ in part), name] for part, (name, _) in zip(parts, lines, strict=True)]
        assert browser.texts("#shown td") == [cell for row in rows for cell in row]
        browser.find("#shown").send_keys("\ue010")  # the key to the end
        name, begin, end = parts[-1][1]
        shares = next(iter(model.predict(model.source(f"{files[-1]}[8]"), confidence=True))).probabilities
        share = np.mean(shares[int(begin) : int(end)])
        browser.find("#line").send_keys("\ue014\ue014")  # twice the arrow to the right
        assert browser.text("#told") == f"8, frames {begin:.0f} to {end - 1:.0f}: {name}, mean P {share:.4f}"
        labels, begins, ends = zip(*parts[-1], strict=True)
        assert tuple(browser.texts("#parts td")[::4]) == tuple(browser.texts("#line .chip")) == labels
        assert [float(text) for text in browser.texts("#parts td")[1::4]] == list(begins)
        assert [float(text) + 1 for text in browser.texts("#parts td")[2::4]] == list(ends)
        browser.write("#text", "1 2\n3  4.5\n")
        browser.until("document.getElementById('told').textContent.startsWith('numbers (2 frames)')")
        browser.write("#text", "x,y\n1,2\n3")
        says("numbers: row 3 has 1 cells; the first row has 2")
        browser.write("#text", "1,2,3")
        says("numbers: expected rows of 2 numbers, found 3")
        browser.run("document.getElementById('text').value = '1,2\\n'.repeat(20001)")
        browser.find("#text").send_keys("\n3,4")
        says("numbers: the page reads series of at most 20,000 frames; the module reads longer ones")
        browser.run(
            "const transfer = new DataTransfer(); transfer.items.add(new File(['x,y\\n1,2'], 'drop.csv'));"
            "document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true }))"
        )
        browser.until("document.getElementById('told').textContent.startsWith('drop.csv (1 frame)')")
        for file, content, wrong in (
            ("n.csv", "x,y\n1,a", 'row 2: "a" is not a number'), ("m.csv", "y,x\n1,2", "the columns are not x, y"),
            ("p.csv", "path\na.npy", "the table has paths; choose the files themselves"),
            ("q.npy", "\x93NUMPY", "the file is damaged, or not an array of numbers in C order"),
            ("z.txt", "1,2", "unknown suffix; expected .npy, .csv or .tsv, or an idx file"),
            ("e.csv", "x,y\n1,", "a number of a frame is missing or infinite"),
        ):  # fmt: skip
            (tmp_path / file).write_text(content)
            browser.run("document.getElementById('files').value = ''")
            browser.find("#files").send_keys(str(tmp_path / file))
            browser.until(f"document.getElementById('wrong').textContent.includes({json.dumps(file)})")
            says(f"{file}: {wrong}")


@in_node
@pytest.mark.parametrize("run", ["classify-frames", "tag-frames"])
def test_the_examples_of_the_folder_run(run: str, with_page: Callable[[str], Path]) -> None:
    page = with_page(run) / "page"
    (page / "examples.js").write_text(
        re.findall(r"```js\n(.*?)```", (page / "README.md").read_text("utf-8"), re.DOTALL)[0]
    )
    assert re.search(r"^\S+ .*0\.\d{4}", node(page, "examples.js"))
