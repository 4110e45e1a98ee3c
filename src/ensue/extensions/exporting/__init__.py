"""The command `export`, which writes a model as ONNX, as C, as a web page, or as a directory for transformers."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="exporting", commands={"export": "ensue.extensions.exporting.command:export"},
    exporters={
        "huggingface": "ensue.extensions.exporting.huggingface.models:export_huggingface",
        "sentence-transformers": "ensue.extensions.exporting.huggingface.models:export_sentences",
        "onnx": "ensue.extensions.exporting.onnx:export_onnx",
        "c": "ensue.extensions.exporting.c.writing:export_c",
        "web": "ensue.extensions.exporting.web.writing:export_web",
    },
    names={"export_run": "ensue.extensions.exporting.exporting:export_run"}, needs=("importing",),
)  # fmt: skip
