"""A headless Chromium that tests control by selenium. Without one of them, tests are skipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pages import REPOSITORY

AXE = REPOSITORY / "node_modules" / "axe-core" / "axe.min.js"
"""The rules of accessibility, installed by `npm install --no-save axe-core`."""
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
PATIENCE = 60


class Browser:
    """A page in a browser, with CSS selectors and scripts."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str | Path) -> None:
        self.driver.get(f"file://{address}" if isinstance(address, Path) else address)

    def resize(self, width: int, height: int) -> None:
        """Set a size of the page that a window cannot have, such as a phone's."""
        wishes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wishes)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return list(self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector))

    def text(self, selector: str) -> str:
        return self.texts(selector)[0]

    def strengths(self, selector: str) -> list[float]:
        """Return the percentage of color of each token, negative for cool colors."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map(e => parseFloat(e.style.getPropertyValue('--s'))"
            " * (e.classList.contains('against') ? -1 : 1))"
        )
        return list(self.run(script, selector))

    def point(self, selector: str) -> None:
        """Simulate the pointer on an element."""
        event = "new MouseEvent('mouseover', {bubbles: true})"
        self.run(f"document.querySelector(arguments[0]).dispatchEvent({event})", selector)

    def choose(self, selector: str, text: str) -> None:
        """Choose an option by its text."""
        script = (
            "const [s, text] = [document.querySelector(arguments[0]), arguments[1]];"
            "s.value = [...s.options].find(o => o.text === text).value; s.dispatchEvent(new Event('change'))"
        )
        self.run(script, selector, text)

    def write(self, selector: str, text: str) -> None:
        """Replace the text of a field by typing."""
        self.find(selector).send_keys(f"\ue009a\ue000{text}")  # control and a, then all keys released

    def until(self, condition: str) -> None:
        """Wait until a script's expression is true."""
        from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

        WebDriverWait(self.driver, PATIENCE, 0.05).until(lambda _: self.run(f"return {condition}"))

    def barriers(self) -> list[str]:
        """Return violations of accessibility by the rules of axe-core. Skip without it."""
        if not AXE.exists():
            pytest.skip("there is no axe-core: npm install --no-save axe-core")
        self.run(AXE.read_text(encoding="utf-8"))
        violations: list[str] = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document).then(r => done(r.violations.map("
            "v => `${v.id}: ${v.nodes[0].html.slice(0, 200)}`)))"
        )
        return violations

    def complaints(self) -> list[str]:
        """Return errors of the browser, such as violations of its policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browsing(folder: Path, *, dark: bool = False) -> Iterator[Browser]:
    """Yield a browser with a new profile. Skip without a browser."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="there is no selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no chromium with its driver")
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(option)
    options.add_argument(f"--user-data-dir={folder}")
    if dark:
        options.add_argument("--blink-settings=preferredColorScheme=0")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
