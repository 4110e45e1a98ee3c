"""The hub of Hugging Face."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="hub",
    commands={"push": "ensue.extensions.hub.command:push"},
    names={"push": "ensue.extensions.hub.pushing:push"},
    needs=("importing",),
)
