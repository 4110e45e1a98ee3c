"""Train, use and inspect small sequence models on your own data.

    import ensue
    lm = ensue.train("char-lstm", train="book.txt", out="run")
    for text in ensue.load("run").generate("Once"): print(text, end="")

Names are imported at first use, so `import ensue` and `ensue --help` need no torch.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from ensue.version import VERSION as __version__

if TYPE_CHECKING:
    from ensue import nn
    from ensue.extensions.annotating.doubts import doubt
    from ensue.extensions.annotating.teachers import distill
    from ensue.extensions.experiments.comparison import compare
    from ensue.extensions.exporting.exporting import export_run
    from ensue.extensions.hub.pushing import push
    from ensue.extensions.importing.importing import import_run
    from ensue.library import load, train

    __all__ = ["__version__", "compare", "distill", "doubt", "export_run", "import_run", "load", "nn", "push", "train"]

MODULES = {
    "load": "ensue.library:load", "nn": "ensue.nn", "train": "ensue.library:train", "data.pairs": "ensue.data.examples",
    "tasks.sequence_to_sequence.outputs": "ensue.tasks.sequence_to_sequence.writer",
}  # fmt: skip
"""The core's public names, each with its "module:attribute" or "module". Dotted names are former names of modules."""


def names() -> dict[str, str]:
    """Return the public names, each with its "module:attribute" or "module"."""
    from ensue.extension import entries  # noqa: PLC0415 (not needed by `import ensue`)

    return {name: entry.value for name, entry in entries("name").items()} | MODULES


def __dir__() -> list[str]:
    """Return the public names, for completion in a notebook or a shell."""
    return sorted({*globals(), *(name for name in names() if "." not in name)})


if not TYPE_CHECKING:  # with __getattr__ a type checker would accept misspelled names

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted(["__version__", "nn", *(name for name, place in names().items() if ":" in place)])
        place = MODULES.get(name) or (not name.startswith("_") and names().get(name))
        if not place:
            raise AttributeError(f"module 'ensue' has no attribute {name!r}")
        module, _, attribute = place.partition(":")
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else loaded


class _Alias:
    """Import hook for aliases and former names of modules, without a base class, since importlib.abc imports slowly."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        places = names() if package == "ensue" else {}
        if ":" not in places.get(name, ":"):
            return ModuleSpec(fullname, self, origin=places[name])  # type: ignore[arg-type]
        is_package = any(other.startswith(f"{name}.") for other in places)
        return ModuleSpec(fullname, self, is_package=True) if is_package else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Any:
        if spec.origin is None:
            return None  # an empty package
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        if module.__spec__.origin is not None:
            module.__spec__ = module.__spec__.loader_state  # importing the alias has replaced the module's own spec


sys.meta_path.append(_Alias())  # type: ignore[arg-type]
