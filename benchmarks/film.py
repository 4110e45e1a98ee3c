"""The animation of the README: the quick start in a terminal, as an animated SVG.

    pip install pyte
    python benchmarks/film.py [SECONDS]

The script runs the commands below in a terminal of 116 columns, and writes docs/terminal.svg with their real output.
The animation is faster than the commands.
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
"""The width of a column, the height of a row, and the margin in pixels."""
FRAME_SECONDS = 0.35
"""The minimum time between two frames of a running command."""
MIN_FRAME_SECONDS, MAX_FRAME_SECONDS = 0.2, 1.0
COMMAND_SECONDS, OUTPUT_SECONDS, FINAL_SECONDS = 0.9, 2.5, 6.0
"""The duration of a command before it runs, of its last output, and of the last frame."""
SPEEDUP = 4.0
"""The speed of the animation, relative to the commands."""
COMMANDS = (
    "ensue quickstart --seconds {seconds:g} --threads 1",
    'ensue generate quickstart --prompt "The " --max-tokens 240 --temperature 0.7 --seed 1',
    "echo 'A class is a type.' | ensue score quickstart | head -12",
)
CSS_CLASSES = {"default": "", "black": "dim", "brightblack": "dim", "green": "green", "red": "red", "cyan": "cyan",
         "magenta": "violet", "blue": "blue", "brown": "yellow"}  # fmt: skip
STYLE = """
.paper{fill:#fff;stroke:#d0d7de}text{fill:#1f2328;font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;
white-space:pre}.bold{font-weight:700}.dim{fill:#59636e}.green{fill:#116329}.red{fill:#b31d28}.cyan{fill:#0b5f74}
.violet{fill:#6639ba}.blue{fill:#0550ae}.yellow{fill:#7d4e00}
@media(prefers-color-scheme:dark){.paper{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}.dim{fill:#9198a1}
.green{fill:#7ee787}.red{fill:#ffa198}.cyan{fill:#76e3ea}.violet{fill:#d2a8ff}.blue{fill:#79c0ff}.yellow{fill:#e3b341}}
"""

Row = tuple[tuple[str, str, int], ...]
"""The parts of a row: text, CSS classes, column."""
Picture = tuple[Row, ...]


def read_row(cells: Any) -> Row:
    """Divide a row of the terminal into parts with one style."""
    parts: list[tuple[str, str, int]] = []
    styles = [(cells[x].data, f"{'bold ' * cells[x].bold}{CSS_CLASSES.get(cells[x].fg, 'dim')}".strip(), x)
              for x in range(COLUMNS)]  # fmt: skip
    for style, group in groupby(styles, key=lambda cell: cell[1]):
        cell = [*group]
        text = "".join(data for data, _, _ in cell)
        if text.strip():
            start = len(text) - len(text.lstrip())
            parts.append((text.strip(), style, cell[0][2] + start))
    return tuple(parts)


def read_screen(screen: pyte.Screen) -> Picture:
    """Return the content of the terminal."""
    return tuple(read_row(screen.buffer[y]) for y in range(ROWS))


def run_command(
    command: str, screen: pyte.Screen, stream: pyte.Stream, folder: Path
) -> Iterator[tuple[float, Picture]]:
    """Run a command. Yield the time and the content of the terminal every FRAME_SECONDS of output, and at the end."""
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
        if select.select([terminal], [], [], FRAME_SECONDS)[0]:
            try:
                content = os.read(terminal, 1 << 16)
            except OSError:  # the command has ended
                break
            if not content:
                break
            stream.feed(content.decode(errors="replace"))
        if time.monotonic() - last >= FRAME_SECONDS:
            last = time.monotonic()
            yield last, read_screen(screen)
    if (status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) != 0:
        raise SystemExit(f"{command}: status {status}\n" + "\n".join(screen.display))
    yield time.monotonic(), read_screen(screen)


def record(seconds: float) -> list[tuple[float, Picture]]:
    """Run all commands. Return the frames with their durations in seconds."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    frames: list[tuple[float, Picture]] = []
    with tempfile.TemporaryDirectory() as folder:
        for command in (command.format(seconds=seconds) for command in COMMANDS):
            if screen.cursor.x:
                stream.feed("\r\n")
            stream.feed(f"\x1b[1m$ {command}\x1b[0m\r\n")
            frames.append((COMMAND_SECONDS, read_screen(screen)))
            before = time.monotonic()
            for now, picture in run_command(command, screen, stream, Path(folder)):
                if picture != frames[-1][1]:
                    duration = min(max((now - before) / SPEEDUP, MIN_FRAME_SECONDS), MAX_FRAME_SECONDS)
                    frames.append((duration, picture))
                    before = now
            frames[-1] = (OUTPUT_SECONDS, frames[-1][1])
    frames[-1] = (FINAL_SECONDS, frames[-1][1])
    return frames


def draw(frames: list[tuple[float, Picture]]) -> str:
    """Return the animation as SVG. Equal rows are defined once; one CSS animation moves the strip of frames."""
    rows = {
        row: f"r{number}" for number, row in enumerate({row: None for _, picture in frames for row in picture if row})
    }
    defined = "".join(f'<g id="{name}">{"".join(map(draw_text, row))}</g>' for row, name in rows.items())
    height, total = ROWS * Y, sum(duration for duration, _ in frames)
    strip, steps, start = [], [], 0.0
    for number, (duration, picture) in enumerate(frames):
        uses = "".join(f'<use href="#{rows[row]}" y="{y * Y}"/>' for y, row in enumerate(picture) if row)
        strip.append(f'<g transform="translate(0 {number * height})">{uses}</g>')
        steps.append(f"{100 * start / total:.2f}%{{transform:translateY({-number * height}px)}}")
        start += duration
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


def draw_text(part: tuple[str, str, int]) -> str:
    text, style, column = part
    kind = f' class="{style}"' if style else ""
    return (
        f'<text{kind} x="{column * X:.1f}" y="13" textLength="{len(text) * X:.1f}" xml:space="preserve">'
        f"{escape(text, quote=False)}</text>"
    )


def main() -> None:
    frames = record(float(sys.argv[1]) if len(sys.argv) > 1 else 40.0)
    OUT.write_text(draw(frames), encoding="utf-8")
    print(f"{OUT}: {len(frames)} frames, {sum(duration for duration, _ in frames):.0f} s, {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
