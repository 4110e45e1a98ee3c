"""The pictures of the README: a terminal in the middle of a training run, and the curve that the run ends with.

    python benchmarks/picture.py TEXT [SECONDS]

Trains `char-lstm-wide` on TEXT and writes docs/terminal.svg and docs/curve.png.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from ensue.console.reporter import ConsoleReporter
from ensue.recipe import read_recipe, with_paths
from ensue.runs.reporter import Facts, StepReport, Validation
from ensue.training.run import train_run

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH = 120
SNAPSHOT_AT = 0.72
"""Share of the budget after which the terminal is drawn."""


def without_web_fonts(svg: str) -> str:
    """The picture in the reader's own fonts: a page that is opened should fetch nothing."""
    return re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL)


class Photographer(ConsoleReporter):
    """Shows a run on a recording console, and takes its picture once."""

    def __init__(self) -> None:
        super().__init__(Console(record=True, width=WIDTH, force_terminal=True, highlight=False, file=sys.stderr))
        self.live = False
        self.taken = False
        self.console.print("[bold]$ ensue train char-lstm-wide --train shakespeare.txt --out run[/bold]")

    def started(self, facts: Facts) -> None:
        super().started(facts)
        self.bar.add_task("train", total=1.0, step=0, loss=0.0, speed="", left=None)

    def stepped(self, report: StepReport) -> None:
        self.live = True
        self.bar.refresh = lambda: None  # type: ignore[method-assign]
        super().stepped(report)
        self.live = False
        if report.share > SNAPSHOT_AT and not self.taken:
            self.taken = True
            self.console.print(self.bar.get_renderable())
            picture = self.console.export_svg(title="ensue")
            (DOCS / "terminal.svg").write_text(without_web_fonts(picture), encoding="utf-8")

    def validated(self, validation: Validation) -> None:
        if not self.taken:
            super().validated(validation)


def main() -> None:
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 300.0
    recipe = read_recipe("char-lstm-wide", {"train.seconds": seconds, "train.validations": 8})
    with tempfile.TemporaryDirectory() as folder, Photographer() as reporter:
        outcome = train_run(with_paths(recipe, train=sys.argv[1]), Path(folder) / "run", threads=1, reporter=reporter)
        shutil.copy(outcome.run / "curve.png", DOCS / "curve.png")


if __name__ == "__main__":
    main()
