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
from ensue.version import VERSION, package_file, package_text

PIECES = "extensions/exporting/c/pages"
OLDEST = (0, 14)
"""The version of ziglang from which on the C file is known to compile."""
FLAGS = (
    "-target", "wasm32-wasi", "-mexec-model=reactor", "-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-Wl,--strip-all", "-Wl,--gc-sections",
)  # fmt: skip
SIMD = ("-Xclang", "-target-feature", "-Xclang", "+simd128")
"""Said to clang alone, so that both kinds of code share one library of C."""
SECONDS = 600
"""After which the compiler is given up. At first it compiles its library of C, which takes half a minute."""
WHOLE = "whole.page.c"
"""The file that is compiled, which includes the model; no model has its name."""
Compile = Callable[[dict[str, bytes], tuple[str, ...]], bytes]
"""From files and options of the compiler to WebAssembly."""


class Page(NamedTuple):
    """The part of a task: files beside this one, and the numbers of its HTML, which come from a pipeline.

    `NAME.c` has the functions that WebAssembly exports, `NAME.js` the class `Model`, `NAME.d.ts` its types, `NAME.html`
    and `NAME.page.js` the page, `NAME.md` examples. Before them stand those that pages share, of the same kinds.
    """

    name: str
    numbers: Callable[[Any], dict[str, Any]]
    shared: tuple[str, ...] = ()

    def pieces(self, ending: str, name: str) -> list[str]:
        """The files of one kind, for a model of this name."""
        files = (part + ending for part in (*self.shared, self.name))
        return [_piece(file, name) for file in files if package_file(f"{PIECES}/{file}").is_file()]


def _of_language(pipeline: Any) -> dict[str, Any]:
    kind = pipeline.tokenizer.kind
    return {
        "token": {"characters": "character", "bytes": "byte", "bpe": "subword"}.get(kind, "word"),
        "length": {"words": 60, "bpe": 120}.get(kind, 400),
    }


def _examples(pipeline: Any) -> list[str]:
    """A text for each field of an encoder–decoder: of characters that it knows, or a name."""
    coder = pipeline.coder
    known, names = coder.source.tokenizer, coder.source.names.symbols
    text = next((text for text in ("example", "EXAMPLE") if known.unknown_id not in known.encode(text)), "")
    return [(names or [""])[0] if place in coder.names else text for place in range(pipeline.num_texts)]


def _of_series(pipeline: Any) -> dict[str, Any]:
    shape, reading = pipeline.seen.shape, pipeline.recipe.reading()
    others = [name for name in (reading.labels, reading.time, reading.group) if name]
    return {
        "rate": round(shape.rate) if shape.is_sound else 0, "width": shape.width,
        "table": {"names": shape.columns, "series": reading.series, "others": others},
    }  # fmt: skip


PAGES = {
    "language-modeling": Page("language", _of_language),
    "labeling": Page("tagging", lambda pipeline: {}, ("labels", "spans")),
    "classification": Page("classes", lambda pipeline: {}, ("labels", "choice", "list")),
    "frame-classification": Page("frame_classes", _of_series, ("labels", "choice", "list", "readers", "frames")),
    "frame-labeling": Page("frame_tags", _of_series, ("labels", "spans", "list", "readers", "frames")),
    "sequence-to-sequence": Page("transducing", lambda pipeline: {"examples": _examples(pipeline)}),
}


def export_web(run: RunDirectory, out: Path, *, precision: str = F32, overwrite: bool = False) -> list[str]:
    """Writes a run as a page and a module, and returns lines about what was written. Matrices and tables are kept in
    one of the `PRECISIONS`; what that changes is measured.

    Raises EnsueError for a run that cannot be printed as C, or without the package ziglang, and DataError for a
    directory with other files.
    """
    name = name_for(out)
    page_of(run)
    check_compiler()
    contents, notes = page_files(run, name, compiled, precision)
    write_directory(out, contents, overwrite=overwrite)
    size = sum(map(len, contents.values()))
    return [*notes, f"{out}: {len(contents)} files, {size:,} bytes; open {out / name}.html in a browser"]


