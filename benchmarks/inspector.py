"""The inspector in Chromium: the time to load a page, to answer a change on the live one, and of a move of the pointer.

    PYTHONPATH=tests python -m benchmarks.inspector RUN TEXT_FILE --tokens 500 --tokens 5000 [--words]

RUN is a model that reads one text: a language model, a tagger, a classifier, or one that writes a text for it. The
tokens are characters, with --words what stands between blanks. A change makes the last word a letter longer. It needs
Chromium with its driver, and selenium (the extra `browser`).
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from serving.running import Running

import ensue
from inspection.browser import Browser, browsing

CHANGES, MOVES = 10, 60
ANSWERED = "document.querySelector('.state').textContent.endsWith(' ms')"


def spent(browser: Browser) -> dict[str, float]:
    """Milliseconds of processor that the page has taken until now, by what it did."""
    metrics = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: 1000 * metric["value"] for metric in metrics if metric["name"].endswith("Duration")}


def loading(browser: Browser, page: Path) -> tuple[float, float]:
    """Until the page is drawn, and the processor time of the browser in that, in milliseconds."""
    browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.open(page)
    browser.until("document.readyState === 'complete'")
    end = browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    return end, spent(browser)["TaskDuration"]


def moving(browser: Browser) -> dict[str, float]:
    """The work of a move of the pointer over the text, in milliseconds."""
    browser.run("document.querySelector('.text').scrollIntoView()")
    left, top = browser.run("const b = document.querySelector('.text').getBoundingClientRect(); return [b.x, b.y]")
    before = spent(browser)
    for move in range(MOVES):
        place = {"type": "mouseMoved", "x": left + 5 + 7 * move % 250, "y": top + 30 + 5 * move % 200}
        browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", place)
    after = spent(browser)
    return {kind: (after[f"{kind}Duration"] - before[f"{kind}Duration"]) / MOVES
            for kind in ("Script", "RecalcStyle", "Layout")}  # fmt: skip


def work_of(server: Running) -> float:
    """Milliseconds of processor that the server has taken until now."""
    _, _, numbers = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")
    return 1000 * sum(map(int, numbers.split()[11:13])) / os.sysconf("SC_CLK_TCK")


def changing(browser: Browser, server: Running, text: str) -> tuple[list[float], float, float]:
    """From the request to the drawn answer, for a letter more each time, in milliseconds; and for one change the
    processor time of the server and of the page.
    """
    browser.open(server.url)
    browser.until("document.querySelector('textarea')")
    script = (
        "const area = document.querySelector('textarea'); area.value = arguments[0];"
        "document.querySelector('.state').textContent = '';"
        "area.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    found: list[float] = []
    begins: tuple[float, float] = (0.0, 0.0)
    for change in range(CHANGES + 1):
        browser.run(script, text + "a" * change)
        browser.until(ANSWERED)
        found.append(float(browser.text(".state").split()[0]))
        if not change:  # the server is warm
            begins = work_of(server), spent(browser)["TaskDuration"]
    ends = work_of(server), spent(browser)["TaskDuration"]
    return sorted(found[1:]), *((end - begin) / CHANGES for begin, end in zip(begins, ends, strict=True))


def main(
    run: Annotated[Path, typer.Argument()],
    text: Annotated[Path, typer.Argument()],
    tokens: Annotated[list[int], typer.Option()] = [500],  # noqa: B006
    words: Annotated[bool, typer.Option("--words")] = False,
) -> None:
    """Prints a line for each length."""
    torch.set_num_threads(1)
    pipeline, whole = ensue.load(run), text.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name, browsing(Path(name) / "browser") as browser, Running(run) as server:
        for count in tokens:
            some = " ".join(whole.split()[:count]) if words else whole[:count]
            start = time.process_time()
            page = pipeline.inspect(some).save(Path(name) / "page.html")
            wrote, (loaded, work) = 1000 * (time.process_time() - start), loading(browser, page)
            moves, (times, of_server, of_page) = moving(browser), changing(browser, server, some)
            print(
                f"{count} tokens: page {page.stat().st_size / 1000:.0f} kB, written in {wrote:.0f} ms of processor, "
                f"loaded in {loaded:.0f} ms (work {work:.0f}); a change {times[len(times) // 2]:.0f} ms "
                f"({times[0]:.0f} to {times[-1]:.0f}; work: server {of_server:.0f}, page {of_page:.0f}); a move "
                + ", ".join(f"{kind} {spent:.2f}" for kind, spent in moves.items())
            )


if __name__ == "__main__":
    typer.run(main)
