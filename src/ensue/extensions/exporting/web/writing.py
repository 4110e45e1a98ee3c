"""A model as a web page: the C file in WebAssembly, inside of one HTML file and of a module of JavaScript."""

from __future__ import annotations

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
from ensue.extensions.exporting.c.writing import card_of, filled, license_in, name_for, printed
from ensue.extensions.exporting.exported import write_directory
from ensue.inspection.markup import drawn, file_text
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import (
    ClassOutput,
    ModelDescription,
    SeriesInput,
    SourceInput,
    TagOutput,
    TextOutput,
    TokenInput,
    TokenOutput,
    WordInput,
)
from ensue.version import VERSION, package_file, package_text

PIECES = "extensions/exporting/web/pages"
OLDEST = (0, 14)
"""The oldest version of ziglang that is known to compile the C file."""
FLAGS = (
    "-target", "wasm32-wasi", "-mexec-model=reactor", "-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-Wl,--strip-all", "-Wl,--gc-sections",
)  # fmt: skip
SIMD = ("-Xclang", "-target-feature", "-Xclang", "+simd128")
"""Options of clang alone, so that both kinds of code share one C library."""
TIMEOUT_SECONDS = 600
"""The first call also compiles the C library, which takes half a minute."""
SOURCE = "whole.page.c"
"""The file that is compiled, which includes the model; no model has its name."""
Compile = Callable[[dict[str, bytes], tuple[str, ...]], bytes]
"""(files, options of the compiler) to WebAssembly."""


class Page(NamedTuple):
    """The files of one interface in the folder `pages`, and the numbers of its HTML, by the input of a description.

    `NAME.c` has the functions that WebAssembly exports, `NAME.js` the class `Model`, `NAME.d.ts` its types, `NAME.html`
    and `NAME.page.js` the page, `NAME.md` examples. Before them stand those that pages share, of the same kinds.
    """

    name: str
    numbers: Callable[[Any], dict[str, Any]] = lambda _: {}
    shared: tuple[str, ...] = ()

    def pieces(self, ending: str, name: str) -> list[str]:
        """Return the files of one kind, for a model of this name."""
        files = (part + ending for part in (*self.shared, self.name))
        return [_piece(file, name) for file in files if package_file(f"{PIECES}/{file}").is_file()]


def _of_language(tokens: TokenInput) -> dict[str, Any]:
    kind = tokens.tokenizer.kind
    return {
        "token": {"characters": "character", "bytes": "byte", "bpe": "subword"}.get(kind, "word"),
        "length": {"words": 60, "bpe": 120}.get(kind, 400),
    }


def _of_sources(sources: SourceInput) -> dict[str, Any]:
    """Return an example for each field of an encoder–decoder: a text of known characters, or a name."""
    known, names = sources.coder.tokenizer, sources.coder.names.symbols
    text = next((text for text in ("example", "EXAMPLE") if known.unknown_id not in known.encode(text)), "")
    places = range(sources.num_texts)
    return {"examples": [(names or [""])[0] if place in sources.names else text for place in places]}


def _of_series(series: SeriesInput) -> dict[str, Any]:
    others = [name for name in (series.label_column, series.time_column, series.group_column) if name]
    return {
        "rate": 0 if series.sound is None else series.sound.rate, "width": len(series.mean),
        "table": {"names": series.columns, "series": series.series_column, "others": others},
    }  # fmt: skip


PAGES: dict[tuple[type, type], Page] = {
    (TokenInput, TokenOutput): Page("language", _of_language),
    (WordInput, TagOutput): Page("tagging", shared=("labels", "spans")),
    (WordInput, ClassOutput): Page("classes", shared=("labels", "choice", "list")),
    (SeriesInput, ClassOutput): Page("frame_classes", _of_series, ("labels", "choice", "list", "readers", "frames")),
    (SeriesInput, TagOutput): Page("frame_tags", _of_series, ("labels", "spans", "list", "readers", "frames")),
    (SourceInput, TextOutput): Page("transducing", _of_sources),
}
"""The pages by the kinds of input and output of a description."""


