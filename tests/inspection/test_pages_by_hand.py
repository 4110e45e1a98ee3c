"""Pages in a real browser show the numbers of the model under the pointer and by arrow keys."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from inspection.browser import Browser, browsing
from inspection.keyboard import check_accessible, press, shown
from inspection.language_models import TEXT, model_of
from inspection.small import classifier, masked, number, tagger, translator
from inspection.translators import MODELS, SOURCE

pytestmark = pytest.mark.slow
WORDS = "Ann Lee saw the Sea of London ."
LONG = (TEXT * 80)[:5_000]


def test_a_token_of_a_language_model_shows_its_predictions(browser: Browser, tmp_path: Path) -> None:
    pipeline = model_of()
    inspection = pipeline.inspect(TEXT)
    predictions = inspection.view.predictions
    shown(browser, inspection, tmp_path)
    expected = 80 * np.minimum(1, predictions.surprisals[:-1] / math.log(pipeline.tokenizer.vocabulary_size))
    assert browser.strengths(".tokens .w")[:-1] == pytest.approx(expected.tolist(), abs=0.6)
    keys = ["HOME", *["ARROW_RIGHT"] * 4, "ARROW_LEFT"]
    for position, look in (
        (7, lambda: browser.point('.tokens [data-t="7"]')),
        (3, lambda: press(browser, ".tokens", *keys)),
    ):
        look()
        details = browser.text(".told > div")
        assert f"surprisal {predictions.surprisals[position]:.3f} nats" in details
        assert f"rank {predictions.ranks[position]}, entropy {predictions.entropies[position]:.3f} nats" in details
        assert browser.texts(".told .option .faint") == [f"{p:.4f}" for p in predictions.probabilities[position]]
        assert browser.run("return document.querySelector('.tokens .on').dataset.t") == str(position)
    at = browser.run("return document.querySelector('.tokens').getAttribute('aria-activedescendant')")
    assert browser.run("return document.getElementById(arguments[0]).dataset.t", at) == "3"
    press(browser, ".tokens", "ARROW_DOWN")  # the second line
    assert "\n" in "".join(inspection.view.tokens[: int(browser.run("return document.querySelector('.at').dataset.t"))])


def test_a_click_on_a_unit_selects_it(browser: Browser, tmp_path: Path) -> None:
    inspection = model_of().inspect(TEXT)
    shown(browser, inspection, tmp_path)
    button = browser.find("button[data-group]")
    name, unit = button.get_attribute("data-group"), int(button.get_attribute("data-unit"))
    browser.run("arguments[0].click()", button)
    (values,) = [units.values[:, unit] for units in inspection.view.units if units.name == name]
    low, high = float(values.min()), float(values.max())
    above = values - low if low * high > 0 else values
    expected = 80 * above / np.abs(above).max()
    assert browser.strengths(".tokens .w")[:-1] == pytest.approx(expected.tolist(), abs=1.6)
    assert browser.run("return decodeURIComponent(location.hash)") == f"#{name}.{unit}"
    assert browser.texts(".range") == [f"{low:.3f} to {high:.3f}".replace("-", "−")]
    assert len(browser.texts(".curve canvas")) == 1


def test_heads_of_a_transformer_can_be_selected(browser: Browser, tmp_path: Path) -> None:
    inspection = model_of("transformer").inspect(TEXT)
    shown(browser, inspection, tmp_path)
    browser.run("document.querySelectorAll('button.head')[3].click()")
    browser.point('.looks [data-row="5"]')
    row = inspection.view.attention[1].weights[1, 5]
    assert browser.strengths(".looks .w") == pytest.approx((80 * row / row.max()).tolist(), abs=1)


def test_a_cell_of_a_tagger_shows_its_numbers(browser: Browser, tmp_path: Path) -> None:
    inspection = tagger().inspect(WORDS)
    view = inspection.view
    shown(browser, inspection, tmp_path)
    press(browser, ".scroll", "HOME", "ARROW_RIGHT", "ARROW_RIGHT", "ARROW_DOWN")
    match = re.fullmatch(r"(.+) · (.+) · emission (.+) · probability (.+)", browser.text(".title"))
    assert match
    tag = view.tags.index(match[2])
    assert match[1] == view.words[2] == "saw"
    assert number(match[3]) == pytest.approx(view.emissions[2, tag], abs=5.1e-5)
    assert float(match[4]) == pytest.approx(view.marginals[2, tag], abs=5.1e-5)
    assert set(browser.run("return [...document.querySelectorAll('.on')].map(e => e.dataset.t)")) == {"2"}


def test_a_word_of_a_classifier_shows_its_contribution(browser: Browser, tmp_path: Path) -> None:
    inspection = classifier().inspect(WORDS)
    (view,) = inspection.view
    shown(browser, inspection, tmp_path)
    press(browser, ".text", "HOME", "ARROW_RIGHT")
    match = re.fullmatch(r"Lee.*= (\S+), log-odds (\S+)", browser.text(".title"))
    assert match
    assert float(match[1]) == pytest.approx(view.contributions[1].probability, abs=5.1e-5)
    assert number(match[2]) == pytest.approx(-view.contributions[1].log_odds, abs=5.1e-5)


def test_an_output_token_shows_its_attention(browser: Browser, tmp_path: Path) -> None:
    inspection = translator(**MODELS["dot"]).inspect(SOURCE)
    shown(browser, inspection, tmp_path)
    browser.point('.text [data-t="t1"]')
    weights = inspection.view.alignment[1]
    assert browser.strengths(".attended .w") == pytest.approx((80 * weights / weights.max()).tolist(), abs=1)


def test_two_models_show_their_differences(browser: Browser, tmp_path: Path) -> None:
    first_inspection, second_inspection = model_of("lstm").inspect(TEXT), model_of("gru").inspect(TEXT)
    shown(browser, first_inspection.beside(second_inspection), tmp_path)
    browser.choose("article select.color", "surprisal, less that beside")
    apart = first_inspection.view.predictions.surprisals[:-1] - second_inspection.view.predictions.surprisals[:-1]
    expected = 80 * apart / np.abs(apart).max()
    assert browser.strengths("article:first-child .tokens .w")[:-1] == pytest.approx(expected.tolist(), abs=1)
    browser.point('.tokens [data-t="4"]')
    assert browser.run("return document.querySelectorAll('.tokens .on').length") == 2
    lefts = browser.run("return [...document.querySelectorAll('.tokens')].map(e => e.getBoundingClientRect().left)")
    assert lefts[1] > lefts[0] + 300


def test_two_models_share_an_axis_on_a_page_from_the_disk(browser: Browser, tmp_path: Path) -> None:
    first, second = (model_of(kind).inspect(TEXT) for kind in ("lstm", "transformer"))
    browser.open(first.beside(second).save(tmp_path / "page.html"))
    ranges = browser.run("return [...plots.keys()].map(plot => [plot.scales.y.min, plot.scales.y.max])")
    surprisals = np.concatenate([item.view.predictions.surprisals[:-1] for item in (first, second)])
    assert len(ranges) == 2
    assert ranges[0] == ranges[1]
    assert ranges[0][0] <= surprisals.min() < surprisals.max() <= ranges[0][1]
    browser.run("const c = document.querySelector('.color'); c.value = 'entropy'; c.dispatchEvent(new Event('change'))")
    alone = browser.run("return [...plots.keys()].map(plot => [plot.scales.y.min, plot.scales.y.max])")
    assert alone[0] != alone[1]
    labels_of_axis = browser.run(
        "return ['.served', 'form.choose[data-draw=asks]', '.on-disk'].map(kind => "
        "document.querySelector(kind).getClientRects().length > 0)"
    )
    assert labels_of_axis == [False, False, True]
    assert browser.complaints() == []


def test_a_long_text_is_not_laid_out_again_at_each_move(browser: Browser, tmp_path: Path) -> None:
    inspection = model_of().inspect(LONG)
    shown(browser, inspection, tmp_path)
    assert len(browser.texts(".tokens .w")) == 5_001
    browser.driver.execute_cdp_cmd("Performance.enable", {})

    def spent() -> float:
        metrics = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return sum(m["value"] for m in metrics if m["name"] in ("LayoutDuration", "RecalcStyleDuration"))

    layouts = "const start = performance.now(); void document.body.offsetHeight;"
    browser.run(layouts)
    before = spent()
    for position in range(0, 2_000, 100):
        browser.point(f'.tokens [data-t="{position}"]')
        browser.run(layouts)
    assert (spent() - before) / 20 < 0.016  # a picture at 60 a second


MADE = {
    "language": lambda: model_of().inspect(TEXT),
    "attention": lambda: model_of("transformer").inspect(TEXT),
    "tagger": lambda: tagger().inspect(WORDS),
    "pair": lambda: classifier(pair=True).inspect(("the Sea", "Ann saw")),
    "masked": lambda: masked().inspect("the [MASK] is a dog"),
    "translator": lambda: translator(**MODELS["copying"]).inspect(SOURCE),
    "beside": lambda: model_of("lstm").inspect(TEXT).beside(model_of("gru").inspect(TEXT)),
}


@pytest.mark.parametrize("dark", [False, True])
def test_pages_are_accessible(dark: bool, tmp_path: Path) -> None:
    with browsing(tmp_path / "browser", dark=dark) as browser:
        check_accessible(browser, MADE, tmp_path)
