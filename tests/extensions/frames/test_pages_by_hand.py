"""Pages of frame models in a browser: keys, the pointer, and accessibility."""

from pathlib import Path

import pytest

from ensue.extensions.frames.data.series import Series
from extensions.frames.small_frames import frame_classifier, frame_predictor, frame_tagger, frames
from inspection.browser import Browser
from inspection.keyboard import check_accessible, press, shown
from inspection.small import number

pytestmark = pytest.mark.slow


def test_keys_and_the_pointer_select_a_frame(browser: Browser, tmp_path: Path) -> None:
    inspection = frame_classifier().inspect(frames(12))
    view = inspection.view
    shown(browser, inspection, tmp_path)
    press(browser, ".scroll", "HOME", "ARROW_RIGHT", "ARROW_RIGHT")
    title_parts = browser.text(".title").split(" · ")
    assert title_parts[0] == "frame 2"
    assert [number(part.rsplit(" ", 1)[1]) for part in title_parts[1:]] == pytest.approx(view.frames[2], rel=1e-4)
    assert set(browser.run("return [...document.querySelectorAll('.on')].map(e => e.dataset.t)")) == {"2"}
    assert len(browser.run("return [...document.querySelectorAll('.on')]")) > 4
    browser.point('section:nth-of-type(3) g[data-t="7"] rect')
    assert set(browser.run("return [...document.querySelectorAll('.on')].map(e => e.dataset.t)")) == {"7"}


INSPECTIONS = {
    "classifier of frames": lambda: frame_classifier(head={"pooling": ["attention", "max"]}).inspect(frames(30)),
    "map": lambda: frame_predictor("vrnn", width=9).inspect(frames(30, 9)),
    "image": lambda: frame_classifier(width=12).inspect(Series("x", frames(9, 12), colors=3)),
    "tagger of frames": lambda: frame_tagger().inspect(Series("x", frames(30), ("DET",) * 30, per_frame=True)),
}


def test_the_pages_have_no_accessibility_barriers(browser: Browser, tmp_path: Path) -> None:
    check_accessible(browser, INSPECTIONS, tmp_path)
