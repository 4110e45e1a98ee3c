"""Localization: translation memories (TMX), XLIFF and PO files, glossaries, and markup in translations."""

from pathlib import Path

from ensue.extension import Extension, PipelineMethod

GLOSSARY_HELP = (
    "A file of lines SOURCE, tab, TARGET: if a text has SOURCE, its output must contain TARGET (!TARGET: must not)."
)
MARKUP_HELP = "Copy tags and placeholders of the source into the output, by alignment."

EXTENSION = Extension(
    name="localization",
    formats={
        **dict.fromkeys(("po", "pot"), "ensue.extensions.localization.translations:read_po"),
        **dict.fromkeys(("xlf", "xliff"), "ensue.extensions.localization.translations:read_xliff"),
    },
    pair_formats={"tmx": "ensue.extensions.localization.translations:TMX"},
    methods={
        "with_glossary": PipelineMethod(
            "ensue.extensions.localization.glossary:with_glossary", "ensue.tasks.sequence_to_sequence.writer:Writer",
            "predict", {"glossary": (Path, GLOSSARY_HELP)},
        ),
        "with_markup": PipelineMethod(
            "ensue.extensions.localization.markup:with_markup",
            "ensue.tasks.sequence_to_sequence.pipeline:SequencePipeline",
            "predict", {"keep_markup": (bool, MARKUP_HELP)},
        ),
    },
)  # fmt: skip
