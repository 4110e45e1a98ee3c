"""How Sphinx builds these pages: `make docs` writes them to docs/_build."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

VERSION_FILE = Path(__file__).parents[1] / "src" / "ensue" / "version.py"

project = "ensue"
copyright = "the authors of ensue"
release = re.findall('VERSION = "(.+)"', VERSION_FILE.read_text(encoding="utf-8"))[0]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"ensue {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_theme_options = {"top_of_page_buttons": []}  # the pages have no address yet at which their source could be read
html_copy_source = html_show_sourcelink = False
exclude_patterns = ["_build"]

# docs/api.md: signatures from the code, text from docstrings, in which names stand between single backticks
default_role = "literal"
add_module_names = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"


def without_constructor(app: Any, what: str, name: str, thing: Any, options: Any, *signature: str) -> Any:
    """How pipelines and pages are made is no part of the interface, and abstract layers have no constructor."""
    made_elsewhere = ("Pipeline", "Predictor", "Writer", "TextVectors", "Inspection")
    return ("", None) if name.endswith((*made_elsewhere, ".SequenceLayer", ".Recurrent", ".Parallel")) else None


def mathml(text: str, display: str) -> str:
    """A formula as a browser shows it by itself: no page asks another server for anything."""
    known = text.replace("{aligned}", "{align*}")  # of the two the package knows the second one
    return convert(known, display=display).replace("<mi>&#x02032;</mi>", '<mi mathsize="125%">&#x02032;</mi>')  # primes


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_formula(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_formula, None))
    app.connect("autodoc-process-signature", without_constructor)
