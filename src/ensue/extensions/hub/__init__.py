"""Upload and download of runs at the Hugging Face Hub, and the list of installed models."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="hub", commands={name: f"ensue.extensions.hub.command:{name}" for name in ("push", "models")},
    schemes={"hf": "ensue.extensions.hub.addresses:HUB"},
    importers={"hub": "ensue.extensions.hub.importing:import_repository"},
    names={"push": "ensue.extensions.hub.pushing:push"}, needs=("importing",),
)  # fmt: skip
