"""Better labels: doubts about them, texts that are worth a label, models taught by others."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="annotating",
    commands={name: "ensue.extensions.annotating.command:" + name for name in ("distill", "begin", "doubt", "choose")},
    names={"distill": "ensue.extensions.annotating.teachers:distill"},
)
