"""The script of the pages about language models, as a browser runs it."""

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ensue.inspection import Inspection
from inspection.browser import browsing
from inspection.language_models import TEXT, model_of
from inspection.small import Node, masked, parsed

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no chromium")]


def opened(inspection: Inspection, folder: Path, place: str = "") -> Node:
    """The page after its script has run."""
    path = inspection.save(folder / "page.html")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}", "--dump-dom"]
    assert BROWSER is not None
    found = subprocess.run(
        [BROWSER, *options, f"file://{path}{place}"], capture_output=True, check=True, timeout=120, text=True
    )
    return parsed(found.stdout.strip().removeprefix("<!DOCTYPE html>"))


def strengths(page: Node, kind: str) -> list[int]:
    """The percentage of color of each token, below zero if it is cool."""
    (text,) = page.all("div", kind)
    words = list(text.all("span", "w"))
    found = [int((word.attributes["style"] or "").removeprefix("--s:").rstrip("%; ")) for word in words]
    return [-s if "against" in (word.attributes["class"] or "") else s for s, word in zip(found, words, strict=True)]


def test_a_unit_is_painted(tmp_path: Path) -> None:
    inspection = model_of().inspect(TEXT)
    view = inspection.view
    page = opened(inspection, tmp_path, "#layer%202,%20cell.3")
    (cells,) = [units.values[:, 3] for units in view.units if units.name == "layer 2, cell"]
    low, high = float(cells.min()), float(cells.max())
    values = cells - low if low * high > 0 else cells
    expected = 80 * values / np.abs(values).max() * np.sign(cells) ** (low * high > 0)
    assert strengths(page, "tokens")[:-1] == pytest.approx(expected.tolist(), abs=1.6)


def test_surprisals_and_what_was_expected(tmp_path: Path) -> None:
    pipeline = model_of("transformer")
    inspection = pipeline.inspect(TEXT)
    found = inspection.view.predictions
    page = opened(inspection, tmp_path)
    full = math.log(pipeline.tokenizer.vocabulary_size)
    expected = 80 * np.minimum(1, found.surprisals[:-1] / full)
    assert strengths(page, "tokens")[:-1] == pytest.approx(expected.tolist(), abs=0.6)
    (told,) = page.all("div", "told")
    assert f"surprisal {found.surprisals[0]:.3f} nats" in told.text
    assert f"rank {found.ranks[0]}, entropy {found.entropies[0]:.3f} nats" in told.text
    assert [share.text for share in told.all("span", "faint")] == [f"{p:.4f}" for p in found.probabilities[0]]
    heads = [button.text for button in page.section("Attention").all("button", "head")]
    assert heads == [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    row = inspection.view.attention[0].weights[0, -1]
    assert strengths(page, "looks") == pytest.approx((80 * row / row.max()).tolist(), abs=1)


def test_a_page_with_masks(tmp_path: Path) -> None:
    inspection = masked().inspect("the [MASK] is a dog")
    page = opened(inspection, tmp_path)
    assert strengths(page, "tokens")[1] == 0
    assert len([canvas for head in page.all("button", "head") for canvas in head.all("canvas")]) == 4


def test_two_models_share_an_axis_and_a_page_from_the_disk_names_what_it_can_do(tmp_path: Path) -> None:
    one, other = (model_of(kind).inspect(TEXT) for kind in ("lstm", "transformer"))
    with browsing(tmp_path / "browser") as browser:
        browser.open(one.beside(other).save(tmp_path / "page.html"))
        ranges = browser.run("return [...plots.keys()].map(plot => [plot.scales.y.min, plot.scales.y.max])")
        surprisals = np.concatenate([found.view.predictions.surprisals[:-1] for found in (one, other)])
        assert len(ranges) == 2
        assert ranges[0] == ranges[1]
        assert ranges[0][0] <= surprisals.min() < surprisals.max() <= ranges[0][1]
        browser.run(
            "const c = document.querySelector('.color'); c.value = 'entropy'; c.dispatchEvent(new Event('change'))"
        )
        alone = browser.run("return [...plots.keys()].map(plot => [plot.scales.y.min, plot.scales.y.max])")
        assert alone[0] != alone[1]
        seen = browser.run(
            "return ['.served', 'form.choose[data-draw=asks]', '.on-disk'].map(kind => "
            "document.querySelector(kind).getClientRects().length > 0)"
        )
        assert seen == [False, False, True]
        assert browser.complaints() == []
