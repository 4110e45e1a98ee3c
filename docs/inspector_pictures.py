"""Screenshots for docs/inspector.md: pages of trained models in Chromium, as PNG files with few colors.

    PYTHONPATH=tests python docs/inspector_pictures.py --language RUN --beside RUN --tagger RUN --translator RUN \
        --captioner RUN --strip FILE

The script needs Chromium with its driver, and selenium (the extra `browser`).
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

import ensue
from ensue.inspection import Inspection
from inspection.browser import Browser, browsing

FOLDER = Path(__file__).parent
COLORS = 128
MAX_HEIGHT_PIXELS = 1_150
VERSE = """GRUMIO:
I am for thee straight: take thou the
bill, give me thy mete-yard, and spare not me.

HORTENSIO:
God-a-mercy, Grumio! then he shall have no odds.

PETRUCHIO:
Well, sir, in brief, the gown is not for me.
"""
NEWS = "Angela Merkel met Barack Obama at the United Nations in New York on Monday ."
CAPTION = "A man in a blue shirt is standing on a ladder cleaning a window."


def save_picture(browser: Browser, inspection: Inspection, name: str, headings: list[str]) -> None:
    """Save a screenshot of the sections with these headings, or of the whole page without headings."""
    with tempfile.TemporaryDirectory() as folder:
        browser.open(inspection.save(Path(folder) / "page.html"))
        browser.run(
            "for (const part of document.querySelectorAll('section')) part.hidden = arguments[0].length > 0"
            " && !arguments[0].some(name => part.querySelector('h2').textContent.startsWith(name));"
            "document.querySelector('footer').hidden = true; document.body.style.padding = '1rem 1.5rem'",
            headings,
        )
        browser.driver.set_window_size(1240, browser.run("return document.documentElement.offsetHeight") + 140)
        page = Image.open(io.BytesIO(browser.find("body").screenshot_as_png)).convert("RGB")
    cropped = page.crop((0, 0, page.width, min(page.height, MAX_HEIGHT_PIXELS)))
    quantized = cropped.quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    quantized.save(FOLDER / f"inspector-{name}.png", optimize=True)


def main(
    language: Annotated[Path, typer.Option(help="A character language model of plays.")],
    beside: Annotated[Path, typer.Option(help="Another language model of characters.")],
    tagger: Annotated[Path, typer.Option(help="A tagger of names.")],
    translator: Annotated[Path, typer.Option(help="A translator from English.")],
    captioner: Annotated[Path, typer.Option(help="A captioner of strips of digits.")],
    strip: Annotated[str, typer.Option(help="A strip, such as strips-test.npz[2].")],
) -> None:
    """Save all pictures."""
    first, second = ensue.load(language).inspect(VERSE), ensue.load(beside).inspect(VERSE)
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder)) as browser:
        save_picture(browser, first, "text", ["The text", "Units that follow"])
        save_picture(browser, first.beside(second), "beside", ["The text"])
        save_picture(browser, ensue.load(tagger).inspect(NEWS), "tagger", ["The sentence", "Emission", "The best"])
        translation = ensue.load(translator).inspect(CAPTION)
        save_picture(browser, translation, "translator", ["Source", "Attention", "The search"])
        save_picture(browser, ensue.load(captioner).inspect(strip), "captions", ["Attention"])


if __name__ == "__main__":
    typer.run(main)
