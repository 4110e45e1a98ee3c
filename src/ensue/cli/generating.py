"""The command that generates: text that a model samples or a search finds, or a file of frames or images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.arguments import settings_of
from ensue.cli.options import (
    DeviceOption,
    OneThreadOption,
    OverwriteOption,
    PrecisionOption,
    RunArgument,
    load_for,
    say,
    taken_adaptation,
    with_settings,
)
from ensue.decode.sampling import Sampling
from ensue.errors import EnsueError
from ensue.models.adaptation import Adaptation
from ensue.outputs import Access

DRAWING = (*settings_of(Sampling), "seed", "samples")
SEARCHING = ("n_best", "no_repeat_ngram")
OF_ALL = ("run", "device", "threads", "precision")


@with_settings(Adaptation, after="samples")
@with_settings(Sampling, after="max_tokens")
def generate(
    context: typer.Context,
    run: RunArgument,
    prompt: Annotated[
        str,
        typer.Option(help="The beginning of the text; - reads stdin. For frames: a file of series that go on."),
        Access.FILE,
    ] = "",
    max_tokens: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="The most tokens to write.")] = 500,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="The same seed writes the same.")] = None,
    samples: Annotated[int, typer.Option(min=1, max=10_000, help="The number of texts, series or images.")] = 1,
    frames: Annotated[int, typer.Option(min=1, max=1_000_000, help="For frames: how many to write.")] = 100,
    out: Annotated[
        Path | None,
        typer.Option(help="For frames and images: the file to write, in the format of its suffix."),
        Access.OUT_FILE,
    ] = None,
    overwrite: OverwriteOption = False,
    beams: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Draw nothing: search for the most probable text with N beams."),
    ] = None,
    n_best: Annotated[int, typer.Option(min=1, max=10_000, help="With --beams: the number of texts.")] = 1,
    no_repeat_ngram: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="With --beams: write no N tokens in a row twice.")
    ] = 0,
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
    precision: PrecisionOption = "float32",
    **sampling: Any,
) -> None:
    """Write what a model generates. Text appears as it is sampled; frames and images go into a file (--out)."""
    check_options(context, is_search=beams is not None)
    given = {name: context.params[name] for name in context.params if name not in OF_ALL and is_given(context, name)}
    pipeline = load_for("generate", run, device, threads, precision, **given)
    adaptation = taken_adaptation(sampling)
    if pipeline.generates_files:
        if out is None:
            raise EnsueError(f"{run}: this model writes a file; --out FILE names it")
        say(pipeline.generate_into(**given))
        return
    if adaptation:
        pipeline = pipeline.with_adaptation(**adaptation)
    options: dict[str, Any] = {"max_tokens": max_tokens, "seed": seed, **sampling}
    begin = prompt
    if prompt == "-":
        from ensue.data.sources import whole_text

        begin = whole_text("-")
    if beams is not None:
        show_found(
            begin,
            pipeline.search(begin, beams=beams, n_best=n_best, max_tokens=max_tokens, no_repeat_ngram=no_repeat_ngram),
        )
        return
    if samples == 1:
        pieces = pipeline.generate(begin, **options)
        print(begin, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
        return
    for number, sample in enumerate(pipeline.samples(begin, samples, **options), start=1):
        print(f"{'' if number == 1 else chr(10)}--- {number}\n{begin}{sample}")


def check_options(context: typer.Context, *, is_search: bool) -> None:
    """Raises EnsueError for an option of the search without `--beams`, or one of drawing with it."""
    for name in DRAWING if is_search else SEARCHING:
        if is_given(context, name):
            why = "has no meaning with --beams, which draws nothing" if is_search else "needs --beams"
            raise EnsueError(f"--{name.replace('_', '-')} {why}")


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def show_found(begin: str, found: list[Any]) -> None:
    """Prints what a search found: one text as it is, several with their surprisals."""
    if len(found) == 1:
        print(begin + found[0].text)
        return
    for number, (text, nats) in enumerate(found, start=1):
        print(f"{'' if number == 1 else chr(10)}--- {number} ({nats:.2f} nats)\n{begin}{text}")
