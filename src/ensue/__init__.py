"""Small sequence models on your own data: train them, use them, look inside.

    import ensue
    lm = ensue.train("char-lstm", train="book.txt", out="run")
    for piece in ensue.load("run").generate("Once"): print(piece, end="")

Names are imported at first use, so `import ensue` and `ensue --help` need no torch.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from ensue.version import VERSION as __version__

if TYPE_CHECKING:
    from ensue import nn
    from ensue.extensions.annotating.teachers import distill
    from ensue.extensions.experiments.comparison import compare
    from ensue.extensions.exporting.exporting import export_run
    from ensue.extensions.hub.pushing import push
    from ensue.extensions.importing.importing import import_run
    from ensue.library import load, train

    __all__ = ["__version__", "compare", "distill", "export_run", "import_run", "load", "nn", "push", "train"]

MODULES = {"load": "ensue.library:load", "nn": "ensue.nn", "train": "ensue.library:train"}
"""For each name of the core, its place."""


def names() -> dict[str, str]:
    """Return the places of the public names, "module:attribute" or "module"."""
    from ensue.extension import entries  # noqa: PLC0415 (`import ensue` does without)

    return {name: entry.value for name, entry in entries("name").items()} | MODULES


def __dir__() -> list[str]:
    """Return the public names, for completion in a notebook or a shell."""
    return sorted({*globals(), *names()})


if not TYPE_CHECKING:  # a type checker would take any name from __getattr__, a misspelled one as well

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted(
                ["__version__", *(name for name, place in names().items() if ":" in place or name in MODULES)]
            )
        place = MODULES.get(name) or (not name.startswith("_") and names().get(name))
        if not place:
            raise AttributeError(f"module 'ensue' has no attribute {name!r}")
        module, _, attribute = place.partition(":")
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else loaded


class _Alias:
    """Finder and loader of modules of extensions by their public names, such as `ensue.sklearn`.

    Its base classes are left out, since importing importlib.abc takes long.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        place = names().get(name, ":") if package == "ensue" else ":"
        return None if ":" in place else ModuleSpec(fullname, self, origin=place)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Any:
        assert spec.origin is not None
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: Any) -> None:
        module.__spec__ = module.__spec__.loader_state  # which the import of the alias has replaced


sys.meta_path.append(_Alias())  # type: ignore[arg-type]
