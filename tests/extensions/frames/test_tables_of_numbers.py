"""Tables of numbers are detected as series by their columns, and are read in order."""

import re
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from math import sin
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_fixtures import Ensue
from ensue.data.detection.kind import detect
from ensue.errors import DataError
from ensue.extensions.frames.data.series import Series, SeriesOptions
from ensue.extensions.frames.data.source import FrameSource
from ensue.extensions.frames.report import number_format
from ensue.extensions.frames.signs import detect_date_format, parse_seconds
from ensue.extensions.surveying.summary import propose
from ensue.recipe import recipe_names
from source_imports import SOURCE
from written_files import write_file


@pytest.mark.parametrize(
    ("deviation", "shown"),
    [
        (2.5, "1,234.50 0.00"),
        (0.0984, "1,234.5000 0.0000"),
        (250.0, "1,234 0"),
        (0.0, "1,234 0"),
        (1e-9, "1.234e+03 0.000e+00"),
    ],
)
def test_numbers_of_a_feature_have_the_same_decimals(deviation: float, shown: str) -> None:
    form = number_format(deviation)
    assert f"{format(1234.5 if deviation else 1234.4, form)} {format(0.0, form)}" == shown


def test_tables_on_the_terminal_have_fixed_decimals() -> None:
    rows = [line for path in SOURCE.rglob("*.py") for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [line for line in rows if "add_row(" in line]
    assert len(rows) > 15
    assert [line for line in rows if re.search(r":[^{}:]*g\}", line)] == []


START = datetime(2024, 3, 1, 10)


def table(header: str, rows: Sequence[Sequence[Any]], delimiter: str = ",") -> str:
    lines = [delimiter.join(map(str, row)) for row in rows]
    return "\n".join([header, *lines] if header else lines) + "\n"


def times(form: str, *, count: int = 40, step: float = 1) -> list[str]:
    moments = [START + timedelta(seconds=step * number) for number in range(count)]
    return [moment.strftime(form) if form else str(moment.timestamp()) for moment in moments]


X = [round(sin(number), 3) for number in range(40)]
STATES = ["run"] * 13 + ["walk"] * 27
ISO = times("%Y-%m-%d %H:%M:%S.%f")
DAYS = times("%Y-%m-%d", step=86400)
COMMAS = [str(value).replace(".", ",") for value in X]
ROWS = [[2 - number % 2, *(round(sin(number + t), 2) for t in range(20))] for number in range(12)]
FEW = "classify-minirocket" if "classify-minirocket" in recipe_names() else "classify-frames"
"""The recipe for few labeled series; its extension may be hidden."""
TABLES: dict[str, tuple[str, str, str]] = {
    "labeled": (table("timestamp,x,activity", [*zip(ISO, X, STATES, strict=True)]), "tag-frames",
        "--set data.time=timestamp --set data.labels=activity"),
    "labels of series": (table("id,time,x,y,label", [[n // 10, n % 10, X[n], -X[n], n // 10 % 2] for n in range(40)]),
        FEW, "--set data.series=id"),
    "time-major": (table("Date,Symbol,Close", [[day, name, 1.5] for day in DAYS for name in "ab"]), "predict-frames",
        "--set data.time=Date --set data.series=Symbol"),
    "groups in blocks": (table("Ofen;Zeit;Temp;Zustand",
        [["AB"[n // 20], n % 20, X[n], STATES[n]] for n in range(40)], ";"), "tag-frames",
        "--set data.time=Zeit --set data.labels=Zustand --set data.series=Ofen"),
    "numbered groups": (table("line,date,x", [[n % 2, DAYS[n // 2], X[n]] for n in range(40)]), "predict-frames",
        "--set data.time=date --set data.series=line"),
    "repeated times": (table("t,x,state", [[n // 2, X[n], STATES[n]] for n in range(40)]), "tag-frames",
        "--set data.labels=state"),
    "decimal commas": (table("zeit;wert", [*zip(times("%d.%m.%Y %H:%M:%S"), COMMAS, strict=True)], ";"),
        "predict-frames", "--set data.time=zeit"),
    "one column": (table("value", [[x] for x in X]), "predict-frames", ""),
    "descending": (table("Date,Close", [*zip(times("%m/%d/%Y", step=86400)[::-1], X, strict=True)]), "predict-frames",
        "--set data.time=Date"),
    "epoch": (table("t,x,state", [*zip(times(""), X, STATES, strict=True)]), "tag-frames",
        "--set data.time=t --set data.labels=state"),
    "index of pandas": (table(",ds,x", [*zip(range(40), times("%Y-%m-%dT%H:%M", step=60), X, strict=True)]),
        "predict-frames", "--set data.time=ds"),
    "without header": (table("", ROWS, "\t"), FEW, "--set data.rows=series --set 'data.labels=\"1\"'"),
    "label last": (table("", [[*row[1:], row[0]] for row in ROWS]), FEW,
        "--set data.rows=series --set 'data.labels=\"21\"'"),
    "numbered columns": (table(",".join(["y", *(f"X{t}" for t in range(20))]), ROWS), FEW,
        "--set data.rows=series --set data.labels=y"),
    "other columns": (table("nr,time,place,x,class", [[n, n, "a b"[n % 2], X[n], STATES[n]] for n in range(40)]),
        "tag-frames", "--set data.labels=class --set 'data.features=[\"x\"]'"),
    "gap": (table("timestamp,value", [[120 + 300 * n + 900 * (n > 19), x] for n, x in enumerate(X)]), "predict-frames",
        "--set data.time=timestamp --set data.gaps=ignore"),
}  # fmt: skip
TABLES["months"] = (
    table("Month,Sold", [[f"{1950 + n // 12}-{n % 12 + 1:02}", x] for n, x in enumerate(X)]),
    *("predict-frames", "--set data.time=Month --set data.gaps=ignore"),
)
TABLES["milliseconds"] = (
    table("timestamp_ms,x", [[1_700_000_000_000 + 20 * n, x or ""] for n, x in enumerate(X)]),
    *("predict-frames", "--set data.time=timestamp_ms --set data.missing=mean"),
)
TABLES["date and clock"] = (
    table(
        "Date;Time;CO;;",
        [*([f"{10 + n // 24}/03/2004", f"{n % 24}.00.00", x, "", ""] for n, x in enumerate(COMMAS)), [""] * 5],
        ";",
    ),
    *("predict-frames", "--set 'data.time=\"Date,Time\"'"),
)
TABLES["day and clock time"] = (
    table("Datum,Uhrzeit,x,zustand", [*zip(["01.03.2024"] * 40, times("%H:%M:%S"), X, STATES, strict=True)]),
    *("tag-frames", "--set 'data.time=\"Datum,Uhrzeit\"' --set data.labels=zustand"),
)
TABLES["temperature"] = table("t,x", [[x, -x] for x in X]), "predict-frames", ""
TABLES["numbered rows"] = table("id,x", [*enumerate(X)]), "predict-frames", "--set 'data.features=[\"x\"]'"
UNNAMED = {
    "numbers": table("", [[x, -x] for x in X]),
    "labels": table("", [[x, -x, state] for x, state in zip(X, STATES, strict=True)]),
}
WORDS = ["der", "Zug", "kommt", "heute", "wieder", "zu", "spät", "am", "Bahnhof", "an"]
TEXTS = {
    "id, date, label": table("id,date,text,label",
        [[n, f"2024-01-{n % 28 + 1:02}", f"{WORDS[n % 9]} {WORDS[n * 7 % 9]} Nr {n}", n % 2] for n in range(40)]),
    "short texts": table("nr;datum;betreff;klasse", [[n, "01.02.2024", f"Frage {n}", n % 2] for n in range(40)], ";"),
    "words": table("sentence,position,word,tag", [[n // 5, n % 5, WORDS[n % 9], "NV"[n % 2]] for n in range(40)]),
    "names": table("name,gender", [[f"{WORDS[n % 9]}{n}", n % 2] for n in range(40)]),
    "labels in columns": table("comment,toxic,insult,threat", [[f"{WORDS[n % 9]} {n}", 1, 0, 1] for n in range(40)]),
    "numerals": table("", [[n, "x" * (n + 1)] for n in range(40)], "\t"),
    "scores": table("stars,votes,review", [[n % 5, n, f"{WORDS[n % 9]} {WORDS[n % 8]} gut {n}"] for n in range(40)]),
}  # fmt: skip


TINY = ["train.steps=2", "encoder.d_model=4", "train.batch_size=2"]
TINY_OF = {"classify-minirocket": ["head.num_features=84"]}


@pytest.mark.filterwarnings("ignore:.*rows are sorted by time")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", TABLES)
def test_tables_of_numbers_are_frames_and_train(ensue: Ensue, tmp_path: Path, name: str) -> None:
    content, recipe, settings = TABLES[name]
    path = write_file(tmp_path / ("a.tsv" if "\t" in content else "a.csv"), content, encoding="utf-8")
    assert detect(path).kind == "frames"
    assert propose(str(path))[:2] == (recipe, shlex.split(settings)[1::2])
    tiny = [argument for setting in TINY_OF.get(recipe, TINY) for argument in ("--set", setting)]
    ensue("train", str(path), *tiny, "--out", str(tmp_path / "run")).succeeded()


@pytest.mark.parametrize("name", UNNAMED)
def test_rows_of_numbers_without_names_are_frames(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_text(UNNAMED[name], encoding="utf-8")
    assert detect(tmp_path / "a.csv").kind == "frames"
    with pytest.raises(DataError, match=r"a.csv:1: the first row has no names of columns; write .* time,value,label"):
        propose(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("name", TEXTS)
def test_tables_of_texts_are_not_detected_as_frames(tmp_path: Path, name: str) -> None:
    path = write_file(tmp_path / ("a.tsv" if "\t" in TEXTS[name] else "a.csv"), TEXTS[name], encoding="utf-8")
    assert detect(path).kind != "frames"


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        (["01.02.2024 10:00", "01.02.2024 10:01"], 1706781600),
        (["01/31/2024 10:00 AM", "01/31/2024 10:01 PM"], 1706695200), (["01/02/2024", "02/02/2024"], 1706745600),
        (["01/02/2024", "01/03/2024"], 1704153600), (["2024-02-01T10:00:00.5+01:00"], 1706778000.5),
        (["10/03/2004 18.00.00"], 1078941600), (["20240201", "20240202"], 1706745600),
        (["1706781600,5"], 1706781600.5),
    ],
)  # fmt: skip
def test_dates_are_parsed_by_their_detected_format(cells: list[str], seconds: float) -> None:
    assert parse_seconds(cells[0], detect_date_format(cells)) == seconds


def read(folder: Path, name: str, content: str, **reading: Any) -> list[Series]:
    (folder / name).write_text(content, encoding="utf-8")
    return list(FrameSource(folder / name, SeriesOptions(**reading)))


@pytest.mark.filterwarnings("ignore:.*rows are sorted by time")
def test_rows_of_a_series_are_joined_and_sorted(tmp_path: Path) -> None:
    content = "series,time,x,label\na,2,5,u\nb,0,7,w\na,1,6,v\n\nb,1,8,w\n"
    first, second = read(tmp_path, "a.csv", content)
    assert (first.name, first.frames.ravel().tolist(), first.labels) == ("a", [6, 5], ("v", "u"))
    assert (second.name, second.frames.ravel().tolist(), second.rate) == ("b", [7, 8], 1)


@pytest.mark.parametrize(("gaps", "lengths"), [("split", [3, 2]), ("ignore", [5])])
def test_gaps_are_refused_split_or_ignored(tmp_path: Path, gaps: str, lengths: list[int]) -> None:
    content = "time,x\n0,1\n10,2\n20,3\n50,4\n60,5\n"
    assert [len(series.frames) for series in read(tmp_path, "a.csv", content, gaps=gaps)] == lengths
    with pytest.raises(DataError, match=r'a.csv:5: .*"50" is 30 s after "20" in line 4; .*data.gaps'):
        read(tmp_path, "a.csv", content)


def test_series_are_read_from_a_ts_file(ensue: Ensue, tmp_path: Path) -> None:
    head = "#\n@problemName A\n@univariate false\n@classLabel true up down\n@data\n"
    rows = [f"{n},?,3,NaN:4,5,6,NaN:{'up' if n % 2 else 'down'}\n" for n in range(6)]
    first, *_ = read(tmp_path, "a.ts", head + "".join(rows), missing="mean")
    assert (first.labels, len(first.frames), first.name) == (("down",), 3, "a.ts[0]")
    stamped = "(2024-03-01 10:00:00,1.5),(2024-03-01 10:00:30,2):(2024-03-01 10:00:00,3),(2024-03-01 10:00:30,?):up\n"
    series, *_ = read(
        tmp_path, "b.ts", f"@timeStamps true\n{head}{stamped}(0,1),(30,1.5):(0,2),(30,3):down\n", missing="mean"
    )
    assert (series.labels, series.rate) == (("up",), 1 / 30)
    np.testing.assert_equal(series.frames, np.array([[1.5, 3], [2, np.nan]], np.float32))
    np.testing.assert_equal(first.frames, np.array([[0, 4], [np.nan, 5], [3, 6]], np.float32))
    assert propose(str(tmp_path / "a.ts"))[0] == FEW
    (tmp_path / "b.ts").write_text("export const a: number[] = [1, 2];\n")
    assert detect(tmp_path / "b.ts").kind != "frames"


def test_the_message_of_training_names_the_settings(refused: Callable[..., str], tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.csv", TABLES["labeled"][0], encoding="utf-8")
    message = refused("train", "tag-frames", "--train", path, "--out", tmp_path / "run")
    assert 'a.csv:2: column "timestamp": expected a number, found "2024-03-01' in message
    assert message.endswith("; --set data.time=timestamp and --set data.labels=activity reads such a table")
    path.write_text(TABLES["without header"][0].replace("\t", ","), encoding="utf-8")
    message = refused("train", "classify-frames", "--train", path, "--out", tmp_path / "run")
    assert message.endswith("--set data.rows=series and --set 'data.labels=\"1\"' reads such a table")


def test_a_page_is_read_in_the_encoding_of_training(ensue: Ensue, refused: Callable[..., str], tmp_path: Path) -> None:
    path, run, page = tmp_path / "a.csv", tmp_path / "run", ("--overwrite", "--out", tmp_path / "page.html")
    path.write_text(TABLES["one column"][0].replace("value", "Wärme"), encoding="cp1252")
    settings = [part for setting in [*TINY, "data.encoding=cp1252"] for part in ("--set", setting)]
    assert ensue("train", "predict-frames", "--train", path, *settings, "--out", run).status == 0
    assert ensue("inspect", run, path, *page).status == 0
    path.write_text(path.read_text(encoding="cp1252"), encoding="utf-16")
    assert ensue("inspect", run, path, "--encoding", "utf-16", *page).status == 0
    assert "a.csv" in refused("inspect", run, path, *page)


def test_a_table_without_labels_is_predicted(ensue: Ensue, refused: Callable[..., str], tmp_path: Path) -> None:
    path, run = tmp_path / "a.csv", tmp_path / "run"
    path.write_text(TABLES["labeled"][0], encoding="utf-8")
    settings = [*shlex.split(TABLES["labeled"][2]), *(part for setting in TINY for part in ("--set", setting))]
    assert ensue("train", "tag-frames", "--train", path, *settings, "--out", run).status == 0
    path.write_text(table("x", [[x] for x in X]), encoding="utf-8")
    result = ensue("predict", run, path)
    assert (result.status, len(result.out.split())) == (0, 41)
    assert "a.csv:2: no label; expected one for each frame" in refused("evaluate", run, path)


def test_a_row_of_units_is_reported(ensue: Ensue, tmp_path: Path) -> None:
    """A table of numbers with units below the names of its columns is not detected as texts."""
    rows = [("[hh:mm]", "[bar]", "[A]", ""), *zip(ISO, COMMAS, X, STATES, strict=True)]
    (tmp_path / "x.csv").write_text(table("Zeit;Druck;Strom;Zustand", rows, ";"), encoding="utf-8")
    output = ensue("data", tmp_path / "x.csv")
    assert "frames: table (with Zeit as the time, Zustand as the label)" in output.out
    assert output.err.endswith("remove the line of units below the names of columns\n")
    assert "x.csv:2: " in output.err
