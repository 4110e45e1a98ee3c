"""Export of classifiers and taggers of series to C: audio features, normalization, layers, and heads."""

from typing import Any, cast

import numpy as np
import torch

from ensue.extensions.exporting.c.classifying import add_labels, head_templates
from ensue.extensions.exporting.c.printing import CModel, Weights, c_string, read_template
from ensue.extensions.exporting.c.tagging import MAX_ROWS, label_names, label_tables, tag_head
from ensue.extensions.exporting.c.word_layers import LayerSteps, layer_table
from ensue.tasks.contract.description import ClassOutput, ModelDescription, SeriesInput, SoundFeatures, TagOutput
from ensue.text.labels import Labels

MESSAGES = {"NOT_FINITE": "a number of a frame is missing or infinite"}
SOUND_MESSAGES = {
    "NO_SOUND": "not a PCM WAV file of 8 to 32 bits, or truncated",
    "OTHER_RATE": "the sample rate of a sound differs from that of the training data",
}
ABOUT = {
    "classes": "A classifier of ensue: the labels of series of frames, with their probabilities.",
    "tags": "A tagger of ensue: a label for each frame of a series, with its probability.",
}
OPTIONS = {"classes": "[--at-least P]", "tags": "[--probabilities]"}
USAGE = {
    "classes": """\
    ./NAME FILE ...                    name, labels and probability of each series
    ./NAME --at-least 0.9 FILE ...     only labels with this probability or more
""",
    "tags": """\
    ./NAME FILE ...                    the name of each series, and the labels of its frames
    ./NAME --probabilities FILE ...    with the probability of each label
""",
}


def series_classifier_source(description: ModelDescription, weights: Weights) -> CModel:
    """Return the C source of a classifier of series. Raises `Untraceable` or ValueError for an unsupported model."""
    model, labels = cast(Any, description.model), cast(ClassOutput, description.output).labels
    weights.constants |= add_labels(model, labels, weights)
    templates = _add_layers(description, weights)
    templates += [*head_templates(model, weights), "choice.h", "frames.h", "frame_classes.h"]
    return _series_source(description, weights, templates, len(labels), "classes")


def series_tagger_source(description: ModelDescription, weights: Weights) -> CModel:
    """Return the C source of a tagger of series. Raises `Untraceable` or ValueError for an unsupported model."""
    model, labels = cast(Any, description.model), cast(TagOutput, description.output).labels
    assert isinstance(labels, Labels)
    templates, names = _add_layers(description, weights), label_names(labels)
    tag_head(model.head, weights)
    tables = label_tables(labels, names, weights)
    templates += ["emissions.h", "paths.h", tables, "labels.h", "frames.h", "frame_tags.h"]
    return _series_source(description, weights, templates, len(names), "tags")


def _add_layers(description: ModelDescription, weights: Weights) -> list[str]:
    steps, series = LayerSteps(weights, MAX_ROWS), cast(SeriesInput, description.input)
    table = layer_table(cast(Any, description.model).layers, steps)
    weights.constants |= steps.sizes() | {
        "ROWS": MAX_ROWS, "D_FRAME": len(series.mean), "D_WAVE": 0, "MAX_FRAMES": series.max_length,
        "READS_MISSING": int(series.has_missing),
        "AT_MEAN": weights.add(torch.tensor(series.mean)), "AT_DEVIATION": weights.add(torch.tensor(series.deviation)),
    }  # fmt: skip
    return ["stored.h", "rows.h", "layers.h", *(step.text for step in steps.steps), table]


def _series_source(
    description: ModelDescription, weights: Weights, templates: list[str], num_labels: int, head: str
) -> CModel:
    series = cast(SeriesInput, description.input)
    others = [
        series.series_column, series.label_column, *series.time_column.split(","), *filter(None, [series.group_column]),
    ]  # fmt: skip
    values: dict[str, Any] = {
        "ABOUT_FRAMES": ABOUT[head], "OPTION": OPTIONS[head], "LABELS": num_labels, "WIDTH": len(series.mean),
        "HEAD": read_template(f"frame_{head}_header.h"), "ANSWER": read_template(f"frame_{head}_example.c"),
        "SOUNDS": "", "READ_SOUND": "", "SOUND_READERS": "", "MISSING": int(series.has_missing),
    }  # fmt: skip
    texts = {"OTHERS": ", ".join(map(c_string, others)), "COLUMNS": ", ".join(map(c_string, series.columns)) or "NULL"}
    messages = MESSAGES
    if series.sound is not None:
        templates, messages = [*templates, "sounds.h"], MESSAGES | SOUND_MESSAGES
        weights.constants |= _sound_constants(series.sound, weights)
        values |= {
            "SOUNDS": read_template("sounds_header.h"), "READ_SOUND": read_template("sounds_example.c"),
            "RATE": series.sound.rate, "SOUND_READERS": ', {".wav", read_sound}, {".wave", read_sound}',
        }  # fmt: skip
    cases = (f'case NAME_{code}: return "{text}";' for code, text in messages.items())
    weights.constants["MORE_MESSAGES"] = " ".join(cases)
    return CModel(templates, interface="frames", values=values, usage=USAGE[head], texts=texts)


def _sound_constants(sound: SoundFeatures, weights: Weights) -> dict[str, Any]:
    """Return the constants of sounds.h: the window, the mel filters, and the angles of the Fourier transform."""
    points = sound.points
    bins = [np.flatnonzero(band) for band in sound.bands]
    triangles = [band[used[0] : used[-1] + 1] for band, used in zip(sound.bands, bins, strict=True)]
    angles = np.zeros(points)
    for half in (1 << stage for stage in range(points.bit_length() - 1)):
        angles[half : 2 * half] = np.pi * np.arange(half) / half
    return {
        "POINTS": points, "BINS": points // 2 + 1, "D_WAVE": 2 * (points + points // 2 + 1), "FRAME_SIZE": sound.size,
        "FRAME_STEP": sound.step, "FLOOR": repr(sound.floor), "DYNAMIC_RANGE": repr(sound.dynamic_range),
        "AT_WINDOW": weights.add(sound.window), "AT_COSINES": weights.add(np.cos(angles).tobytes()),
        "AT_SINES": weights.add(np.sin(angles).tobytes()), "AT_BANDS": weights.add(np.concatenate(triangles).tobytes()),
        "AT_BAND_STARTS": weights.add(np.cumsum([0, *map(len, triangles)]).astype(np.uint32)),
        "AT_BAND_FIRSTS": weights.add(np.array([used[0] for used in bins], np.uint32)),
    }  # fmt: skip
