"""Export to web pages: the C code of a model as WebAssembly, embedded in an HTML file and in a JavaScript module."""

import json
import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from ensue.errors import EnsueError
from ensue.extensions.exporting.c.precision import F32
from ensue.extensions.exporting.c.writing import fill_template, find_license, identifier, print_c
from ensue.extensions.exporting.exporting import write_directory
from ensue.inspection.page import file_text, render
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract import description as contract
from ensue.tasks.contract.description import ModelDescription
from ensue.version import VERSION, package_file, package_text

TEMPLATES = "extensions/exporting/web/pages"
MIN_ZIG_VERSION = (0, 14)
"""The oldest version of ziglang that compiles the C file."""
FLAGS = (
    "-target", "wasm32-wasi", "-mexec-model=reactor", "-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-Wl,--strip-all", "-Wl,--gc-sections",
)  # fmt: skip
SIMD = ("-Xclang", "-target-feature", "-Xclang", "+simd128")
"""The options for SIMD instructions. With -Xclang they do not apply to the C library, which both builds share."""
TIMEOUT_SECONDS = 600
"""The timeout of the compiler. Its first call also compiles the C library, which takes half a minute."""
SOURCE = "model.page.c"
"""The compiled file, which includes the C file of the model. Names of models have no dot, so this name is free."""
Compile = Callable[[dict[str, bytes], tuple[str, ...]], bytes]
"""A function from the contents of C files and compiler options to WebAssembly."""


class Page(NamedTuple):
    """A page for models of one kind, made of templates in the folder `pages`.

    `NAME.c` has the exported functions, `NAME.js` the class `Model`, `NAME.d.ts` its types, `NAME.html` and
    `NAME.page.js` the page, and `NAME.md` examples. The templates of `shared` are inserted before the templates of
    `name`. `parameters` returns the parameters of the HTML for a model's input.
    """

    name: str
    parameters: Callable[[Any], dict[str, Any]] = lambda _: {}
    shared: tuple[str, ...] = ()

    def templates(self, suffix: str, name: str) -> list[str]:
        """Return the templates with a suffix, filled with the name of the model."""
        files = (template + suffix for template in (*self.shared, self.name))
        return [_template(file, name) for file in files if package_file(f"{TEMPLATES}/{file}").is_file()]


def _language_parameters(tokens: contract.TokenInput) -> dict[str, Any]:
    kind = tokens.tokenizer.kind
    return {
        "token": {"characters": "character", "bytes": "byte", "bpe": "subword"}.get(kind, "word"),
        "length": {"words": 60, "bpe": 120}.get(kind, 400),
    }


def _source_parameters(sources: contract.SourceInput) -> dict[str, Any]:
    tokenizer, names = sources.coder.tokenizer, sources.coder.names.symbols
    text = next((text for text in ("example", "EXAMPLE") if tokenizer.unknown_id not in tokenizer.encode(text)), "")
    columns = range(sources.num_texts)
    return {"examples": [(names or [""])[0] if column in sources.names else text for column in columns]}


def _series_parameters(series: contract.SeriesInput) -> dict[str, Any]:
    times = series.time_column.split(",")
    others = [name for name in (series.label_column, *times, series.group_column) if name]
    return {
        "rate": 0 if series.sound is None else series.sound.rate, "width": len(series.mean),
        "table": {"names": series.columns, "series": series.series_column, "others": others},
    }  # fmt: skip


PAGES: dict[tuple[type, type], Page] = {
    (contract.TokenInput, contract.TokenOutput): Page("language", _language_parameters),
    (contract.WordInput, contract.TagOutput): Page("tagging", shared=("labels", "spans")),
    (contract.WordInput, contract.ClassOutput): Page("classes", shared=("labels", "choice", "list")),
    (contract.SeriesInput, contract.ClassOutput): Page(
        "frame_classes", _series_parameters, ("labels", "choice", "list", "readers", "frames")
    ),
    (contract.SeriesInput, contract.TagOutput): Page(
        "frame_tags", _series_parameters, ("labels", "spans", "list", "readers", "frames")
    ),
    (contract.SourceInput, contract.TextOutput): Page("transducing", _source_parameters, ("list",)),
}
"""The pages by the kinds of input and output of a model's description."""


