"""The command `serve`, which serves trained models over an HTTP API."""

from ensue.extension import Extension

EXTENSION = Extension(name="serving", commands={"serve": "ensue.extensions.serving.command:serve"})
