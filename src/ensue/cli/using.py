"""The commands that use a trained model: evaluate, predict, inspect, score."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.data.decoding import BOM
from ensue.data.files import as_location
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError, nearest
from ensue.extension import entries, find_entry, pipeline_methods, with_options
from ensue.models.adaptation import Adaptation
from ensue.outputs import Access


@cli.with_settings(Adaptation, after="as_json")
@cli.with_settings(BeamSearch, after="as_json", without=("n_best",), of_run=True)
def evaluate(
    run: cli.RunArgument,
    paths: Annotated[list[str] | None, Access.DATA, Argument(
        help="A text or labeled data: files, folders, globs. A cutter can take a tagger's run before a treebank."
    )] = None,
    minimal_pairs: Annotated[
        Path | None, Option(help="Score pairs of sentences (BLiMP, colorless_green)."), Access.DATA
    ] = None,
    similarity: Annotated[
        Path | None, Option(help="Score pairs of texts whose similarity was judged (STS-B, SICK)."), Access.DATA
    ] = None,
    format: cli.FormatOption = None,
    draws: Annotated[int | None, Option(
        min=1, max=100_000, help="Latent samples per example; several estimate -log p by importance weighting."
    )] = None,
    compare: Annotated[
        Path | None, Option(help="Another run: test the difference by paired bootstrap."), Access.RUN
    ] = None,
    overwrite: cli.OverwriteOption = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object on stdout.")] = False,
    columns: cli.Columns = None, others: cli.WithOption = None, vectors: cli.VectorsOption = None,
    encoding: cli.EncodingOption = None, device: cli.DeviceOption = "auto", threads: cli.OneThreadOption = None,
    precision: cli.PrecisionOption = "float32", **search: Any,
) -> None:  # fmt: skip
    """Score a model on a text or on labeled data."""
    adaptation = cli.pop_adaptation(search)
    tagger, path = cli.split_tagger(paths)
    added = cli.pop_options("evaluate", search)
    reports = [method for method in pipeline_methods("evaluate").values() if method.reads_data]
    methods = {next(iter(m.options)): m for m in pipeline_methods("evaluate").values() if m not in reports}
    inputs = {"minimal_pairs": minimal_pairs, "similarity": similarity, **{name: added.get(name) for name in methods}}
    if (path != "") + sum(value is not None for value in inputs.values()) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in inputs)
        raise EnsueError(f"evaluate takes a PATH, or a file with one of {flags}")
    values = {"format": format or None, "draws": draws}
    options: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    pipeline = cli.load_for(
        "evaluate", run, device, threads, precision, vectors=vectors, others=others, search=search,
        adaptation=adaptation, compare=compare, minimal_pairs=minimal_pairs, similarity=similarity,
        overwrite=overwrite or None, columns=columns, **added, **options,
    )  # fmt: skip
    pipeline = cli.with_tagger("evaluate", pipeline, tagger, device, threads, precision)
    from ensue.console.tables import show_pairs, show_scores

    if minimal_pairs is not None:
        result = pipeline.minimal_pairs(minimal_pairs, encoding=pipeline.reading(minimal_pairs, encoding)["encoding"])
        print(json.dumps(result.as_json())) if as_json else show_pairs(result)
        return
    if not path:
        if similarity is not None:
            scores = pipeline.text_similarity(similarity, encoding=pipeline.reading(similarity, encoding)["encoding"])
        else:
            from ensue.metrics.scores import Scores

            (method,) = (method for name, method in methods.items() if name in added)
            scores = method.with_values(pipeline, added)
            if not isinstance(scores, Scores):
                raise EnsueError(f"{method.function}: expected scores, found {type(scores).__name__}")
        print(json.dumps(scores.as_json())) if as_json else show_scores(scores)
        return
    if compare is not None:
        options["compare"] = cli.load_for(
            "evaluate", compare, device, threads, precision, search=search, adaptation=adaptation, compare=compare
        )
    from ensue.tasks.contract.chunks import report_progress

    options |= pipeline.reading(path, encoding, format)
    by_report = [(report, {name: added[name] for name in report.options if name in added}) for report in reports]
    requests = [(report.load(), arguments) for report, arguments in by_report if arguments]
    with report_progress("evaluate", path, sys.stderr.isatty()):
        results = [report(pipeline, path, overwrite=overwrite, **values, **options) for report, values in requests]
        scores = results[0].scores if results else pipeline.evaluate(path, **options)
    for line in filter(None, (pipeline.protocol(scores), pipeline.lacking())):
        cli.notify(line)
    if as_json:
        print(json.dumps(dict(item for result in (scores, *results) for item in result.as_json().items())))
    else:
        show_scores(scores, [table for report in results for table in report.tables()])
    for file in (value for _, arguments in requests for value in arguments.values() if isinstance(value, Path)):
        cli.notify(f"wrote {file}")


@cli.with_settings(BeamSearch, after="splitter", of_run=True)
def predict(
    run: cli.RunArgument,
    paths: Annotated[list[str] | None, Access.TEXTS, Argument(
        help="Texts: files, folders, globs, pipe; default: stdin. A cutter can take a tagger's run before the texts."
    )] = None,
    format: cli.FormatOption = None,
    as_json: Annotated[bool, Option("--json", help="A JSON line for each text, with probabilities.")] = False,
    splitter: Annotated[str | None, Option(
        help="The word tokenizer: treebank, simple, characters, whitespace; default: as in training."
    )] = None,
    at_least: Annotated[
        float | None, Option(min=0, max=1, help="Leave out labels, or spans, whose probability is lower; default: 0.")
    ] = None,
    to: Annotated[
        str | None, Option(help="Write brat, label-studio, doccano, prodigy, docbin, conll, conllu, csv or jsonl.")
    ] = None,
    out: Annotated[Path | None, Access.OUT_FOLDER, Option(
        help="The file, or for brat the folder; its suffix may stand for --to: .csv, .jsonl, .conll, .conllu."
    )] = None,
    offsets: Annotated[
        str | None, Option(help="With --to: the unit of offsets: characters, utf-16, bytes; default: by the format.")
    ] = None,
    overwrite: cli.OverwriteOption = False, columns: cli.Columns = None, others: cli.WithOption = None,
    vectors: cli.VectorsOption = None, shard: cli.ShardOption = None, encoding: cli.EncodingOption = None,
    output_encoding: Annotated[str | None, Option(help="The output's encoding: utf-8, or utf-8-sig for Excel.")] = None,
    device: cli.DeviceOption = "auto", threads: cli.OneThreadOption = None, precision: cli.PrecisionOption = "float32",
    **search: Any,
) -> None:  # fmt: skip
    """Label, translate, summarize or fill in texts, in order."""
    from ensue.console.output import encode_stdout
    from ensue.tasks.contract.chunks import Shard, report_progress

    writers = entries("writer")
    to = to or (out.suffix.lower()[1:] if out and out.suffix.lower()[1:] in writers else None)
    if (to is None and (out or offsets)) or (to and (as_json or shard)):
        raise EnsueError(
            "--out and --offsets need --to FORMAT, or a suffix of --out that is a format"
            if not to
            else "--to cannot be combined with --json or --shard"
        )
    if to is not None and to not in writers:
        raise EnsueError(f'unknown format "{to}"{nearest(to, writers) or "; expected " + ", ".join(writers)}')
    tagger, path = cli.split_tagger(paths)
    options = cli.pop_options("predict", search)
    pipeline = cli.load_for(
        "predict", run, device, threads, precision, vectors=vectors, others=others,
        search=search | {"at_least": at_least}, format=format, splitter=splitter, shard=shard, columns=columns,
        **options,
    )  # fmt: skip
    pipeline = with_options(pipeline, "predict", options)
    pipeline = pipeline.with_splitter(splitter) if splitter else pipeline
    pipeline = cli.with_tagger("predict", pipeline, tagger, device, threads, precision)
    texts = path or "-"
    reading: dict[str, Any] = {"format": None} | pipeline.reading(texts, encoding, format)
    is_shown = sys.stderr.isatty() and not sys.stdout.isatty() and texts != "-"
    with encode_stdout(output_encoding), report_progress("predict", texts, is_shown):
        if to is not None:
            write: Any = find_entry("writer", to, Callable)  # type: ignore[arg-type]  # an abstract class
            encoded = {"output_encoding": output_encoding} if output_encoding else {}
            lines = write(pipeline, texts, out, to=to, offsets=offsets, overwrite=overwrite, **encoded, **reading)
        else:
            display: dict[str, Any] = {"as_json": as_json, "color": sys.stdout.isatty()}
            lines = pipeline.prediction_lines(texts, shard=Shard.parse(shard, texts), **display, **reading)
        drop_mark = bool(output_encoding)  # the encoding writes its own byte order mark, or none
        for line in lines:
            print(line.removeprefix(BOM) if drop_mark else line, end="", flush=True)
            drop_mark = drop_mark and not line
    if lacking := pipeline.lacking():
        cli.notify(lacking)
    if out:
        cli.notify(f"wrote {out}")


@cli.with_settings(BeamSearch, after="off", without=("n_best",), of_run=True)
def inspect(
    run: cli.RunArgument,
    texts: Annotated[list[str], Access.FILE, Argument(
        help="A text or its file, or two for a model of pairs, or a file of frames; - reads stdin."
    )],
    out: Annotated[Path, Option(help="The page to write."), Access.OUT_FILE] = Path("inspection.html"),
    overwrite: cli.OverwriteOption = False,
    target: Annotated[str | None, Option(help="A target text to show in place of the model's output.")] = None,
    beside: Annotated[Path | None, Option(help="Another run of the same task, shown side by side."), Access.RUN] = None,
    at: Annotated[int | None, Option(help="Explain the token at this position, from 1; 0: the next token.")] = None,
    token: Annotated[str | None, Option(help="Explain why this token was, or was not, expected there.")] = None,
    off: Annotated[
        str | None, Option(help='Units to switch off, such as "layer 1, cell: 3, 7-9" or "... = mean".')
    ] = None,
    vectors: cli.VectorsOption = None, encoding: cli.EncodingOption = None, device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None, **search: Any,
) -> None:  # fmt: skip
    """Write a page with activations, attention and probabilities."""
    explained: dict[str, Any] = {"at": at, "token": token, "off": off}
    options: dict[str, Any] = {"vectors": vectors, "search": search, "target": target, **explained}
    pipelines = [cli.load_for("inspect", run, device, threads, **options)]
    from ensue.console.inspection import check_same_task, write_inspection

    if beside is not None:
        check_same_task(run, beside)
        pipelines.append(cli.load_for("inspect", beside, device, threads, **options))
    explained = {name: value for name, value in explained.items() if value is not None}
    more: dict[str, Any] = {"target": target, "overwrite": overwrite, "options": explained, "encoding": encoding}
    cli.notify(f"wrote {write_inspection(pipelines, texts, out, **more)}")


@cli.with_settings(Adaptation, after="beside")
def score(
    run: cli.RunArgument,
    paths: Annotated[list[str] | None, Argument(help="Text files or a pipe; default: stdin."), Access.TEXTS] = None,
    format: cli.FormatOption = None,
    as_json: Annotated[bool, Option("--json", help="A JSON line for each token or pair.")] = False,
    as_csv: Annotated[bool, Option("--csv", help="A table with a header: position, token or pair, nats.")] = False,
    beside: Annotated[
        list[Path] | None, Option(help="With --csv: another run, as a further column; may be repeated."), Access.RUN
    ] = None,
    columns: cli.Columns = None, others: cli.WithOption = None, encoding: cli.EncodingOption = None,
    device: cli.DeviceOption = "auto", threads: cli.OneThreadOption = None, precision: cli.PrecisionOption = "float32",
    **settings: Any,
) -> None:  # fmt: skip
    """Show the surprisal of tokens, or of targets, in nats."""
    from ensue.console.tables import csv_lines
    from ensue.data.sources import is_stream, stream_name

    options: dict[str, Any] = {"columns": columns, **({"format": format} if format else {})}
    adaptation = cli.pop_adaptation(settings)
    if as_csv and as_json:
        raise EnsueError("--csv and --json exclude each other; expected one")
    if beside and not as_csv:
        raise EnsueError("--beside RUN needs --csv, in which each run is a column")
    runs = [run, *(beside or [])]
    if len({str(path) for path in runs}) < len(runs):
        raise EnsueError(f"{run}: occurs twice; expected different runs")
    texts = as_location(paths or []) or "-"
    if beside and is_stream(texts):
        raise EnsueError(f"several runs need a file, which is read once for each run; found {stream_name(texts)}")
    pipelines = [
        cli.load_for("score", path, device, threads, precision, others=others, adaptation=adaptation, **options)
        for path in runs
    ]
    scored = [
        pipeline.score_lines(texts, as_json=as_json or as_csv, **pipeline.reading(texts, encoding, format))
        for pipeline in pipelines
    ]
    for line in csv_lines(dict(zip(map(str, runs), scored, strict=True))) if as_csv else scored[0]:
        print(line, flush=True)
