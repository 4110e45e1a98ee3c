"""Classifiers and taggers of frames as C: sounds as frames, their normalization, layers, and the two heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ensue.extensions.exporting.c.classifying import class_head, class_labels
from ensue.extensions.exporting.c.printing import Parts, Weights, c_string, piece
from ensue.extensions.exporting.c.tagging import ROWS, label_names, label_tables, tag_head
from ensue.extensions.exporting.c.word_layers import Steps, layer_table
from ensue.extensions.frames.classification import FrameClassificationPipeline
from ensue.extensions.frames.data.series import LogMel
from ensue.extensions.frames.data.sounds import framing, hann, mel_triangles
from ensue.extensions.frames.labeling import FrameLabelingPipeline
from ensue.extensions.frames.tasks.pipeline import FramesPipeline

MESSAGES = {"NOT_FINITE": "a number of a frame is missing or infinite"}
MESSAGES_OF_SOUNDS = {
    "NO_SOUND": "no WAV file with whole numbers of 8 to 32 bits, or none that is whole",
    "OTHER_RATE": "a sound has another rate than the training data",
}
ABOUT = {
    "classes": "A classifier of ensue: the labels of series of frames, with their probabilities.",
    "tags": "A tagger of ensue: a label for each frame of a series, and how probable it is.",
}
OPTIONS = {"classes": "[--at-least P]", "tags": "[--probabilities]"}
USAGE = {
    "classes": """\
    ./NAME FILE ...                    name, labels and probability of each series
    ./NAME --at-least 0.9 FILE ...     no label that is less probable
""",
    "tags": """\
    ./NAME FILE ...                    the name of each series, and the labels of its frames
    ./NAME --probabilities FILE ...    with the probability of each label
""",
}


def frame_classifier_parts(pipeline: FrameClassificationPipeline, weights: Weights) -> Parts:
    """The parts of a classifier of frames. Raises `Untraceable` or ValueError for what cannot be printed as C."""
    model, labels = pipeline.model, pipeline.labels
    constants = class_labels(model, labels, weights)
    pieces = _layers(pipeline, weights, constants)
    pieces += [*class_head(model, weights, constants), "choice.h", "frames.h", "frame_classes.h"]
    return _parts(pipeline, weights, constants, pieces, len(labels), "classes")


def frame_tagger_parts(pipeline: FrameLabelingPipeline, weights: Weights) -> Parts:
    """The parts of a tagger of frames. Raises as `frame_classifier_parts`."""
    constants: dict[str, Any] = {}
    pieces, names = _layers(pipeline, weights, constants), label_names(pipeline.labels)
    tag_head(pipeline.model.head, weights, constants)
    tables = label_tables(pipeline.labels, names, weights, constants)
    pieces += ["emissions.h", "paths.h", tables, "labels.h", "frames.h", "frame_tags.h"]
    return _parts(pipeline, weights, constants, pieces, len(names), "tags")


def _layers(pipeline: FramesPipeline, weights: Weights, constants: dict[str, Any]) -> list[str]:
    """The pieces of the layers, and what is known of frames."""
    steps, seen = Steps(weights, ROWS), pipeline.seen
    table = layer_table(pipeline.model.layers, steps, constants)
    constants |= steps.sizes() | {
        "ROWS": ROWS, "D_FRAME": seen.shape.width, "D_WAVE": 0, "MOST_FRAMES": pipeline.recipe.most_frames,
        "READS_MISSING": int(pipeline.recipe.data.missing == "mean"),
        "AT_MEAN": weights.add(torch.tensor(seen.mean)), "AT_DEVIATION": weights.add(torch.tensor(seen.deviation)),
    }  # fmt: skip
    return ["stored.h", "rows.h", "layers.h", *(step.text for step in steps.steps), table]


def _parts(
    pipeline: FramesPipeline, weights: Weights, constants: dict[str, Any], pieces: list[str], labels: int, head: str
) -> Parts:
    """The parts of both, whose files differ in what the `head` gives."""
    shape, reading = pipeline.seen.shape, pipeline.recipe.reading()
    others = [reading.series, reading.labels, reading.time, *([reading.group] if reading.group else [])]
    said: dict[str, Any] = {
        "ABOUT_FRAMES": ABOUT[head], "OPTION": OPTIONS[head], "LABELS": labels, "WIDTH": shape.width,
        "HEAD": piece(f"frame_{head}_header.h"), "ANSWER": piece(f"frame_{head}_example.c"),
        "SOUNDS": "", "READ_SOUND": "", "SOUND_READERS": "", "MISSING": int(reading.missing == "mean"),
    }  # fmt: skip
    texts = {
        "OTHERS": ", ".join(map(c_string, others)),
        "COLUMNS": ", ".join(map(c_string, shape.columns)) or "NULL",
    }
    messages = MESSAGES
    if shape.is_sound:
        pieces, messages = [*pieces, "sounds.h"], MESSAGES | MESSAGES_OF_SOUNDS
        constants |= _sounds(reading.sound, round(shape.rate), weights)
        said |= {
            "SOUNDS": piece("sounds_header.h"), "READ_SOUND": piece("sounds_example.c"), "RATE": round(shape.rate),
            "SOUND_READERS": ', {".wav", read_sound}, {".wave", read_sound}',
        }  # fmt: skip
    constants["MORE_MESSAGES"] = " ".join(f'case NAME_{code}: return "{text}";' for code, text in messages.items())
    return Parts(constants, pieces, interface="frames", said=said, usage=USAGE[head], texts=texts)


def _sounds(sound: LogMel, rate: int, weights: Weights) -> dict[str, Any]:
    """The constants of sounds.h: the window, the triangles of the bands, and the angles of the transform."""
    size, step, points = framing(sound, rate)
    triangles = mel_triangles(sound.bands, points, rate, sound.lowest, sound.highest or rate / 2)
    inside = [np.flatnonzero(band) for band in triangles]
    parts = [band[places[0] : places[-1] + 1] for band, places in zip(triangles, inside, strict=True)]
    angles = np.zeros(points)
    for half in (1 << stage for stage in range(points.bit_length() - 1)):
        angles[half : 2 * half] = np.pi * np.arange(half) / half
    return {
        "POINTS": points, "BINS": points // 2 + 1, "D_WAVE": 2 * (points + points // 2 + 1),
        "FRAME_SIZE": size, "FRAME_STEP": step, "FLOOR": repr(sound.floor), "REACH": repr(sound.reach),
        "AT_WINDOW": weights.add(hann(size)),
        "AT_COSINES": weights.add(np.cos(angles).tobytes()), "AT_SINES": weights.add(np.sin(angles).tobytes()),
        "AT_BANDS": weights.add(np.concatenate(parts).tobytes()),
        "AT_BAND_STARTS": weights.add(np.cumsum([0, *map(len, parts)]).astype(np.uint32)),
        "AT_BAND_FIRSTS": weights.add(np.array([places[0] for places in inside], np.uint32)),
    }  # fmt: skip
