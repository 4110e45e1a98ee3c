"""Pages in a browser: keys, and checks of accessibility."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ensue.inspection import Inspection
from inspection.browser import Browser


def shown(browser: Browser, inspection: Inspection, folder: Path) -> None:
    browser.open(inspection.save(folder / "page.html"))
    assert browser.complaints() == []


def press(browser: Browser, selector: str, *keys: str) -> None:
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415

    browser.run("document.querySelector(arguments[0]).focus()", selector)
    browser.driver.switch_to.active_element.send_keys(*(getattr(Keys, key) for key in keys))


def check_accessible(browser: Browser, pages: Mapping[str, Callable[[], Inspection]], folder: Path) -> None:
    for name, make in pages.items():
        shown(browser, make(), folder)
        assert browser.barriers() == [], name
