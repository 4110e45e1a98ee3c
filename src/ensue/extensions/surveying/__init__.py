"""The command `data`, which shows statistics of data, their first error, and a training command."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="surveying",
    commands={"data": "ensue.extensions.surveying.command:data"},
    proposals={"data": "ensue.extensions.surveying.summary:propose"},
)
