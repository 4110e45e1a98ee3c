"""The commands that write texts or vectors: generate, embed, neighbors."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.data.files import as_location
from ensue.decode.sampling import Sampling
from ensue.errors import EnsueError, numeric_settings, pluralize
from ensue.models.adaptation import Adaptation
from ensue.outputs import Access

SAMPLING_OPTIONS = (*numeric_settings(Sampling), "seed", "samples")
SEARCH_OPTIONS = ("n_best", "no_repeat_ngram")
SHARED = ("run", "device", "threads", "precision")


@cli.with_settings(Adaptation, after="samples")
@cli.with_settings(Sampling, after="max_tokens")
def generate(
    context: typer.Context, run: cli.RunArgument,
    prompt: Annotated[str, Access.FILE, Option(
        help="The beginning of the text; - reads stdin. For models that write files: a file to continue."
    )] = "",
    max_tokens: Annotated[int, Option(min=1, max=1_000_000_000, help="The maximum number of tokens.")] = 500,
    seed: Annotated[int | None, Option(min=0, max=2**63 - 1, help="The seed of sampling.")] = None,
    samples: Annotated[int, Option(min=1, max=10_000, help="The number of texts, series or images.")] = 1,
    out: Annotated[Path | None, Access.OUT_FILE, Option(
        help="For models that write files, such as images: the file, in the format of its suffix."
    )] = None,
    overwrite: cli.OverwriteOption = False,
    beams: Annotated[
        int | None, Option(min=1, max=10_000, help="Search for the most probable text with N beams, without sampling.")
    ] = None,
    n_best: Annotated[int, Option(min=1, max=10_000, help="With --beams: the number of texts.")] = 1,
    no_repeat_ngram: Annotated[
        int, Option(min=0, max=1_000_000, help="With --beams: write no n-gram of N tokens twice.")
    ] = 0,
    device: cli.DeviceOption = "auto", threads: cli.OneThreadOption = None, precision: cli.PrecisionOption = "float32",
    **sampling: Any,
) -> None:  # fmt: skip
    """Generate with a model. Text appears as it is sampled; some models write a file (--out)."""
    for name in SEARCH_OPTIONS if beams is None else SAMPLING_OPTIONS:
        if is_set(context, name):
            problem = "needs --beams" if beams is None else "has no effect with --beams, which does not sample"
            raise EnsueError(f"--{name.replace('_', '-')} {problem}")
    values = {name: value for name, value in context.params.items() if name not in SHARED and is_set(context, name)}
    pipeline = cli.load_for("generate", run, device, threads, precision, **values)
    cli.pop_options("generate", sampling)
    adaptation = cli.pop_adaptation(sampling)
    if pipeline.generates_files:
        if out is None:
            raise EnsueError(f"{run}: this model writes a file; --out FILE names it")
        cli.notify(pipeline.generate_into(**values))
        return
    if adaptation:
        pipeline = pipeline.with_adaptation(**adaptation)
    options: dict[str, Any] = {"max_tokens": max_tokens, "seed": seed, **sampling}
    begin = prompt
    if prompt == "-":
        from ensue.data.sources import read_stream

        begin = read_stream("-")
    if beams is not None:
        show_hypotheses(
            begin,
            pipeline.search(begin, beams=beams, n_best=n_best, max_tokens=max_tokens, no_repeat_ngram=no_repeat_ngram),
        )
        return
    if samples == 1:
        chunks = pipeline.generate(begin, **options)
        print(begin, end="", flush=True)
        for chunk in chunks:
            print(chunk, end="", flush=True)
        print()
        return
    for number, sample in enumerate(pipeline.samples(begin, samples, **options), start=1):
        print(f"{'' if number == 1 else chr(10)}--- {number}\n{begin}{sample}")


def is_set(context: typer.Context, name: str) -> bool:
    """Return whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def show_hypotheses(begin: str, hypotheses: list[Any]) -> None:
    """Print hypotheses, with their surprisals if there are several."""
    if len(hypotheses) == 1:
        print(begin + hypotheses[0].text)
        return
    for number, (text, nats) in enumerate(hypotheses, start=1):
        print(f"{'' if number == 1 else chr(10)}--- {number} ({nats:.2f} nats)\n{begin}{text}")


