"""The inspector in Chromium: the time of loading a page, of updating the live page, and of a move of the pointer.

    PYTHONPATH=tests python -m benchmarks.inspector RUN TEXT_FILE --tokens 500 --tokens 5000 [--words]

RUN is a model with one input text, such as a language model, a tagger, a classifier or a translator. Tokens are
characters, or with --words the words between blanks. A change makes the last word one letter longer. The script needs
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
from benchmarks.machine import describe_machine
from serving.running import Running

import ensue
from inspection.browser import Browser, browsing

CHANGES, MOVES = 10, 60
ANSWERED = "document.querySelector('.state').textContent.endsWith(' ms')"


def page_milliseconds(browser: Browser) -> dict[str, float]:
    """Return the milliseconds of processor time of the page until now, by kind of work."""
    metrics = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: 1000 * metric["value"] for metric in metrics if metric["name"].endswith("Duration")}


def measure_loading(browser: Browser, page: Path) -> tuple[float, float]:
    """Load a page. Return the time until it is drawn, and its processor time, in milliseconds."""
    browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.open(page)
    browser.until("document.readyState === 'complete'")
    end = browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    return end, page_milliseconds(browser)["TaskDuration"]


def measure_moves(browser: Browser) -> dict[str, float]:
    """Return the processor time of a move of the pointer over the text, in milliseconds."""
    browser.run("document.querySelector('.text').scrollIntoView()")
    left, top = browser.run("const b = document.querySelector('.text').getBoundingClientRect(); return [b.x, b.y]")
    before = page_milliseconds(browser)
    for move in range(MOVES):
        place = {"type": "mouseMoved", "x": left + 5 + 7 * move % 250, "y": top + 30 + 5 * move % 200}
        browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", place)
    after = page_milliseconds(browser)
    return {kind: (after[f"{kind}Duration"] - before[f"{kind}Duration"]) / MOVES
            for kind in ("Script", "RecalcStyle", "Layout")}  # fmt: skip


def server_milliseconds(server: Running) -> float:
    """Return the milliseconds of processor time of the server until now."""
    _, _, numbers = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")
    return 1000 * sum(map(int, numbers.split()[11:13])) / os.sysconf("SC_CLK_TCK")


def measure_changes(browser: Browser, server: Running, text: str) -> tuple[list[float], float, float]:
    """Measure changes of the text, in milliseconds.

    Returns:
        The sorted times from the request to the drawn answer, and the processor time of the server and of the page for
        one change.
    """
    browser.open(server.url)
    browser.until("document.querySelector('textarea')")
    script = (
        "const area = document.querySelector('textarea'); area.value = arguments[0];"
        "document.querySelector('.state').textContent = '';"
        "area.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    times: list[float] = []
    start: tuple[float, float] = (0.0, 0.0)
    for change in range(CHANGES + 1):
        browser.run(script, text + "a" * change)
        browser.until(ANSWERED)
        times.append(float(browser.text(".state").split()[0]))
        if not change:  # the first change is a warm-up
            start = server_milliseconds(server), page_milliseconds(browser)["TaskDuration"]
    server_work = server_milliseconds(server) - start[0]
    page_work = page_milliseconds(browser)["TaskDuration"] - start[1]
    return sorted(times[1:]), server_work / CHANGES, page_work / CHANGES


def main(
    run: Annotated[Path, typer.Argument()],
    text: Annotated[Path, typer.Argument()],
    tokens: Annotated[list[int], typer.Option()] = [500],  # noqa: B006
    words: Annotated[bool, typer.Option("--words")] = False,
) -> None:
    """Print a line for each number of tokens."""
    torch.set_num_threads(1)
    print(describe_machine(seed=0))
    pipeline, content = ensue.load(run), text.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name, browsing(Path(name) / "browser") as browser, Running(run) as server:
        for count in tokens:
            excerpt = " ".join(content.split()[:count]) if words else content[:count]
            start = time.process_time()
            page = pipeline.inspect(excerpt).save(Path(name) / "page.html")
            written, (loaded, work) = 1000 * (time.process_time() - start), measure_loading(browser, page)
            moves, (times, server_work, page_work) = measure_moves(browser), measure_changes(browser, server, excerpt)
            print(
                f"{count} tokens: page {page.stat().st_size / 1000:.0f} kB, written in {written:.0f} ms of processor, "
                f"loaded in {loaded:.0f} ms (work {work:.0f}); a change {times[len(times) // 2]:.0f} ms "
                f"({times[0]:.0f} to {times[-1]:.0f}; work: server {server_work:.0f}, page {page_work:.0f}); a move "
                + ", ".join(f"{kind} {milliseconds:.2f}" for kind, milliseconds in moves.items())
            )


if __name__ == "__main__":
    typer.run(main)
