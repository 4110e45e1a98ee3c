"""Pictures of a run. Names are drawn as they are written, and a picture that fails does not end the run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ensue.parsing import shown
from ensue.runs.reporter import Reporter

FONT = "DejaVu Sans"
FALLBACKS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei", "Droid Sans Fallback", "IPAGothic",
    "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS", "Unifont",
)  # fmt: skip
"""Fonts for characters that matplotlib's own font does not have. Those that are installed are used."""


@contextmanager
def picture(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A matplotlib figure of this size in inches, to draw on; it is written to `path` at the end.

    The same drawing gives the same file. A `$` is a dollar sign. A character that no font has is drawn as a box,
    without a warning.
    """
    _import_matplotlib()
    from matplotlib import font_manager, rc_context  # noqa: PLC0415 (slow to import)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    installed = set(font_manager.get_font_names())
    fonts = [FONT, *(name for name in FALLBACKS if name in installed)]
    with (
        rc_context({"text.parse_math": False, "font.family": fonts, "svg.hashsalt": "ensue"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        figure = Figure(figsize=size, dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _import_matplotlib() -> None:
    """Imports it, whatever `MPLBACKEND` names: a file needs no backend, and Jupyter names one that may be missing."""
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl  # noqa: PLC0415

        if backend is not None:
            with suppress(ValueError):
                mpl.rcParams["backend"] = backend
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def made(path: Path, make: Callable[[], object], reporter: Reporter) -> None:
    """Makes a picture or the card of a finished run. If that fails, the reporter gets a note."""
    try:
        make()
    except Exception as error:  # whatever it is, the run is good
        reason = " ".join(str(error).split()) or type(error).__name__
        reporter.noted(f"{path.name} could not be made: {shown(reason, 200)[1:-1]}")
