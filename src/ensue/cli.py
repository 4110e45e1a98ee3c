"""The command line. Results go to stdout; progress and complaints go to stderr.

Exit status: 0 done, 2 the user's mistake (one line), 130 interrupted and saved; anything else is a bug, with traceback.
What needs torch is imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ensue.console.imports import importing_torch
from ensue.console.mistakes import in_one_line, mistake
from ensue.console.notices import notices_shown
from ensue.console.output import streams
from ensue.errors import EnsueError
from ensue.version import VERSION

if TYPE_CHECKING:
    from ensue.recipe import Recipe
    from ensue.training.reporter import Outcome

app = typer.Typer(
    name="ensue",
    help="Sequence models on your own text: train them, use them, look inside.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

USAGE_ERROR: Any = typer.BadParameter.__base__
"""What the command line's parser raises for an unknown command, option or value."""

RunArgument = Annotated[Path, typer.Argument(help="A run directory.", show_default=False)]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="CPU threads; default: what was measured as fastest (ensue machine)."),
]
OneThreadOption = Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads; default: 1.")]
VectorsOption = Annotated[
    Path | None, typer.Option(help="Look new words up in this file of pretrained vectors.", show_default=False)
]
EncodingOption = Annotated[str, typer.Option(help="Encoding of the text.")]


def main() -> None:
    """The entry point of the `ensue` command."""
    with streams(), notices_shown():
        sys.exit(_status())


def _status() -> int:
    """Run the command; its exit status. What is nobody's mistake is raised, for its traceback to be seen."""
    try:
        status: int = app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except USAGE_ERROR as error:
        what = error.format_message()
    except Exception as error:
        found = mistake(error)
        if found is None:
            raise
        what = found
    _say(f"ensue: {in_one_line(what)}")
    return 2


def _version(wanted: bool) -> None:
    if wanted:
        print(f"ensue {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def quickstart(
    text: Annotated[
        Path | None, typer.Argument(help="A text file; without it, English that Python carries.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; default: quickstart, quickstart-2, ...")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long to train.")] = 40,
    threads: ThreadsOption = None,
) -> None:
    """Train a small language model in about a minute and see what it writes."""
    from ensue.quickstart import default_run, python_text

    if text is None:
        text_of_python, origin = python_text()
        _say(f"training on English that Python carries: {origin}")
    source = str(text_of_python if text is None else text)
    recipe = _recipe("char-lstm", [f"train.seconds={seconds}", "train.validations=4"], train=source)
    run = out or default_run()
    if run.exists():
        raise EnsueError(f"{run}: is there already; choose another --out")
    outcome = _train(recipe, run, resume=False, overwrite=False, device="auto", threads=threads)
    _exit_if_interrupted(outcome, run)
    _show_samples(run, 2)
    _say(
        f"\nThe learning curve is {run / 'curve.png'}, the model card {run / 'README.md'}. Try next:\n"
        f'  ensue generate {_quoted(run)} --prompt "The " --temperature 0.7\n'
        f"  ensue score {_quoted(run)} {_quoted(source)}\n"
        f"  ensue train char-lstm --train {_quoted(source)} --out longer"
    )


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's name or a TOML file.", show_default=False)] = None,
    train: Annotated[str, typer.Option("--train", help="Training data: a file, a folder or a glob.")] = "",
    valid: Annotated[str, typer.Option(help="Validation data; default: a tenth of the training data.")] = "",
    test: Annotated[str, typer.Option(help="Data to score once, at the end.")] = "",
    out: Annotated[Path, typer.Option(help="The run directory.", show_default=False)] = ...,  # type: ignore[assignment]
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: train.seconds=60, ...")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Remove the run that is there.")] = False,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Train a model: ensue train char-lstm --train book.txt --out run"""
    if recipe is None:
        if not resume:
            raise EnsueError("which recipe? `ensue recipes` lists them; only --resume needs none")
        recipe = str(out / "recipe.toml") if settings or train or valid or test else None
    chosen = None if recipe is None else _recipe(recipe, settings or [], train=train, valid=valid, test=test)
    outcome = _train(chosen, out, resume=resume, overwrite=overwrite, device=device, threads=threads)
    _exit_if_interrupted(outcome, out)
    verb = "generate" if outcome.task == "language-modeling" else "predict"
    _say(f"wrote {out}: curve.png, README.md; try\n  ensue {verb} {_quoted(out)}")


@app.command()
def evaluate(
    run: RunArgument,
    path: Annotated[str | None, typer.Argument(help="A text: file, folder or glob.", show_default=False)] = None,
    minimal_pairs: Annotated[
        Path | None, typer.Option(help="Pairs of sentences (BLiMP, colorless_green): which is more probable?")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="What labeled data are; default: what they look like.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    vectors: VectorsOption = None,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Score a model: on a text, or on labeled data like those it was trained on."""
    if (path is None) == (minimal_pairs is None):
        raise EnsueError("evaluate takes a PATH or --minimal-pairs FILE, one of the two")
    only = "language-modeling" if minimal_pairs else ("labeling", "classification") if format or vectors else None
    pipeline = _load(run, device, threads, vectors=vectors, task=only)
    from ensue.console.tables import show_pairs, show_scores

    if minimal_pairs is not None:
        result = pipeline.minimal_pairs(minimal_pairs, encoding=encoding)
        print(json.dumps(result.as_json())) if as_json else show_pairs(result)
        return
    assert path is not None
    options = {"format": format} if format else {}
    scores = pipeline.evaluate(path, encoding=encoding, **options)
    if protocol := pipeline.protocol(scores):
        _say(protocol)
    print(json.dumps(scores.as_json())) if as_json else show_scores(scores)


