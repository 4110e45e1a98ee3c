"""How Sphinx builds these pages: `make docs` writes them to docs/_build."""

import re
from pathlib import Path
from typing import Any

VERSION_FILE = Path(__file__).parents[1] / "src" / "ensue" / "version.py"

project = "ensue"
copyright = "the authors of ensue"
release = re.findall('"(.+)"', VERSION_FILE.read_text(encoding="utf-8"))[-1]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"ensue {release}"
exclude_patterns = ["_build"]

# docs/api.md: signatures from the code, text from docstrings, in which names stand between single backticks
default_role = "literal"
add_module_names = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "groupwise"


def without_constructor(app: Any, what: str, name: str, thing: Any, options: Any, *signature: str) -> Any:
    """How pipelines and pages are made is no part of the interface."""
    return ("", None) if name.endswith(("Pipeline", "Predictor", "Writer", "TextVectors", "Inspection")) else None


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", without_constructor)
