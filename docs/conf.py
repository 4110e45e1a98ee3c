"""The configuration of Sphinx. `make docs` writes the pages to docs/_build."""

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
html_theme_options = {
    "top_of_page_buttons": []
}  # no link to the source, since the repository has no public address yet
html_copy_source = html_show_sourcelink = False
exclude_patterns = ["_build"]

# docs/api.md: signatures come from the code, text from docstrings, which have names in single backticks
default_role = "literal"
add_module_names = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"


def hide_constructor(app: Any, what: str, name: str, thing: Any, options: Any, *signature: str) -> Any:
    """Hide the constructors of pipelines and pages, which are not public, and of abstract layers."""
    without_public_constructor = ("Pipeline", "Predictor", "Writer", "TextVectors", "Inspection")
    return (
        ("", None)
        if name.endswith((*without_public_constructor, ".SequenceLayer", ".Recurrent", ".Parallel"))
        else None
    )


def mathml(text: str, display: str) -> str:
    """Convert a formula to MathML, which browsers display without scripts of other servers."""
    supported = text.replace("{aligned}", "{align*}")  # latex2mathml does not support aligned
    return convert(supported, display=display).replace(
        "<mi>&#x02032;</mi>", '<mi mathsize="125%">&#x02032;</mi>'
    )  # primes


def visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_formula(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_formula, None))
    app.connect("autodoc-process-signature", hide_constructor)
