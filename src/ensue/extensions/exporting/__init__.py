"""Models for programs without ensue: ONNX, C, web pages, transformers."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="exporting",
    commands={"export": "ensue.extensions.exporting.command:export"},
    names={"export_run": "ensue.extensions.exporting.exporting:export_run"},
    needs=("frames", "importing"),
)
