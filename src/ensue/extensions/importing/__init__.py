"""The command `import`, which converts published models to run directories."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="importing",
    commands={"import": "ensue.extensions.importing.command:import_"},
    names={"import_run": "ensue.extensions.importing.importing:import_run"},
)