@app.command()
def predict(
    run: RunArgument,
    path: Annotated[
        str | None,
        typer.Argument(help="Texts: a file, folder, glob or pipe; - or nothing reads stdin.", show_default=False),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="What the texts are: text, columns, conllu, json, tsv, csv, ...; default: what they look like."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each text, with probabilities.")] = False,
    splitter: Annotated[
        str | None,
        typer.Option(help="How text is cut into words; whitespace: it is cut already; default: as in training."),
    ] = None,
    vectors: VectorsOption = None,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Label texts: lines in, lines out, in their order and their format."""
    pipeline = _load(run, device, threads, vectors=vectors, task=("labeling", "classification"))
    from ensue.console.predictions import class_lines, label_lines

    pipeline = pipeline.with_splitter(splitter) if splitter else pipeline
    lines = label_lines if pipeline.recipe.task == "labeling" else class_lines
    texts = "-" if path is None else path
    for line in lines(pipeline, texts, format=format, encoding=encoding, as_json=as_json, color=sys.stdout.isatty()):
        print(line, end="", flush=True)


@app.command()
def inspect(
    run: RunArgument,
    texts: Annotated[
        list[str], typer.Argument(help="A text, or two for a model of pairs; - reads stdin.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The page that is written.")] = Path("inspection.html"),
    vectors: VectorsOption = None,
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Look inside a tagger or classifier: one self-contained page of what happened."""
    pipeline = _load(run, device, threads, vectors=vectors, task=("labeling", "classification"))
    from ensue.console.inspection import write_inspection

    _say(f"wrote {write_inspection(pipeline, texts, out)}")


@app.command()
def gradients(
    encoders: Annotated[
        list[str] | None,
        typer.Argument(help="default: elman, lstm, gru, clockwork, mingru.", show_default=False),
    ] = None,
    positions: Annotated[int, typer.Option(min=1, max=100_000, help="Positions from first symbol to recall.")] = 200,
    out: Annotated[Path, typer.Option(help="The picture that is written: .png or .svg.")] = Path("gradients.png"),
    steps: Annotated[int, typer.Option(min=0, max=1_000_000, help="Training steps; 0: only as initialized.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed draws the same picture.")] = 0,
    d_model: Annotated[int, typer.Option(min=1, max=10_000, help="Features of the state.")] = 64,
    threads: OneThreadOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, with every norm.")] = False,
) -> None:
    """See how far gradients reach back through recurrent encoders, on a copy task, before and after training."""
    with importing_torch():
        from ensue.console.gradients import show_gradients

    show_gradients(
        encoders or [], out, positions=positions, steps=steps, seed=seed, d_model=d_model, threads=threads or 1,
        as_json=as_json,
    )  # fmt: skip
    _say(f"wrote {out}")


@app.command()
def data(
    path: Annotated[str, typer.Argument(help="Data: a file, folder or glob.", show_default=False)],
    format: Annotated[str | None, typer.Option(help="What they are; default: what they look like.")] = None,
    words: Annotated[str, typer.Option(help="The column of the words, or of the text.")] = "",
    labels: Annotated[str, typer.Option(help="The column of the labels.")] = "",
    encoding: EncodingOption = "utf-8",
) -> None:
    """Look at data: what a file is taken for, how much there is, its labels, and the first line that is wrong."""
    from ensue.console.data_summary import show_data

    show_data(path, format=format, words=words, labels=labels, encoding=encoding)


@app.command()
def score(
    run: RunArgument,
    path: Annotated[
        str | None, typer.Argument(help="A text, or a pipe; - or nothing reads stdin.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each token.")] = False,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Look a text up: the surprisal of every token in nats, a line each."""
    pipeline = _load(run, device, threads, task="language-modeling")
    from ensue.console.streams import score_lines

    for line in score_lines(pipeline, "-" if path is None else path, encoding, as_json=as_json):
        print(line, flush=True)


@app.command()
def generate(
    run: RunArgument,
    prompt: Annotated[str, typer.Option(help="Where to begin; - reads stdin.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="Length of what is written.")] = 500,
    temperature: Annotated[
        float, typer.Option(help="Below 1 more cautious, above 1 more daring; 0 takes the most probable.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Choose among the K most probable.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Choose among those that hold the share P together.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Choose among those at least P times as probable as the best.")
    ] = None,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: avoid what was there before.")] = 1.0,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="The same seed writes the same text.")] = None,
    samples: Annotated[int, typer.Option(min=1, max=10_000, help="How many texts.")] = 1,
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Write: text appears as it is sampled."""
    pipeline = _load(run, device, threads, task="language-modeling")
    options: dict[str, Any] = {
        "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "repetition_penalty": repetition_penalty, "seed": seed,
    }  # fmt: skip
    begin = prompt
    if prompt == "-":
        from ensue.console.streams import whole_text

        begin = whole_text("-")
    if samples == 1:
        pieces = pipeline.generate(begin, **options)
        print(begin, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
        return
    for number, sample in enumerate(pipeline.samples(begin, samples, **options), start=1):
        print(f"{'' if number == 1 else chr(10)}--- {number}\n{begin}{sample}")


@app.command()
def cache(
    older_than: Annotated[
        str | None, typer.Option(help="Remove what was not used for so long: 30d, 12h, 2w.", show_default=False)
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of it.")] = False,
) -> None:
    """See what is kept and can be made again (ids, tokenizers, compiled cells), or remove it."""
    from ensue.console.cache import clear_cache, show_cache

    if clear and older_than is not None:
        raise EnsueError("cache takes --older-than or --clear, one of the two")
    clear_cache(older_than) if clear or older_than is not None else show_cache()


@app.command()
def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Show this one, with all its defaults.", show_default=False)
    ] = None,
) -> None:
    """List the recipes that come with ensue, or show one."""
    from ensue.recipe import read_recipe, recipe_names

    if name is not None:
        print(read_recipe(name).to_toml(), end="")
        return
    from ensue.console.tables import show_recipes

    show_recipes([(known, read_recipe(known)) for known in recipe_names()])


@app.command()
def machine(
    renew: Annotated[bool, typer.Option("--renew", help="Measure again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show how this machine computes fastest: measured once, at the first training, and kept for all runs."""
    from ensue.console.machine import machine_json, show_machine
    from ensue.training.machine import machine_profile

    profile = machine_profile(_say, renew=renew)
    print(machine_json(profile)) if as_json else show_machine(profile)


def _recipe(name: str, settings: list[str], *, train: str = "", valid: str = "", test: str = "") -> Recipe:
    from ensue.recipe import read_recipe

    paths = {"train": train, "valid": valid, "test": test}
    given = [f"data.{key}={json.dumps(path, ensure_ascii=False)}" for key, path in paths.items() if path]
    return read_recipe(name, [*settings, *given])


def _train(recipe: Recipe | None, out: Path, **options: Any) -> Outcome:
    with importing_torch():
        from ensue.console.reporter import ConsoleReporter
        from ensue.training.run import train_run

    with ConsoleReporter() as reporter:
        return train_run(recipe, out, reporter=reporter, **options)


DOES = {
    "language-modeling": "a language model, for generate, score and evaluate",
    "labeling": "a tagger, for predict, evaluate and inspect",
    "classification": "a classifier, for predict, evaluate and inspect",
}


def _load(
    run: Path, device: str, threads: int | None, *,
    task: str | tuple[str, ...] | None = None, vectors: Path | None = None,
) -> Any:  # fmt: skip
    """The run's pipeline, if it can do what is asked."""
    with importing_torch():
        import torch

        from ensue.pipeline import load
        from ensue.training.run_directory import RunDirectory

    found = RunDirectory(run).config.get("task")
    if task is not None and found not in (task if isinstance(task, tuple) else (task,)):
        raise EnsueError(f"{run}: the model is {DOES.get(str(found), found)}")
    torch.set_num_threads(threads or 1)  # before anything is computed: several would wait for each other
    return load(run, device=device, vectors=vectors)


def _show_samples(run: Path, count: int) -> None:
    from ensue.pipeline import load

    for number, sample in enumerate(load(run).samples("", count, max_tokens=300, temperature=0.8, seed=0), start=1):
        print(f"\n--- sample {number}\n{sample}")


def _exit_if_interrupted(outcome: Outcome, run: Path) -> None:
    if outcome.reason == "interrupted":
        _say(f"saved at step {outcome.step:,}; go on with\n  ensue train --resume --out {_quoted(run)}")
        raise typer.Exit(130)


def _quoted(path: Path | str) -> str:
    return shlex.quote(str(path))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
