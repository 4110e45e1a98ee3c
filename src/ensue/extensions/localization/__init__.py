"""Translators at work: files of translation memories and translators, glossaries, markup."""

from pathlib import Path

from ensue.extension import Extension, PipelineMethod

GLOSSARY = "Lines of SOURCE, tab, TARGET: where a text has SOURCE, its output has TARGET; with !TARGET: has not."
MARKUP = "Of a translator: tags and placeholders come out where they belong."

EXTENSION = Extension(
    name="localization",
    formats={
        **dict.fromkeys(("po", "pot"), "ensue.extensions.localization.translations:po_rows"),
        **dict.fromkeys(("xlf", "xliff"), "ensue.extensions.localization.translations:xliff_rows"),
    },
    pair_formats={"tmx": "ensue.extensions.localization.translations:TMX"},
    methods={
        "with_glossary": PipelineMethod(
            "ensue.extensions.localization.glossary:with_glossary", "ensue.tasks.sequence_to_sequence.writer:Writer",
            "predict", {"glossary": (Path, GLOSSARY)},
        ),
        "with_markup": PipelineMethod(
            "ensue.extensions.localization.markup:with_markup",
            "ensue.tasks.sequence_to_sequence.pipeline:SequencePipeline",
            "predict", {"keep_markup": (bool, MARKUP)},
        ),
    },
)  # fmt: skip
