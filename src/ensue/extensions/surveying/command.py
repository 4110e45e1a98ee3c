"""The command `data`."""

from typing import Annotated

from typer import Argument, Option

from ensue.data.files import as_location
from ensue.outputs import Access


def data(
    paths: Annotated[
        list[str], Argument(help="Data: files, folders or globs; or two files: train.en,train.de."), Access.DATA
    ],
    format: Annotated[str | None, Option(help="The format; default: by name and first lines.")] = None,
    words: Annotated[str, Option("--words", "--text", help="The column or key of the words, or of the text.")] = "",
    labels: Annotated[str, Option(help="The column or key of the labels.")] = "",
    sources: Annotated[str, Option(help="For pairs: the columns, keys or language of the source.")] = "",
    targets: Annotated[str, Option(help="For pairs: the columns, keys or language of the target.")] = "",
    against: Annotated[
        list[str] | None,
        Option(help="For pairs: a test set, to count its pairs that are also in the data; may be repeated."),
        Access.DATA,
    ] = None,
    encoding: Annotated[str, Option(help="The encoding of the data.")] = "utf-8",
) -> None:
    """Show the format and errors of data, and the training command."""
    from ensue.extensions.surveying.summary import show_data

    columns = {"words": words, "labels": labels, "sources": sources, "targets": targets}
    show_data(as_location(paths), format=format, against=as_location(against or []), encoding=encoding, **columns)