def embed(
    run: cli.RunArgument,
    paths: Annotated[list[str] | None, Access.TEXTS, Argument(
        help="Texts, one on a line: files, folders, globs or a pipe; default: stdin."
    )] = None,
    out: Annotated[
        Path | None, Option(help="A file to write: .npy, .jsonl; for words also .txt, .vec, .bin."), Access.OUT_FILE
    ] = None,
    overwrite: cli.OverwriteOption = False,
    as_json: Annotated[bool, Option("--json", help="A JSON line for each text.")] = False,
    pooling: Annotated[
        str | None, Option(help="The pooling of a text's vectors: mean, first, last, max; default: mean.")
    ] = None,
    layer: Annotated[int | None, Option(help="The layer; 0: the embeddings, -1: the last; default: the last.")] = None,
    half: Annotated[bool, Option("--half", help="Write 16-bit numbers to a .npy file.")] = False,
    shard: cli.ShardOption = None, encoding: cli.EncodingOption = None, device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None, precision: cli.PrecisionOption = "float32",
) -> None:  # fmt: skip
    """Compute the vector of each text."""
    if half and (out is None or out.suffix != ".npy"):
        raise EnsueError("--half is for vectors in a file: --out FILE.npy")
    options: dict[str, Any] = {"pooling": pooling, "layer": layer}
    arguments = {name: value for name, value in options.items() if value is not None}
    pipeline = cli.load_for("embed", run, device, threads, precision, **arguments)
    from ensue.console.vectors import embed_lines, to_float16
    from ensue.data.vectors import json_line, write_vectors
    from ensue.tasks.contract.chunks import Shard

    texts = as_location(paths or []) or "-"
    encoding = pipeline.reading(texts, encoding)["encoding"]
    rows = embed_lines(pipeline, texts, encoding=encoding, shard=Shard.parse(shard, texts), **arguments)
    if out is not None:
        converted = ((text, to_float16(text, vector)) for text, vector in rows) if half else rows
        cli.notify(f"wrote {pluralize(write_vectors(out, converted), 'vector')} to {out}")
        return
    for text, vector in rows:
        line = json_line(text, vector) if as_json else f"{text}\t{' '.join(f'{number:.6g}' for number in vector)}"
        print(line, flush=True)


def neighbors(
    run: cli.RunArgument, text: Annotated[str, Argument(help="A word or a text; omitted with --near-duplicates.")] = "",
    among: Annotated[list[str] | None, Access.DATA, Option(
        "--in", help="Texts to search, one on a line: a file, folder or glob; may be repeated."
    )] = None,
    vectors: Annotated[
        Path | None, Option(help="The vectors of these texts, from embed --out FILE.npy."), Access.DATA
    ] = None,
    near_duplicates: Annotated[
        float | None, Option(min=-1, max=1, help="Show pairs of these texts with at least this cosine.")
    ] = None,
    count: Annotated[int, Option(min=1, max=1_000_000, help="The number of neighbors.")] = 10,
    as_json: Annotated[bool, Option("--json", help="A JSON line for each neighbor or pair.")] = False,
    encoding: cli.EncodingOption = None, device: cli.DeviceOption = "auto", threads: cli.OneThreadOption = None,
    precision: cli.PrecisionOption = "float32",
) -> None:  # fmt: skip
    """Show the words or texts with the most similar vectors."""
    if among is None and (vectors is not None or near_duplicates is not None):
        raise EnsueError("--vectors and --near-duplicates are for texts: --in TEXTS")
    if bool(text) == (near_duplicates is not None):
        raise EnsueError("expected either a text, whose neighbors are shown, or --near-duplicates")
    pipeline = cli.load_for("neighbors" if among is None else "embed", run, device, threads, precision)
    from ensue.console.vectors import TextTable, neighbor_lines, pair_lines

    if among is None:
        lines = neighbor_lines(pipeline.neighbors(text, count), as_json=as_json)
    else:
        texts = as_location(among)
        table = TextTable(pipeline, texts, vectors, encoding=pipeline.reading(texts, encoding)["encoding"])
        if near_duplicates is None:
            lines = neighbor_lines(table.neighbors(text, count), as_json=as_json)
        else:
            lines = pair_lines(table.near_duplicates(near_duplicates), as_json=as_json)
    for line in lines:
        print(line)
