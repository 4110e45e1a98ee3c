"""How Sphinx builds these pages: `make docs` writes them to docs/_build."""

import re
from pathlib import Path

VERSION_FILE = Path(__file__).parents[1] / "src" / "ensue" / "version.py"

project = "ensue"
copyright = "the authors of ensue"
release = re.findall('"(.+)"', VERSION_FILE.read_text(encoding="utf-8"))[-1]
extensions = ["myst_parser", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"ensue {release}"
exclude_patterns = ["_build"]
