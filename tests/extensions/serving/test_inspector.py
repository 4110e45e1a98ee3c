"""The page at `/` of a real server in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ensue import load
from ensue.recipe import read_recipe
from ensue.training.run import train_run
from extensions.serving.running import Running, language_run
from inspection.browser import Browser
from page_data import tiny

pytestmark = pytest.mark.slow
SEA = "The sea was calm."


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [language_run(folder / "lstm"), language_run(folder / "gru", "char-gru")]


@pytest.fixture(scope="module")
def server(runs: list[Path], browser: Browser) -> Iterator[Running]:
    with Running(*runs, options=("--key", "secret")) as running:
        yield running


ANSWERED = "document.querySelector('.state').textContent.endsWith(' ms')"


def facts(browser: Browser) -> list[dict[str, str]]:
    """Return the names and values at the top of the article of each model."""
    script = (
        "return [...document.querySelectorAll('.facts')].map(list => Object.fromEntries([...list.children].map("
        "item => [item.firstChild.textContent.trim(), item.lastChild.textContent])))"
    )
    return list(browser.run(script))


def type_text(browser: Browser, text: str) -> None:
    browser.find("textarea").send_keys(text)
    browser.until(f"document.querySelector('textarea').value.endsWith({text!r})")
    count = len(browser.run("return document.querySelector('textarea').value"))
    browser.until(f"{ANSWERED} && document.querySelectorAll('article:first-child .tokens .w').length === {count + 1}")


def open_page(browser: Browser, server: Running) -> None:
    browser.open(server.url)
    browser.until("document.querySelector('.state').textContent.includes('needs a key')")


def open_with_key(browser: Browser, server: Running, text: str) -> None:
    """Open the page with the key and a text, so that tests are independent."""
    open_page(browser, server)
    with_key(browser, text)


def with_key(browser: Browser, text: str) -> None:
    browser.find("[name=key]").send_keys("secret\n")
    browser.until("document.querySelector('[name=model]').options.length === 2")
    type_text(browser, text)


def test_a_typed_text_is_scored(browser: Browser, server: Running, runs: list[Path]) -> None:
    open_page(browser, server)
    browser.find("[name=key]").send_keys("wrong\n")
    browser.until("document.querySelector('.state').textContent.includes('another key')")
    browser.run("document.querySelector('[name=key]').value = ''")
    with_key(browser, SEA)
    expected = load(runs[0]).score(SEA)
    assert [one["run"] for one in facts(browser)] == ["lstm"]
    assert float(facts(browser)[0]["nats per token"]) == pytest.approx(
        sum(score.nats for score in expected) / len(expected), abs=5.1e-5
    )
    browser.point('.tokens [data-t="4"]')
    assert f"surprisal {expected[4].nats:.3f} nats" in browser.text(".told > div")


def test_a_change_of_the_text_keeps_the_chosen_unit(browser: Browser, server: Running) -> None:
    open_with_key(browser, server, SEA)
    browser.choose("select.color", "layer 1, cell")
    browser.choose("select.unit", "5")
    type_text(browser, " so it")
    assert browser.run("return document.querySelector('select.unit').value") == "5"
    assert browser.text(".tokens").replace("↵", "").startswith(f"{SEA} so it")


def test_another_model_is_shown_beside_the_first(browser: Browser, server: Running, runs: list[Path]) -> None:
    open_with_key(browser, server, f"{SEA} so it")
    browser.choose("[name=beside]", "gru")
    browser.until(f"{ANSWERED} && document.querySelectorAll('article').length === 2")
    expected = [load(run).score(f"{SEA} so it") for run in runs]
    nats = [float(article["nats per token"]) for article in facts(browser)]
    assert nats == pytest.approx([sum(s.nats for s in article) / len(article) for article in expected], abs=5.1e-5)
    assert "surprisal, less that beside" in browser.texts("select.color option")


def test_the_page_has_no_accessibility_barriers(browser: Browser, server: Running) -> None:
    open_with_key(browser, server, SEA)
    assert browser.barriers() == []


def test_the_page_sends_requests_only_to_its_server(browser: Browser, server: Running) -> None:
    open_with_key(browser, server, SEA)
    urls = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert urls
    assert all(name.startswith(server.url) for name in urls)
    refused = [complaint for complaint in browser.complaints() if "401" not in complaint]
    assert refused == []
    browser.run("fetch('https://example.org').catch(error => { window.blocked = String(error); })")
    browser.until("window.blocked")
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_frames_are_typed_as_lines_of_numbers(tmp_path: Path, browser: Browser) -> None:
    frames = np.random.default_rng(0).normal(size=(12, 3, 2)).astype(np.float32)
    np.savez(tmp_path / "series.npz", frames=frames, labels=["up", "down"] * 6)
    recipe = read_recipe("classify-frames", {"data.train": str(tmp_path / "series.npz")})
    train_run(tiny(recipe), tmp_path / "motion", threads=1)
    with Running(tmp_path / "motion") as server:
        browser.open(server.url)
        browser.until("document.querySelector('[name=model]').options.length === 1")
        area = browser.find("textarea")
        area.send_keys("0.5, 1\n2 x")
        browser.until("document.querySelector('.state').textContent.includes('not a number')")
        area.send_keys("\b3.5")
        browser.until(ANSWERED)
    (expected,) = load(tmp_path / "motion").predict([np.array([[0.5, 1], [2, 3.5]])])
    assert facts(browser)[0]["frames"] == "2"
    assert browser.text("section .chip") == expected.label
