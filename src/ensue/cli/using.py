"""The commands that use a trained model: evaluate, predict, inspect, score."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.data.files import one_location
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError
from ensue.extension import pipeline_methods, with_options
from ensue.models.adaptation import Adaptation
from ensue.outputs import Access


@cli.with_settings(Adaptation, after="as_json")
@cli.with_settings(BeamSearch, after="as_json", without=("n_best",), of_run=True)
def evaluate(
    run: cli.RunArgument,
    paths: Annotated[
        list[str] | None,
        Argument(
            help="A text or labeled data: files, folders, globs. Behind a cutter, a tagger's run and then a treebank."
        ),
        Access.DATA,
    ] = None,
    minimal_pairs: Annotated[
        Path | None, Option(help="Score pairs of sentences (BLiMP, colorless_green)."), Access.DATA
    ] = None,
    similarity: Annotated[
        Path | None, Option(help="Score pairs of texts whose similarity was judged (STS-B, SICK)."), Access.DATA
    ] = None,
    format: Annotated[str | None, Option(help="The format of labeled data; default: by name and first lines.")] = None,
    draws: Annotated[
        int | None,
        Option(min=1, max=100_000, help="Of latent variables: draws for each example; several estimate -log p."),
    ] = None,
    compare: Annotated[
        Path | None, Option(help="Another run: test the difference by paired bootstrap."), Access.RUN
    ] = None,
    errors: Annotated[
        Path | None,
        Option(metavar="FILE", help="Of a tagger: a table of the words whose label is wrong, to be written."),
        Access.OUT_FILE,
    ] = None,
    overwrite: cli.OverwriteOption = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object on stdout.")] = False,
    others: cli.WithOption = None,
    vectors: cli.VectorsOption = None,
    encoding: cli.EncodingOption = "utf-8",
    device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
    precision: cli.PrecisionOption = "float32",
    **search: Any,
) -> None:
    """Score a model on a text or on labeled data."""
    adaptation = cli.taken_adaptation(search)
    behind, path = cli.behind_and_data(paths)
    added = cli.taken_options("evaluate", search)
    methods = {next(iter(method.options)): method for method in pipeline_methods("evaluate").values()}
    questions = {
        "minimal_pairs": minimal_pairs,
        "similarity": similarity,
        **{name: added.get(name) for name in methods},
    }
    if (path != "") + sum(given is not None for given in questions.values()) != 1:
        others_are = ", ".join(f"--{name.replace('_', '-')}" for name in questions)
        raise EnsueError(f"evaluate takes a PATH, or a file with one of {others_are}")
    every = {"format": format or None, "draws": draws, "errors": errors, "overwrite": overwrite or None}
    options: dict[str, Any] = {name: value for name, value in every.items() if value is not None}
    pipeline = cli.load_for(
        "evaluate", run, device, threads, precision, vectors=vectors, others=others, search=search,
        adaptation=adaptation, compare=compare, minimal_pairs=minimal_pairs, similarity=similarity, **added, **options,
    )  # fmt: skip
    pipeline = cli.with_behind("evaluate", pipeline, behind, device, threads, precision)
    from ensue.console.tables import show_confusions, show_pairs, show_scores

    if minimal_pairs is not None:
        result = pipeline.minimal_pairs(minimal_pairs, encoding=encoding)
        print(json.dumps(result.as_json())) if as_json else show_pairs(result)
        return
    if not path:
        if similarity is not None:
            scores = pipeline.text_similarity(similarity, encoding=encoding)
        else:
            from ensue.metrics.scores import Scores

            (method,) = (method for name, method in methods.items() if name in added)
            scores = method.with_values(pipeline, added)
            if not isinstance(scores, Scores):
                raise EnsueError(f"{method.function}: expected scores, found {type(scores).__name__}")
        print(json.dumps(scores.as_json())) if as_json else show_scores(scores)
        return
    if compare is not None:
        given: dict[str, Any] = {"search": search, "adaptation": adaptation, "compare": compare}
        options["compare"] = cli.load_for("evaluate", compare, device, threads, precision, **given)
    scores = pipeline.evaluate(path, encoding=encoding, **options)
    for line in filter(None, (pipeline.protocol(scores), pipeline.lacking())):
        cli.say(line)
    print(json.dumps(scores.as_json())) if as_json else show_scores(scores)
    if errors is not None:
        if not as_json:
            show_confusions(scores.confusion)
        cli.say(f"wrote {errors}")


@cli.with_settings(BeamSearch, after="splitter", of_run=True)
def predict(
    run: cli.RunArgument,
    paths: Annotated[
        list[str] | None,
        Argument(
            help="Texts: files, folders, globs, pipe; default: stdin. Behind a cutter, a tagger's run and then texts."
        ),
        Access.TEXTS,
    ] = None,
    format: Annotated[
        str | None,
        Option(help="The format: text, columns, conllu, json, tsv, csv, ...; default: by name and first lines."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="A JSON line for each text, with probabilities.")] = False,
    splitter: Annotated[
        str | None,
        Option(help="How text is cut into words: treebank, simple, characters, whitespace; default: as in training."),
    ] = None,
    at_least: Annotated[
        float | None, Option(min=0, max=1, help="Give no label whose probability is below this; default: 0.")
    ] = None,
    others: cli.WithOption = None,
    vectors: cli.VectorsOption = None,
    shard: cli.ShardOption = None,
    encoding: cli.EncodingOption = "utf-8",
    device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
    precision: cli.PrecisionOption = "float32",
    **search: Any,
) -> None:
    """Label, translate, summarize or fill in texts, in order."""
    from ensue.tasks.contract.chunks import Shard

    behind, path = cli.behind_and_data(paths)
    options = cli.taken_options("predict", search)
    pipeline = cli.load_for(
        "predict", run, device, threads, precision, vectors=vectors, others=others,
        search=search | {"at_least": at_least}, format=format, splitter=splitter, shard=shard, **options,
    )  # fmt: skip
    pipeline = with_options(pipeline, "predict", options)
    pipeline = pipeline.with_splitter(splitter) if splitter else pipeline
    pipeline = cli.with_behind("predict", pipeline, behind, device, threads, precision)
    texts = path or "-"
    part = Shard.parse(shard, texts)
    lines = pipeline.prediction_lines(
        texts, format=format, encoding=encoding, as_json=as_json, color=sys.stdout.isatty(), shard=part
    )
    for line in lines:
        print(line, end="", flush=True)
    if lacking := pipeline.lacking():
        cli.say(lacking)


@cli.with_settings(BeamSearch, after="off", without=("n_best",), of_run=True)
def inspect(
    run: cli.RunArgument,
    texts: Annotated[
        list[str],
        Argument(help="A text or its file, or two for a model of pairs, or a file of frames; - reads stdin."),
        Access.FILE,
    ],
    out: Annotated[Path, Option(help="The page to write."), Access.OUT_FILE] = Path("inspection.html"),
    overwrite: cli.OverwriteOption = False,
    target: Annotated[str | None, Option(help="A target to look at, in place of the model's own output.")] = None,
    beside: Annotated[Path | None, Option(help="Another run of the same task, shown at the side."), Access.RUN] = None,
    at: Annotated[int | None, Option(help="Why this token was expected, from 1 on; 0: the one behind.")] = None,
    token: Annotated[str | None, Option(help="Why this token was, or was not, in its place.")] = None,
    off: Annotated[str | None, Option(help='Units to switch off, as "layer 1, cell: 3, 7-9" or "... = mean".')] = None,
    vectors: cli.VectorsOption = None,
    device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
    **search: Any,
) -> None:
    """Write a page that shows the inside of a model with a text."""
    asked: dict[str, Any] = {"at": at, "token": token, "off": off}
    options: dict[str, Any] = {"vectors": vectors, "search": search, "target": target, **asked}
    pipelines = [cli.load_for("inspect", run, device, threads, **options)]
    from ensue.console.inspection import check_same_task, write_inspection

    if beside is not None:
        check_same_task(run, beside)
        pipelines.append(cli.load_for("inspect", beside, device, threads, **options))
    given = {name: value for name, value in asked.items() if value is not None}
    cli.say(f"wrote {write_inspection(pipelines, texts, out, target=target, overwrite=overwrite, options=given)}")


@cli.with_settings(Adaptation, after="beside")
def score(
    run: cli.RunArgument,
    paths: Annotated[list[str] | None, Argument(help="Text files or a pipe; default: stdin."), Access.TEXTS] = None,
    format: Annotated[str | None, Option(help="The format of pairs; default: by name and first lines.")] = None,
    as_json: Annotated[bool, Option("--json", help="A JSON line for each token or pair.")] = False,
    as_csv: Annotated[bool, Option("--csv", help="A table with a header: position, token or pair, nats.")] = False,
    beside: Annotated[
        list[Path] | None, Option(help="Of --csv: another run, a column for each; may be repeated."), Access.RUN
    ] = None,
    others: cli.WithOption = None,
    encoding: cli.EncodingOption = "utf-8",
    device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
    precision: cli.PrecisionOption = "float32",
    **settings: Any,
) -> None:
    """Show the surprisal of tokens, or of targets, in nats."""
    from ensue.console.tables import csv_lines
    from ensue.data.sources import is_stream, stream_name

    options: dict[str, Any] = {"format": format} if format else {}
    adaptation = cli.taken_adaptation(settings)
    if as_csv and as_json:
        raise EnsueError("--csv and --json are two forms; expected one")
    if beside and not as_csv:
        raise EnsueError("--beside RUN goes with --csv, in which each run is a column")
    runs = [run, *(beside or [])]
    if len({str(each) for each in runs}) < len(runs):
        raise EnsueError(f"{run}: is named twice; expected different runs")
    texts = one_location(paths or []) or "-"
    if beside and is_stream(texts):
        raise EnsueError(f"several runs need a file, which each of them reads; found {stream_name(texts)}")
    pipelines = [
        cli.load_for("score", each, device, threads, precision, others=others, adaptation=adaptation, **options)
        for each in runs
    ]
    scored = [
        pipeline.score_lines(texts, encoding=encoding, as_json=as_json or as_csv, **options) for pipeline in pipelines
    ]
    for line in csv_lines(dict(zip(map(str, runs), scored, strict=True))) if as_csv else scored[0]:
        print(line, flush=True)
