"""Values and progress in a notebook, and pictures of views."""

import html
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.errors import EnsueError
from ensue.extensions.experiments.comparison import ComparedRun, Comparison
from ensue.inspection import notebook
from ensue.inspection.notebook import Answers, NotebookReporter, curve_section, kernel_display, scores_section
from ensue.inspection.notebook import html as shown
from ensue.inspection.page import Inspection, Section
from ensue.metrics.scores import LanguageScores, ScoreDifference
from ensue.runs.pictures import HeatMap, LinePlot
from ensue.runs.reporter import Facts, Outcome, StepReport, Validation
from ensue.tasks.classification.pipeline import Classified
from ensue.tasks.contract.token_scores import Surprisals, TokenScore
from ensue.tasks.labeling.tagged_sentence import LabeledWord, TaggedSentence
from ensue.tasks.language_modeling.pipeline import Continuation
from ensue.tasks.masked_language_modeling.pipeline import Fill, FilledText
from ensue.tasks.sequence_to_sequence.writer import Output
from inspection.language_models import model_of
from inspection.small import parsed
from kept_runs.make import unpacked

EVIL = '<script>alert("x")</script>'
WORDS = (LabeledWord(EVIL, "B-PER", 0, len(EVIL), 0.5),)
CLASSIFIED = Classified((EVIL,), (EVIL,), {EVIL: 0.7, "b": 0.3})
VALUES = [
    Answers([CLASSIFIED]), CLASSIFIED, Answers([TaggedSentence(EVIL, WORDS, has_spans=True)]),
    Answers([Continuation(EVIL, 1.5)]), Answers([FilledText(EVIL, ((Fill(EVIL, 0.5),),))]),
    FilledText(EVIL, ((Fill(EVIL, 0.5),),)), Answers([Output(EVIL, -1.0, -2.0, others=(Output("b", -2.0, -4.0),))]),
    Surprisals([TokenScore(EVIL, 2.0), TokenScore(" b", 1.0)]),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_text_is_shown_and_not_executed(value: Any) -> None:
    page = value._repr_html_()
    assert "<script" not in page
    assert EVIL in html.unescape(page)


def test_predictions_are_a_list() -> None:
    answers = Answers([1, 2])
    assert answers == [1, 2]
    assert repr(answers) == "[1, 2]"
    page = Answers(Continuation(f"number {n}", 1.0) for n in range(60))._repr_html_()
    assert "number 49" in page
    assert "number 50" not in page
    assert "first 50 of 60" in page


def test_slices_of_predictions_are_shown() -> None:
    answers = Answers(Continuation(f"number {n}", 1.0) for n in range(9))
    assert isinstance(answers[:2], Answers)
    assert answers[:2] == list(answers)[:2]
    assert next(parsed(answers[7:]._repr_html_()).all("td")).text == "number 7"
    assert answers[-1] == Continuation("number 8", 1.0)
    of_texts = Answers([Answers([TaggedSentence(EVIL, WORDS)])] * 3)._repr_html_()
    assert of_texts.count("<style>") == 1
    assert of_texts.count("PER") == 3


def test_a_table_has_the_values() -> None:
    page = parsed(Answers([Output("a", -1.0, -2.0, others=(Output("b", -2.0, -4.0),))])._repr_html_())
    assert [cell.text for cell in page.all("td")] == ["1", "a", "−1", "−2", "yes", "2", "b", "−2", "−4", "yes"]


def test_scores_are_shown_as_tables() -> None:
    page = LanguageScores(total_nats=20.0, tokens=10, characters=20)._repr_html_()
    assert "nats per token" in page
    per_label = {"A": {"f1": 0.9}, "B": {"f1": 0.1}}
    page = shown(scores_section({"f1": 0.5, "per_label": per_label, "confusion": {"A": {"B": 1}}}))
    assert page.index(">B<") < page.index(">A<"), "the lowest first"
    assert "confusion" not in page


def test_a_curve_has_the_values_at_their_positions() -> None:
    records = [
        *({"kind": "train", "step": step, "loss": 4.0 - step} for step in (0, 1, 2)),
        {"kind": "valid", "step": 2, "scores": {"f1": None, "accuracy": 0.25}, "best": True},
        {"kind": "valid", "step": 4, "scores": {"f1": None, "accuracy": 0.75}, "best": True},
    ]
    (section,) = curve_section(records, ("f1", "accuracy"))
    loss, score = section.values["lines"]
    assert (loss.low, loss.high, score.low, score.high) == ("2", "4", "0.25", "0.75")
    half, height = notebook.WIDTH / 2, notebook.HEIGHT
    assert loss.points[0] == (0.0, 0.0)
    assert loss.points[-1] == (half, height)
    assert score.points == [(half, height), (2 * half, 0.0), (2 * half, 0.0)]
    assert curve_section([], ("f1",)) == []
    scores = [
        {"accuracy": 0.1, "micro_f1": 0.5},
        {"accuracy": 0.2, "micro_f1": 0.4},
        {"accuracy": 0.1, "micro_f1": 0.6},
    ]
    valid = [
        {"kind": "valid", "step": step, "scores": of, "best": step != 2, "selection": -of["micro_f1"]}
        for step, of in enumerate(scores, start=1)
    ]
    for some in (valid, valid[:1]):
        (section,) = curve_section(some, ("accuracy", "micro_f1"))
        assert section.values["lines"][0].name == "validation micro F1", "which chose the best weights"
    records = [{"kind": "train", "step": step, "loss": 1.0} for step in range(5_000)]
    (section,) = curve_section([*records, {"kind": "train", "step": 5_000, "loss": float("nan")}], ())
    assert len(section.values["lines"][0].points) <= notebook.MAX_POINTS + 1


class Display:
    """A substitute for IPython's `display` that records pages and their updates."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def HTML(self, page: str) -> str:
        return page

    def display(self, page: str, *, display_id: bool) -> SimpleNamespace:
        assert display_id
        self.pages.append(page)
        return SimpleNamespace(update=self.pages.append)


FACTS = Facts("10 texts", "words", 1_234, "lstm", "cpu", 1, "float32", "", notes=(EVIL,))


def test_progress_is_updated_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(notebook.time, "monotonic", lambda: now[0])
    display = Display()
    reporter = NotebookReporter(display, ("accuracy",))
    reporter.started(FACTS)
    for step in range(1, 101):
        now[0] += 0.01
        reporter.stepped(StepReport(step, step / 200, 3.0, 2.0, 100.0))
    assert 2 <= len(display.pages) <= 4, "a second has two updates"
    assert "1,234 parameters" in display.pages[-1]
    assert "loss 2.000" in display.pages[-1]
    reporter.validated(Validation(100, 1.0, {"accuracy": 0.5}, "accuracy 50 %", best=True, sample=EVIL, selection=-0.5))
    reporter.finished(Outcome(Path("run"), "labeling", 100, 1.0, "finished", 100, {}, None, "accuracy 50 %"))
    assert "accuracy 50 %" in display.pages[-1]
    assert "validation accuracy" in display.pages[-1]
    assert "<script" not in "".join(display.pages)


def test_only_a_notebook_has_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert kernel_display() is None
    assert "IPython" not in sys.modules
    python: Any = ModuleType("IPython")
    python.get_ipython = type("TerminalInteractiveShell", (), {})
    monkeypatch.setitem(sys.modules, "IPython", python)
    assert kernel_display() is None
    python.get_ipython = type("Shell", (type("ZMQInteractiveShell", (), {}),), {})  # Colab's class is derived from it
    display = ModuleType("IPython.display")
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert kernel_display() is display


def axes() -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (slow to import)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.add_subplot()


@pytest.mark.slow
def test_an_inspection_draws_its_pictures_on_axes() -> None:
    weights = np.eye(2)
    words = ["$x$", "\n"]
    heads = {"layer 1, head 1": HeatMap(words, words, weights), "layer 1, head 2": HeatMap(words, words, 1 - weights)}
    gates = {"layer 1": LinePlot(words, {"input": [0.25, 0.75]}, "mean")}
    section = Section("", "inspection/plain.html", {"shown": ""}, {"attention": heads, "gates": gates})
    inspection = Inspection("", None, sections=[section])
    axes_of_caller = axes()
    assert inspection.plot("attention", ax=axes_of_caller) is axes_of_caller
    assert np.array_equal(axes_of_caller.images[0].get_array(), weights)
    assert [label.get_text() for label in axes_of_caller.get_xticklabels()] == ["$x$", "↵"]
    assert not any(
        label.get_parse_math()
        for label in (*axes_of_caller.get_xticklabels(), *axes_of_caller.get_yticklabels(), axes_of_caller.title)
    )
    second = inspection.plot("attention", "layer 1, head 2", ax=axes())
    assert np.array_equal(second.images[0].get_array(), 1 - weights)
    (line,) = inspection.plot("gates", ax=axes()).lines
    assert line.get_ydata().tolist() == [0.25, 0.75]
    with pytest.raises(EnsueError, match='no picture "cells"; expected attention, gates'):
        inspection.plot("cells")
    with pytest.raises(EnsueError, match='no gates of "layer 2"; expected layer 1'):
        inspection.plot("gates", "layer 2")


def test_plotted_gates_are_the_means_of_the_view() -> None:
    inspection = model_of().inspect("so it goes")
    drawn = inspection.plot("gates", ax=axes())
    expected = {
        units.kind: units.values.mean(1) for units in inspection.view.units if units.is_gate and units.layer == 1
    }
    assert {line.get_label() for line in drawn.lines} == set(expected)
    for line in drawn.lines:
        assert np.allclose(line.get_ydata(), expected[line.get_label()])


def test_surprisals_of_two_models_are_plotted_together() -> None:
    model = model_of()
    first, second = model.plot_surprisal("so it goes", "so it", ax=axes()).lines
    assert np.allclose(first.get_ydata(), [score.nats for score in model.score("so it goes")])
    assert np.allclose(second.get_ydata(), [score.nats for score in model.score("so it")])
    first_line, second_line = model.plot_surprisal("so it goes", model, ax=axes()).lines
    assert np.array_equal(first_line.get_ydata(), second_line.get_ydata())
    assert len(model.plot_surprisal("so it goes", ax=axes()).lines) == 1


def test_a_comparison_is_drawn_with_its_intervals() -> None:
    run = ComparedRun("a", "lstm", 1, 1, 1, 1.0, None, {"accuracy": 0.5})
    other_run = ComparedRun(
        "<b>", "gru", 1, 1, 1, 1.0, None, {"accuracy": 0.7}, {"accuracy": ScoreDifference(0.2, 0.1, 0.3, 0.01)}
    )
    comparison = Comparison("tagger", "", "", (run, other_run), {"train.seed": [1, None]}, ("note",))
    assert "&lt;b&gt;" in comparison._repr_html_()
    drawn = comparison.plot(ax=axes())
    assert [np.asarray(line.get_xdata()).tolist() for line in drawn.lines] == [
        [0.5], [0.7], pytest.approx([0.6, 0.8]), [0.5, 0.5]
    ]  # fmt: skip
    with pytest.raises(EnsueError, match='score "f1": not in all runs'):
        comparison.plot("f1")


def test_a_model_is_shown_with_its_run(tmp_path: Path) -> None:
    unpacked("tag-lstm", tmp_path)
    tagger = ensue.load(tmp_path / "tag-lstm")
    page = tagger._repr_html_()
    assert "LabelingPipeline(lstm" in page
    assert "validation F1" in page
    assert "# tag-lstm" in page[page.index("<summary>card</summary>") :]
    (tmp_path / "tag-lstm" / "metrics.jsonl").write_text("no record\n", encoding="utf-8")
    assert "metrics.jsonl:1" in tagger._repr_html_()
    shutil.rmtree(tmp_path / "tag-lstm")
    assert "LabelingPipeline" in tagger._repr_html_()


CELLS = [
    """import ensue
from pathlib import Path
Path("text.txt").write_text("It goes and <b>it</b> goes. " * 200)
sizes = {"encoder.d_model": 8, "tokens.d_embedding": 8, "train.steps": 8, "train.batch_size": 2}
lm = ensue.train("char-lstm", train="text.txt", out="run", settings=sizes, threads=1)""",
    "lm",
    "lm.score('It <b> goes')",
    "lm.plot_surprisal('It goes', 'It does')",
    "lm.inspect('It goes').plot('gates')",
]


@pytest.mark.slow
def test_a_notebook_is_executed(tmp_path: Path) -> None:
    for package in ("nbconvert", "ipykernel"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed; pip install nbconvert ipykernel")
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": cell, "outputs": [], "execution_count": None}
        for n, cell in enumerate(CELLS)
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "a.ipynb").write_text(json.dumps(book), encoding="utf-8")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "a.ipynb", "--output", "b.ipynb"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    cells = json.loads((tmp_path / "b.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [[output for output in cell["outputs"] if output["output_type"] != "stream"] for cell in cells]
    pages = ["".join(page) for cell in outputs for output in cell if (page := output["data"].get("text/html"))]
    progress, run, text = pages
    assert "finished at step 8" in progress
    assert "training loss" in progress
    assert "validation nats per token" in run
    assert "<summary>card</summary>" in run
    assert "nats in 11 tokens" in text
    assert all(any("image/png" in output["data"] for output in cell) for cell in outputs[3:])
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "stream"]