def export_web(
    run: RunDirectory, description: ModelDescription, out: Path, *, precision: str = F32, overwrite: bool = False
) -> list[str]:
    """Write a model as a web page and a JavaScript module, with the options of `export_run`.

    Raises EnsueError for an unsupported model, and without the package ziglang.
    """
    name = identifier(out)
    find_page(run, description)
    check_compiler()
    contents, notes = page_files(run, description, name, compile_page, precision)
    write_directory(out, contents, overwrite=overwrite)
    size = sum(map(len, contents.values()))
    return [*notes, f"{out}: {len(contents)} files, {size:,} bytes; open {out / name}.html in a browser"]


def find_page(run: RunDirectory, description: ModelDescription) -> Page:
    """Return the page for a model. Raises EnsueError for a kind of model without a page."""
    page = PAGES.get(description.kinds)
    if page is None:
        supported = "expected a language model, an encoder-decoder, or a tagger or classifier of texts or frames"
        raise EnsueError(f"{run.path}: a {run.recipe.what} cannot be exported as a web page; {supported}")
    return page


def page_files(
    run: RunDirectory, description: ModelDescription, name: str, compile: Compile, precision: str = F32
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files by name, and notes. Raises EnsueError for a model without a page or a C export."""
    page, recipe = find_page(run, description), run.recipe
    code, _, notes = print_c(run, description, name, precision=precision)
    script = javascript_module(code, name, page, compile)
    values: dict[str, Any] = {
        "name": name, "what": recipe.what, "about": recipe.describe(), "license": find_license(run.card),
        "version": VERSION,
    }  # fmt: skip
    html = render(
        "extensions/exporting/web/pages/page.html", body=f"extensions/exporting/web/pages/{page.name}.html",
        style=Markup(file_text("style.css")),
        script=Markup("".join([script, _template("page.js", name), *page.templates(".page.js", name)])), **values,
        **page.parameters(description.input),
    )  # fmt: skip
    types = {"exports": {".": {"types": f"./{name}.d.ts", "default": f"./{name}.js"}}, "types": f"./{name}.d.ts"}
    package = {"name": name.lower(), "version": "1.0.0", "type": "module", **types}
    sections = {"examples": _template(f"{page.name}.md", name), "notes": "".join(f"{note}\n\n" for note in notes)}
    texts = {
        f"{name}.html": str(html),
        f"{name}.js": script,
        f"{name}.d.ts": "".join(reversed(page.templates(".d.ts", name))),
        "package.json": json.dumps(package, indent=2) + "\n",
        "README.md": _template("README.md", name).format(**values, **sections, card=run.card),
    }
    return {file: text.encode() for file, text in texts.items()}, notes


def javascript_module(code: dict[str, bytes], name: str, page: Page, compile: Compile) -> str:
    """Return a JavaScript module with the WebAssembly, with and without SIMD instructions, and the weights."""
    code = code | {SOURCE: "\n".join([_template("memory.c", name), *page.templates(".c", name)]).encode()}
    constants = {"SIMD": compile(code, SIMD), "PLAIN": compile(code, ()), "WEIGHTS": code[f"{name}.weights"]}
    lines = [f'const {key} =\n  "{b64encode(value).decode()}";\n' for key, value in constants.items()]
    return "".join([_template("memory.js", name), *page.templates(".js", name), "\n", *lines])


def check_compiler() -> None:
    """Raise EnsueError if the package ziglang is missing or too old."""
    try:
        installed = version("ziglang")
    except PackageNotFoundError:
        raise EnsueError('web needs the package ziglang, which is not installed: pip install "ensue[web]"') from None
    if tuple(map(int, installed.split(".")[:2])) < MIN_ZIG_VERSION:
        minimum = ".".join(map(str, MIN_ZIG_VERSION))
        raise EnsueError(
            f'web needs ziglang from {minimum} on, and {installed} is installed: pip install -U "ensue[web]"'
        )


def compile_page(code: dict[str, bytes], options: tuple[str, ...]) -> bytes:
    """Return the WebAssembly of `SOURCE`. Raises EnsueError with the first line of the compiler's output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in code.items():
            (folder / file).write_bytes(content)
        files = ["-o", str(folder / "page.wasm"), str(folder / SOURCE), "-lm"]
        command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *options, *files]
        environment = os.environ | {"ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
        try:
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines() or [f"status {error.returncode}"]
            raise EnsueError(f"ziglang cannot compile the model: {lines[0]}") from None
        except subprocess.TimeoutExpired:
            raise EnsueError(f"ziglang has not compiled the model in {TIMEOUT_SECONDS} seconds") from None
        return (folder / "page.wasm").read_bytes()


def _template(file: str, name: str) -> str:
    return fill_template(package_text(f"{TEMPLATES}/{file}"), {"NAME": name})
