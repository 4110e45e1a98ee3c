"""Norms of gradients through time, on a copy task."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="gradients",
    commands={"gradients": "ensue.extensions.gradients.command:gradients"},
    names={"inspection.gradients": "ensue.extensions.gradients.gradients"},
)
