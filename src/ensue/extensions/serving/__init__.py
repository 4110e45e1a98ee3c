"""Models over HTTP."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="serving",
    commands={"serve": "ensue.extensions.serving.command:serve"},
)
