"""Classifiers and taggers of series as C: features of sounds, their normalization, layers, and the two heads."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from ensue.extensions.exporting.c.classifying import class_head, class_labels
from ensue.extensions.exporting.c.printing import Parts, Weights, c_string, piece
from ensue.extensions.exporting.c.tagging import ROWS, label_names, label_tables, tag_head
from ensue.extensions.exporting.c.word_layers import Steps, layer_table
from ensue.tasks.contract.description import ClassOutput, ModelDescription, SeriesInput, SoundFeatures, TagOutput
from ensue.text.labels import Labels

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


def series_classifier_parts(description: ModelDescription, weights: Weights) -> Parts:
    """Return a classifier of series as C. Raises `Untraceable` or ValueError for a model that C does not have."""
    model, labels = cast(Any, description.model), cast(ClassOutput, description.output).labels
    constants = class_labels(model, labels, weights)
    pieces = _layers(description, weights, constants)
    pieces += [*class_head(model, weights, constants), "choice.h", "frames.h", "frame_classes.h"]
    return _parts(description, weights, constants, pieces, len(labels), "classes")


def series_tagger_parts(description: ModelDescription, weights: Weights) -> Parts:
    """Return a tagger of series as C. Raises as `series_classifier_parts`."""
    model, labels = cast(Any, description.model), cast(TagOutput, description.output).labels
    assert isinstance(labels, Labels)
    constants: dict[str, Any] = {}
    pieces, names = _layers(description, weights, constants), label_names(labels)
    tag_head(model.head, weights, constants)
    tables = label_tables(labels, names, weights, constants)
    pieces += ["emissions.h", "paths.h", tables, "labels.h", "frames.h", "frame_tags.h"]
    return _parts(description, weights, constants, pieces, len(names), "tags")


def _layers(description: ModelDescription, weights: Weights, constants: dict[str, Any]) -> list[str]:
    """Return the pieces of the layers, and set the constants of the input."""
    steps, series = Steps(weights, ROWS), cast(SeriesInput, description.input)
    table = layer_table(cast(Any, description.model).layers, steps, constants)
    constants |= steps.sizes() | {
        "ROWS": ROWS, "D_FRAME": len(series.mean), "D_WAVE": 0, "MOST_FRAMES": series.max_length,
        "READS_MISSING": int(series.has_missing),
        "AT_MEAN": weights.add(torch.tensor(series.mean)), "AT_DEVIATION": weights.add(torch.tensor(series.deviation)),
    }  # fmt: skip
    return ["stored.h", "rows.h", "layers.h", *(step.text for step in steps.steps), table]


def _parts(
    description: ModelDescription, weights: Weights, constants: dict[str, Any], pieces: list[str], labels: int,
    head: str,
) -> Parts:  # fmt: skip
    """Return the parts of both kinds; their files differ in the output of the `head`."""
    series = cast(SeriesInput, description.input)
    others = [series.series_column, series.label_column, series.time_column, *filter(None, [series.group_column])]
    values: dict[str, Any] = {
        "ABOUT_FRAMES": ABOUT[head], "OPTION": OPTIONS[head], "LABELS": labels, "WIDTH": len(series.mean),
        "HEAD": piece(f"frame_{head}_header.h"), "ANSWER": piece(f"frame_{head}_example.c"),
        "SOUNDS": "", "READ_SOUND": "", "SOUND_READERS": "", "MISSING": int(series.has_missing),
    }  # fmt: skip
    texts = {
        "OTHERS": ", ".join(map(c_string, others)),
        "COLUMNS": ", ".join(map(c_string, series.columns)) or "NULL",
    }
    messages = MESSAGES
    if series.sound is not None:
        pieces, messages = [*pieces, "sounds.h"], MESSAGES | MESSAGES_OF_SOUNDS
        constants |= _sounds(series.sound, weights)
        values |= {
            "SOUNDS": piece("sounds_header.h"), "READ_SOUND": piece("sounds_example.c"), "RATE": series.sound.rate,
            "SOUND_READERS": ', {".wav", read_sound}, {".wave", read_sound}',
        }  # fmt: skip
    constants["MORE_MESSAGES"] = " ".join(f'case NAME_{code}: return "{text}";' for code, text in messages.items())
    return Parts(constants, pieces, interface="frames", values=values, usage=USAGE[head], texts=texts)


def _sounds(sound: SoundFeatures, weights: Weights) -> dict[str, Any]:
    """Return the constants of sounds.h: the window, the triangles of the bands, and the angles of the transform."""
    points = sound.points
    inside = [np.flatnonzero(band) for band in sound.bands]
    parts = [band[places[0] : places[-1] + 1] for band, places in zip(sound.bands, inside, strict=True)]
    angles = np.zeros(points)
    for half in (1 << stage for stage in range(points.bit_length() - 1)):
        angles[half : 2 * half] = np.pi * np.arange(half) / half
    return {
        "POINTS": points, "BINS": points // 2 + 1, "D_WAVE": 2 * (points + points // 2 + 1),
        "FRAME_SIZE": sound.size, "FRAME_STEP": sound.step, "FLOOR": repr(sound.floor), "REACH": repr(sound.reach),
        "AT_WINDOW": weights.add(sound.window),
        "AT_COSINES": weights.add(np.cos(angles).tobytes()), "AT_SINES": weights.add(np.sin(angles).tobytes()),
        "AT_BANDS": weights.add(np.concatenate(parts).tobytes()),
        "AT_BAND_STARTS": weights.add(np.cumsum([0, *map(len, parts)]).astype(np.uint32)),
        "AT_BAND_FIRSTS": weights.add(np.array([places[0] for places in inside], np.uint32)),
    }  # fmt: skip