def export_web(
    run: RunDirectory, description: ModelDescription, out: Path, *, precision: str = F32, overwrite: bool = False
) -> list[str]:
    """Write a model as a page and a module; the effect of a `precision` is measured. The options are those of
    `export_run`. Raises EnsueError for a model that cannot be printed as C, and without the package ziglang.
    """
    name = name_for(out)
    page_of(run, description)
    check_compiler()
    contents, notes = page_files(run, description, name, compiled, precision)
    write_directory(out, contents, overwrite=overwrite)
    size = sum(map(len, contents.values()))
    return [*notes, f"{out}: {len(contents)} files, {size:,} bytes; open {out / name}.html in a browser"]


def page_of(run: RunDirectory, description: ModelDescription) -> Page:
    """Return the page of a model. Raises EnsueError if there is none."""
    page = PAGES.get(description.kinds)
    if page is None:
        have = "language models, encoder-decoders, and taggers and classifiers of texts and of frames have one"
        raise EnsueError(f"{run.path}: a {run.recipe.what} has no page; {have}")
    return page


def page_files(
    run: RunDirectory, description: ModelDescription, name: str, compile: Compile, precision: str = F32
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files by name, and notes. Raises EnsueError for a model without a page or a C export."""
    page, card, recipe = page_of(run, description), card_of(run), run.recipe
    code, _, notes = printed(run, description, name, precision=precision)
    script = module(code, name, page, compile)
    values: dict[str, Any] = {
        "name": name, "what": recipe.what, "about": recipe.describe(), "license": license_in(card), "version": VERSION,
    }  # fmt: skip
    html = drawn(
        "extensions/exporting/web/pages/page.html",
        body=f"extensions/exporting/web/pages/{page.name}.html",
        style=Markup(file_text("style.css")),
        script=Markup("".join([script, _piece("page.js", name), *page.pieces(".page.js", name)])),
        **values,
        **page.numbers(description.input),
    )
    types = {"exports": {".": {"types": f"./{name}.d.ts", "default": f"./{name}.js"}}, "types": f"./{name}.d.ts"}
    package = {"name": name.lower(), "version": "1.0.0", "type": "module", **types}
    added = {"examples": _piece(f"{page.name}.md", name), "notes": "".join(f"{note}\n\n" for note in notes)}
    texts = {
        f"{name}.html": str(html),
        f"{name}.js": script,
        f"{name}.d.ts": "".join(reversed(page.pieces(".d.ts", name))),
        "package.json": json.dumps(package, indent=2) + "\n",
        "README.md": _piece("README.md", name).format(**values, **added, card=card),
    }
    return {file: text.encode() for file, text in texts.items()}, notes


def module(code: dict[str, bytes], name: str, page: Page, compile: Compile) -> str:
    """Return a module of JavaScript with a model inside, from the files of `printed`."""
    calls = "\n".join([_piece("memory.c", name), *page.pieces(".c", name)]).encode()
    inside = {
        "SIMD": compile(code | {SOURCE: calls}, SIMD),
        "PLAIN": compile(code | {SOURCE: calls}, ()),
        "WEIGHTS": code[f"{name}.weights"],
    }
    texts = [f'const {key} =\n  "{b64encode(value).decode()}";\n' for key, value in inside.items()]
    return "".join([_piece("memory.js", name), *page.pieces(".js", name), "\n", *texts])


def check_compiler() -> None:
    """Raises EnsueError if the package ziglang is missing or too old."""
    try:
        installed = version("ziglang")
    except PackageNotFoundError:
        raise EnsueError('web needs the package ziglang, which is not installed: pip install "ensue[web]"') from None
    if tuple(int(part) for part in installed.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise EnsueError(
            f'web needs ziglang from {oldest} on, and {installed} is installed: pip install -U "ensue[web]"'
        )


def compiled(code: dict[str, bytes], options: tuple[str, ...]) -> bytes:
    """Return the WebAssembly of the file `SOURCE`. Raises EnsueError with the first line of the compiler."""
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


def _piece(file: str, name: str) -> str:
    return filled(package_text(f"{PIECES}/{file}"), {"NAME": name})
