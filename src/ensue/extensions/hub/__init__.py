"""Upload and download of runs at the Hugging Face Hub."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="hub", commands={"push": "ensue.extensions.hub.command:push"},
    schemes={"hf": "ensue.extensions.hub.addresses:HUB"},
    importers={"hub": "ensue.extensions.hub.importing:import_repository"},
    names={"push": "ensue.extensions.hub.pushing:push"}, needs=("importing",),
)  # fmt: skip
