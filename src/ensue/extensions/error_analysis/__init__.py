"""Errors of taggers and classifiers by kind, and precision and recall by the threshold on the probability."""

from pathlib import Path

from ensue.extension import Extension, PipelineMethod

_REPORT, _PIPELINE = "ensue.extensions.error_analysis.report", "ensue.tasks.words.pipeline:WordPipeline"
_PRECISION = "Choose P of --at-least: the smallest P with at least this precision on the data"

EXTENSION = Extension(
    name="error_analysis",
    methods={
        "report": PipelineMethod(
            f"{_REPORT}:report", _PIPELINE, "evaluate",
            {
                "errors": (Path, "Write errors by kind (.csv, .jsonl), or words with a wrong label (.tsv)."),
                "curve": (Path, "Write precision and recall for each P of --at-least (.csv, .jsonl, .svg, .png)."),
                "at_precision": (float, f"{_PRECISION}."),
            },
            reads_data=True,
        ),
        "with_precision": PipelineMethod(
            f"{_REPORT}:with_precision", _PIPELINE, "predict",
            {"at_precision": (float, f"{_PRECISION}, with --on FILE."), "on": (Path, "The data of --at-precision.")},
        ),
    },
)  # fmt: skip
