"""The film of the README: a terminal in which the quick start runs, as an SVG that moves by itself.

    pip install pyte
    python benchmarks/film.py [SECONDS]

Runs the commands below in a terminal of 116 columns, one after the other, and writes docs/terminal.svg. What stands in
it is what they wrote. Waiting is cut short, and says so.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte

OUT = Path(__file__).resolve().parents[1] / "docs" / "terminal.svg"
COLUMNS, ROWS = 116, 26
X, Y, MARGIN = 7.8, 17, 14
"""The width of a column, the height of a row, and the margin, in pixels."""
EVERY = 0.35
"""Seconds between two pictures of a command at work."""
SHORTEST, LONGEST, TYPED, LAST = 0.2, 1.0, 0.9, 6.0
"""Seconds that a picture stays: at least, at most, a command before it runs, and the last one."""
FASTER = 4.0
"""How much faster the film is than the commands."""
COMMANDS = (
    "ensue quickstart --seconds {seconds:g} --threads 1",
    'ensue generate quickstart --prompt "The " --max-tokens 240 --temperature 0.7 --seed 1',
    "echo 'A class is a type.' | ensue score quickstart | head -12",
)
NAMES = {"default": "", "black": "dim", "brightblack": "dim", "green": "green", "red": "red", "cyan": "cyan",
         "magenta": "violet", "blue": "blue", "brown": "yellow"}  # fmt: skip
STYLE = """
.paper{fill:#fff;stroke:#d0d7de}text{fill:#1f2328;font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;
white-space:pre}.bold{font-weight:700}.dim{fill:#59636e}.green{fill:#116329}.red{fill:#b31d28}.cyan{fill:#0b5f74}
.violet{fill:#6639ba}.blue{fill:#0550ae}.yellow{fill:#7d4e00}
@media(prefers-color-scheme:dark){.paper{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}.dim{fill:#9198a1}
.green{fill:#7ee787}.red{fill:#ffa198}.cyan{fill:#76e3ea}.violet{fill:#d2a8ff}.blue{fill:#79c0ff}.yellow{fill:#e3b341}}
"""

Row = tuple[tuple[str, str, int], ...]
"""The parts of a row: text, class of its style, column."""
Picture = tuple[Row, ...]


def row_of(cells: Any) -> Row:
    """A row of the terminal as parts of one style."""
    parts: list[tuple[str, str, int]] = []
    styles = [(cells[x].data, f"{'bold ' * cells[x].bold}{NAMES.get(cells[x].fg, 'dim')}".strip(), x)
              for x in range(COLUMNS)]  # fmt: skip
    for style, group in groupby(styles, key=lambda cell: cell[1]):
        cell = [*group]
        text = "".join(data for data, _, _ in cell)
        if text.strip():
            start = len(text) - len(text.lstrip())
            parts.append((text.strip(), style, cell[0][2] + start))
    return tuple(parts)


def picture_of(screen: pyte.Screen) -> Picture:
    return tuple(row_of(screen.buffer[y]) for y in range(ROWS))


def shown(command: str, screen: pyte.Screen, stream: pyte.Stream, folder: Path) -> Iterator[tuple[float, Picture]]:
    """Runs a command in the terminal; yields what it shows now and then, with the time."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ |= {
            "ENSUE_CACHE": "cache",
            "TERM": "xterm-256color",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    last = time.monotonic()
    while True:
        if select.select([terminal], [], [], EVERY)[0]:
            try:
                content = os.read(terminal, 1 << 16)
            except OSError:  # it has ended
                break
            if not content:
                break
            stream.feed(content.decode(errors="replace"))
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            yield last, picture_of(screen)
    if (status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) != 0:
        raise SystemExit(f"{command}: status {status}\n" + "\n".join(screen.display))
    yield time.monotonic(), picture_of(screen)


def film(seconds: float) -> list[tuple[float, Picture]]:
    """The pictures of all commands, each with the seconds that it stays."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    frames: list[tuple[float, Picture]] = []
    with tempfile.TemporaryDirectory() as folder:
        for command in (each.format(seconds=seconds) for each in COMMANDS):
            if screen.cursor.x:
                stream.feed("\r\n")
            stream.feed(f"\x1b[1m$ {command}\x1b[0m\r\n")
            frames.append((TYPED, picture_of(screen)))
            before = time.monotonic()
            for now, picture in shown(command, screen, stream, Path(folder)):
                if picture != frames[-1][1]:
                    took = min(max((now - before) / FASTER, SHORTEST), LONGEST)
                    frames.append((took, picture))
                    before = now
            frames[-1] = (2.5, frames[-1][1])
    frames[-1] = (LAST, frames[-1][1])
    return frames


def drawn(frames: list[tuple[float, Picture]]) -> str:
    """The film as SVG. Rows that come again are drawn once; one animation moves the strip of pictures."""
    rows = {row: f"r{number}" for number, row in enumerate({row: None for _, one in frames for row in one if row})}
    defined = "".join(f'<g id="{name}">{"".join(map(text_of, row))}</g>' for row, name in rows.items())
    height, total = ROWS * Y, sum(stays for stays, _ in frames)
    strip, steps, at = [], [], 0.0
    for number, (stays, picture) in enumerate(frames):
        uses = "".join(f'<use href="#{rows[row]}" y="{y * Y}"/>' for y, row in enumerate(picture) if row)
        strip.append(f'<g transform="translate(0 {number * height})">{uses}</g>')
        steps.append(f"{100 * at / total:.2f}%{{transform:translateY({-number * height}px)}}")
        at += stays
    last = -(len(frames) - 1) * height
    moves = (
        f"@keyframes film{{{''.join(steps)}100%{{transform:translateY({last}px)}}}}"
        f"#film{{transform:translateY({last}px);animation:film {total:.1f}s step-end 3 both}}"
        "@media(prefers-reduced-motion:reduce){#film{animation:none}}"
    )
    width, tall = COLUMNS * X + 2 * MARGIN, height + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {tall}" role="img">'
        f"<title>The quick start of ensue in a terminal</title><style>{STYLE}{moves}</style><defs>{defined}</defs>"
        f'<rect class="paper" x=".5" y=".5" width="{width - 1:.0f}" height="{tall - 1}" rx="8"/>'
        f'<svg x="{MARGIN}" y="{MARGIN}" width="{COLUMNS * X:.0f}" height="{height}"><g id="film">{"".join(strip)}</g>'
        "</svg></svg>\n"
    )


def text_of(part: tuple[str, str, int]) -> str:
    text, style, column = part
    kind = f' class="{style}"' if style else ""
    return (
        f'<text{kind} x="{column * X:.1f}" y="13" textLength="{len(text) * X:.1f}" xml:space="preserve">'
        f"{escape(text, quote=False)}</text>"
    )


def main() -> None:
    frames = film(float(sys.argv[1]) if len(sys.argv) > 1 else 40.0)
    OUT.write_text(drawn(frames), encoding="utf-8")
    print(f"{OUT}: {len(frames)} pictures, {sum(stays for stays, _ in frames):.0f} s, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
