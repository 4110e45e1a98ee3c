"""The script of a page selects the units and ranges of `select`."""

from pathlib import Path

import numpy as np
import pytest

from ensue.inspection.unit_page import select
from ensue.inspection.units import Units
from inspection.browser import browsing
from inspection.language_models import TEXT, model_of

pytestmark = pytest.mark.slow


def on_page(units: Units) -> Units:
    """Return the values in the 256 steps of a page."""
    low, high = units.values.min(0), units.values.max(0)
    steps = np.rint(255 * (units.values - low) / np.maximum(high - low, 1e-30))
    return units._replace(values=low + steps * (high - low) / 255)


@pytest.mark.parametrize(("start", "end", "threshold"), [(0, 3, 0.3), (4, 7, 0.1), (12, 13, 0.2)])
def test_the_script_selects_units_and_ranges_of_select(tmp_path: Path, start: int, end: int, threshold: float) -> None:
    inspection = model_of("lstm").inspect(TEXT, at=9, off="layer 1, cell: 0")
    selection = select(list(map(on_page, inspection.view.units)), start, end, threshold=threshold)
    assert selection.units
    with browsing(tmp_path / "browser") as browser:
        browser.open(inspection.save(tmp_path / "page.html"))
        selection_range = {"from": start + 1, "to": end, "threshold": threshold}
        for name, value in selection_range.items():
            browser.run(f"document.querySelector('[name={name}]').value = {value}")
        browser.run("document.querySelector('[name=from]').form.dispatchEvent(new Event('input'))")
        assert browser.text(".units").startswith(f"{len(selection.units)} units are on exactly there.")
        named = "b => [b.dataset.group, Number(b.dataset.unit)]"
        buttons = browser.run(f"return [...document.querySelectorAll('.units button')].map({named})")
        expected = [[inspection.view.units[unit.group].name, unit.number] for unit in selection.units[:24]]
        assert sorted(buttons[:8]) == sorted(expected[:8])
        ranges = browser.texts(".ranges button")
        for shown, match in zip(ranges, selection.matches, strict=True):
            assert shown.startswith(f"{match.start + 1}–{match.end} “")
            assert shown.endswith(f"{match.shared} of {len(selection.units)}")
        assert len(browser.run("return document.querySelectorAll('.tokens .selected')")) == end - start
        browser.find(".units button").click()
        kind, number = buttons[0]
        assert browser.run("return document.querySelector('.color').selectedOptions[0].text") == kind
        assert browser.run("return document.querySelector('.unit').value") == str(number)
        assert not browser.complaints()


def test_a_text_is_colored_by_the_selected_values(tmp_path: Path) -> None:
    inspection = model_of("transformer").inspect(TEXT, at=9, off="layer 1, neurons: 0-3")
    view = inspection.view
    changes = view.predictions_without.surprisals[:-1] - view.predictions.surprisals[:-1]
    with browsing(tmp_path / "browser") as browser:
        browser.open(inspection.save(tmp_path / "page.html"))
        assert browser.run("return document.querySelector('.color').value") == "surprisal"
        browser.find('[data-color="change of surprisal"]').click()
        strengths = browser.strengths(".tokens .w")[: len(changes)]
        assert strengths == pytest.approx((80 * changes / np.abs(changes).max()).tolist(), abs=0.6)
        browser.find('[data-color="integrated gradients"]').click()
        shares = view.explanation.integrated.shares
        strengths = browser.strengths(".tokens .w")
        assert strengths[8 - len(shares) : 8] == pytest.approx((80 * shares / np.abs(shares).max()).tolist(), abs=0.6)
        assert not any(strengths[8:])
        assert browser.run("return document.querySelector('[data-draw=asks]').hidden")
        assert not browser.complaints()