def page_of(run: RunDirectory) -> Page:
    """The page of a run's task. Raises EnsueError if it has none."""
    if run.recipe.task not in PAGES:
        have = "language models, encoder-decoders, and taggers and classifiers of texts and of frames have one"
        raise EnsueError(f"{run.path}: a {run.recipe.what} has no page; {have}")
    return PAGES[run.recipe.task]


def page_files(
    run: RunDirectory, name: str, compile: Compile, precision: str = F32
) -> tuple[dict[str, bytes], list[str]]:
    """The files by name, and notes on the precision. Raises EnsueError for a run without a page or a C export."""
    page, card, recipe = page_of(run), card_of(run), run.recipe
    code, _, pipeline, notes = printed(run, name, precision=precision)
    script = module(code, name, page, compile)
    said: dict[str, Any] = {
        "name": name, "what": recipe.what, "about": recipe.describe(), "license": license_in(card), "version": VERSION,
    }  # fmt: skip
    html = drawn(
        "extensions/exporting/c/pages/page.html",
        body=f"extensions/exporting/c/pages/{page.name}.html",
        style=Markup(file_text("style.css")),
        script=Markup("".join([script, _piece("page.js", name), *page.pieces(".page.js", name)])),
        **said,
        **page.numbers(pipeline),
    )
    types = {"exports": {".": {"types": f"./{name}.d.ts", "default": f"./{name}.js"}}, "types": f"./{name}.d.ts"}
    package = {"name": name.lower(), "version": "1.0.0", "type": "module", **types}
    added = {"examples": _piece(f"{page.name}.md", name), "notes": "".join(f"{note}\n\n" for note in notes)}
    texts = {
        f"{name}.html": str(html),
        f"{name}.js": script,
        f"{name}.d.ts": "".join(reversed(page.pieces(".d.ts", name))),
        "package.json": json.dumps(package, indent=2) + "\n",
        "README.md": _piece("README.md", name).format(**said, **added, card=card),
    }
    return {file: text.encode() for file, text in texts.items()}, notes


def module(code: dict[str, bytes], name: str, page: Page, compile: Compile) -> str:
    """A module of JavaScript with a model inside, of the files of C that `printed` gives."""
    calls = "\n".join([_piece("memory.c", name), *page.pieces(".c", name)]).encode()
    inside = {
        "SIMD": compile(code | {WHOLE: calls}, SIMD),
        "PLAIN": compile(code | {WHOLE: calls}, ()),
        "WEIGHTS": code[f"{name}.weights"],
    }
    texts = [f'const {key} =\n  "{b64encode(value).decode()}";\n' for key, value in inside.items()]
    return "".join([_piece("memory.js", name), *page.pieces(".js", name), "\n", *texts])


def check_compiler() -> None:
    """Raises EnsueError if the package ziglang is missing or too old."""
    try:
        found = version("ziglang")
    except PackageNotFoundError:
        raise EnsueError('web needs the package ziglang, which is not installed: pip install "ensue[web]"') from None
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise EnsueError(f'web needs ziglang from {oldest} on, and {found} is installed: pip install -U "ensue[web]"')


def compiled(code: dict[str, bytes], options: tuple[str, ...]) -> bytes:
    """The WebAssembly of the file `WHOLE`. Raises EnsueError with what the compiler said."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in code.items():
            (folder / file).write_bytes(content)
        files = ["-o", str(folder / "page.wasm"), str(folder / WHOLE), "-lm"]
        command = [sys.executable, "-m", "ziglang", "cc", *FLAGS, *options, *files]
        environment = os.environ | {"ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
        try:
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=SECONDS)
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines() or [f"status {error.returncode}"]
            raise EnsueError(f"ziglang cannot compile the model: {lines[0]}") from None
        except subprocess.TimeoutExpired:
            raise EnsueError(f"ziglang has not compiled the model in {SECONDS} seconds") from None
        return (folder / "page.wasm").read_bytes()


def _piece(file: str, name: str) -> str:
    return filled(package_text(f"{PIECES}/{file}"), {"NAME": name})
