"""Wheels of runs: the command `ensue pack`, and the function `ensue.pack`."""

from ensue.extension import Extension

EXTENSION = Extension(
    name="packing", commands={"pack": "ensue_packing.command:pack"}, names={"pack": "ensue_packing.packing:pack"},
    needs=("hub",),
)  # fmt: skip
