"""`ensue data PATH`: reports, proposed recipes and commands, and errors."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from command_fixtures import Ensue
from ensue.errors import EnsueError
from ensue.recipe import BUDGETS, Recipe, read_recipe
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.labeling.recipe import LabelingRecipe

pytestmark = pytest.mark.usefixtures("in_tmp_path")

CONLL = "-DOCSTART- -X- O\n\nAnn NNP B-PER\nsaw VBD O\nNew NNP B-LOC\nYork NNP I-LOC\n\nIt PRP O\nrained VBD O\n\n"
TABLE = "label\ttext\npos\tgood , good film\nneg\tdull film\npos\tgood , good film\n"


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def next_recipe(out: str) -> Recipe:
    """Return the recipe of the command in the last line, with its settings."""
    command = shlex.split(out.splitlines()[-1].removeprefix("next: "))
    assert command[:2] == ["ensue", "train"]
    settings = [value for option, value in pairwise(command) if option == "--set"]
    return read_recipe(command[2], [*settings, f"data.train={command[command.index('--train') + 1]!r}"])


def test_the_report_of_labeled_sentences(ensue: Ensue) -> None:
    output = ensue("data", write("train.txt", CONLL))
    assert (output.status, output.err) == (0, "")
    assert output.out == (
        "data        train.txt\n"
        "taken for   columns: labeled sentences (by its first lines)\n"
        "read as     words: column 1, labels: column 3 (last)\n"
        "scheme      bio\n"
        "sentences   2\n"
        "words       6, 6 distinct\n"
        "characters  21, 15 distinct\n"
        "\n"
        "                     shortest  median  mean  95 %  longest\n"
        "words in a sentence         2       2   3.0     4        4\n"
        "\n"
        "label  words   share\n"
        "O          3  50.0 %\n"
        "B-LOC      1  16.7 %\n"
        "B-PER      1  16.7 %\n"
        "I-LOC      1  16.7 %\n"
        "\n"
        "spans of  spans   share  words on average  longest\n"
        "LOC           1  50.0 %              2.00        2\n"
        "PER           1  50.0 %              1.00        1\n"
        "\n"
        "other columns  distinct values  most frequent\n"
        "column 2                     3  NNP, VBD, PRP\n"
        "\n"
        "note: 3 labels occur once: B-LOC, B-PER, I-LOC; the first at train.txt:3\n"
        "\n"
        "recipe: tag-linear, since there are at most 1,000 sentences\n"
        "next: ensue train tag-linear --train train.txt --out tagger\n"
    )


SPANS = [{"text": "the Bank of Lima", "spans": [[4, 16, "ORG"], [12, 16, "LOC"]]}, {"text": "rain", "spans": []}]


@pytest.mark.parametrize("form", ["objects", "brat", "columns"])
def test_the_report_of_overlapping_spans_proposes_a_nested_tagger(form: str, ensue: Ensue) -> None:
    path = "spans.jsonl"
    if form == "objects":
        write(path, "".join(json.dumps(row) + "\n" for row in SPANS))
    elif form == "brat":
        write("a.txt", "the Bank of Lima\nrain\n")
        path = write("a.ann", "T1\tORG 4 16\tBank of Lima\nT2\tLOC 12 16\tLima\n")
    else:
        path = write("a.conll", "the O\nBank B-ORG\nof I-ORG\nLima B-LOC|I-ORG\n\nrain O\n\n")
    output = ensue("data", path)
    assert (output.status, output.err) == (0, "")
    table = "spans of  spans   share  words on average  longest\n"
    rows = "LOC           1  50.0 %              1.00        1\nORG           1  50.0 %              3.00        3\n"
    assert table + rows in output.out
    assert "\nscheme      bio\n" in output.out
    assert output.out.endswith(
        f"recipe: tag-nested, since spans overlap\nnext: ensue train tag-nested --train {path} --out tagger\n"
    )
    recipe = next_recipe(output.out)
    assert isinstance(recipe, LabelingRecipe)
    assert recipe.data.nested


def test_the_report_of_pairs(ensue: Ensue) -> None:
    write("test.tsv", "en\tde\nIt rains .\tEs regnet .\n")
    pairs = write("train.tsv", "en\tde\nIt rains .\tEs regnet .\nOK\tOK\nIt rains .\tEs schüttet .\n")
    output = ensue("data", pairs, "--against", "test.tsv")
    assert (output.status, output.err) == (0, "")
    assert output.out == (
        "data       train.tsv\n"
        "taken for  tsv with a header: pairs of source and target (by its suffix .tsv)\n"
        'read as    source: column 1 "en", target: column 2 "de"\n'
        "pairs      3\n"
        "source     7 words, 4 distinct; 22 characters\n"
        "target     7 words, 5 distinct; 26 characters\n"
        "ratio      1.10 characters of the target to one of the source, 1.00 to 1.30 in 90 % of pairs\n"
        "copies     1, the first at train.tsv:3\n"
        "repeated   1 source, 1 of them with other targets, the first at train.tsv:4\n"
        "overlap    1 pair in test.tsv; also in these data: "
        "sources 1 (the first at test.tsv:2), targets 1, pairs 1\n"
        "\n"
        "                        shortest  median  mean  95 %  longest\n"
        "words in a source              1       3   2.3     3        3\n"
        "words in a target              1       3   2.3     3        3\n"
        "characters in a source         2      10   7.3    10       10\n"
        "characters in a target         2      11   8.7    13       13\n"
        "\n"
        "recipe: translate-few, since there are at most 1,000 pairs\n"
        "next: ensue train translate-few --train train.tsv --out translator\n"
    )


def test_options_name_the_columns_of_pairs(ensue: Ensue) -> None:
    write("x.csv", "id,de,en,fr\n1,Es regnet .,It rains .,Il pleut .\n")
    output = ensue("data", "x.csv", "--sources", "en", "--targets", "fr")
    assert '\nread as    source: column 3 "en", target: column 4 "fr"\n' in output.out
    assert output.out.endswith(
        "next: ensue train translate-few --train x.csv --set 'data.sources=[\"en\"]' "
        "--set 'data.targets=[\"fr\"]' --out translator\n"
    )
    output = ensue("data", "x.csv", "--sources", "en", "--targets", "it")
    message = 'ensue: x.csv:1: no "it"; did you mean "id"? --targets NAME names the column of targets\n'
    assert (output.status, output.err) == (2, message)
    output = ensue("data", "x.csv", "--sources", "en")
    assert output.err.endswith("; use --targets NAME\n")


def test_the_report_of_labeled_texts(ensue: Ensue) -> None:
    output = ensue("data", write("train.tsv", TABLE))
    assert (output.status, output.err) == (0, "")
    assert output.out == (
        "data        train.tsv\n"
        "taken for   tsv with a header: labeled texts (by its suffix .tsv)\n"
        'read as     label: column 1 "label", text: column 2 "text"\n'
        "texts       3\n"
        "words       10, 4 distinct\n"
        "characters  41, 9 distinct\n"
        "repeated    1, with the same labels\n"
        "\n"
        "                 shortest  median  mean  95 %  longest\n"
        "words in a text         2       4   3.3     4        4\n"
        "\n"
        "label  texts   share\n"
        "pos        2  66.7 %\n"
        "neg        1  33.3 %\n"
        "\n"
        "note: 1 label occurs once: neg; the first at train.tsv:3\n"
        "\n"
        "recipe: classify-linear, since texts are few\n"
        "next: ensue train classify-linear --train train.tsv --out classifier\n"
    )


def test_the_report_of_plain_text(ensue: Ensue) -> None:
    output = ensue("data", write("book.txt", "It rained all day .\n\nSo we read .\n"))
    assert (output.status, output.err) == (0, "")
    assert output.out == (
        "data          book.txt\n"
        "taken for     plain text (no columns, no labels)\n"
        "lines         3\n"
        "words         9, 8 distinct\n"
        "characters    34, 16 distinct\n"
        "longest line  19 characters, at book.txt:1\n"
        "\n"
        "                      shortest  median  mean  95 %  longest\n"
        "characters in a line         0      12  10.3    19       19\n"
        "\n"
        "recipe: char-lstm, since it is running text\n"
        "next: ensue train char-lstm --train book.txt --set train.tokens=100000 --out model\n"
    )


def test_the_next_command_repeats_the_options_of_the_user(ensue: Ensue) -> None:
    spaced = write("my train.conll", CONLL.encode("utf-16"))
    recipe = next_recipe(ensue("data", spaced, "--words", "2", "--labels", "1", "--encoding", "utf-16").out)
    assert isinstance(recipe, LabelingRecipe)
    assert (recipe.data.words, recipe.data.labels, recipe.data.encoding) == ("2", "1", "utf-16")
    assert (recipe.head.solver, recipe.data.train) == ("lbfgs", spaced)

    conllu = "".join(f"{n}\tw\tl\tN\tX\tCase={'Nom' if n % 2 else 'Gen'}" + "\t_" * 4 + "\n" for n in range(1, 5))
    recipe = next_recipe(ensue("data", write("x.conllu", conllu), "--labels", "feats.Case").out)
    assert isinstance(recipe, LabelingRecipe)
    assert recipe.data.labels == "feats.Case"

    rows = "".join(f"{n % 2}\ta b c\td e f\tg h i\n" for n in range(8))
    output = ensue("data", write("x.txt", rows), "--words", "2,3", "--labels", "1", "--format", "tsv")
    recipe = next_recipe(output.out)
    assert isinstance(recipe, ClassificationRecipe)
    assert (recipe.data.texts, recipe.data.labels, recipe.data.joined) == (["2", "3"], "1", False)
    assert "note: the texts are a pair" in output.out
    recipe = next_recipe(ensue("data", "x.txt", "--words", "2,3,4", "--labels", "1").out)
    assert isinstance(recipe, ClassificationRecipe)
    assert recipe.data.joined

    recipe = next_recipe(ensue("data", write("y", "ham\ta\nspam\tb\nham\tc\n"), "--format", "tsv").out)
    assert isinstance(recipe, ClassificationRecipe)
    assert recipe.data.format == "tsv"
    assert next_recipe(ensue("data", write("z.txt", "a b\n")).out).task == "language-modeling"


def test_data_without_labels_are_for_prediction(ensue: Ensue) -> None:
    output = ensue("data", write("new.conll", "Ann\nleft\n\nIt\n")).succeeded()
    assert "sentences without labels" in output.out
    assert "words: column 1, labels: none" in output.out
    assert output.out.endswith("\n\nnext: ensue predict RUN new.conll\n")


@pytest.mark.parametrize(
    ("name", "content", "shown", "error"),
    [
        ("x.conll", b"", "", "x.conll: the text is empty"),
        ("x.conll", b"\n\n", "columns", "x.conll: no sentences"),
        ("x.conll", b"# only\n# comments\n", "columns", "x.conll: no sentences"),
        ("x.conll", b"a X\nb\xe9 Y\n", "", "x.conll:2: not UTF-8 (byte 0xe9 in column 2); for Windows' "),
        ("x.tsv", b"pos\tgood film\nneg\tfilm\xe9\n", "", "x.tsv:2: not UTF-8 (byte 0xe9 in column 9);"),
        ("x.conll", b"a X\n\nb Y Z\n\nc X\n", "sentences   1", "x.conll:3: expected 2 columns separated by blanks"),
        ("x.conll", b"a B-X\n\nb E-X\n", "sentences   2", "x.conll:1: mixed schemes"),
        ("x.tsv", b"pos\tgood film\nneg\tbad\npos\tfilm\tx\n", "texts       2", "x.tsv:3: 3 columns; expected 2"),
        ("x.tsv", b"a\tgood film\nb\tbad\na\tfi\0lm\n", "texts       2", "x.tsv:3: a NUL character in column 5"),
        (
            "x.csv",
            b'a,good film\nb,bad\na,"film\n',
            "texts       2",
            "x.csv:3: the quote that opens here is not closed",
        ),
        ("x.jsonl", b'{"tokens": ["a"], "tags": ["X"]}\n{\n', "sentences   1", "x.jsonl:2: not JSON"),
        ("x.conllu", b"1\ta\n", "conllu", "x.conllu:1: expected 10 columns"),
    ],
)
def test_invalid_data_are_reported_with_their_line(
    ensue: Ensue, name: str, content: bytes, shown: str, error: str
) -> None:
    output = ensue("data", write(name, content))
    assert output.status == 2
    assert output.err.startswith(f"ensue: {error}")
    assert output.err.count("\n") == 1
    assert shown in output.out
    assert bool(output.out) == bool(shown)
    assert "next:" not in output.out


def test_unknown_paths_columns_and_formats_are_refused(ensue: Ensue) -> None:
    write("train.conll", CONLL)
    assert 'train.con: no such file or folder; did you mean "train.conll"?' in ensue("data", "train.con").err
    assert 'no "4"; there are "1", "2", "3"' in ensue("data", "train.conll", "--labels", "4").err
    assert 'unknown format "column"; did you mean "columns"?' in ensue("data", "train.conll", "--format", "column").err


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("x.conll", "a O\nb O\n\nc O\n", 'all words have the label "O": there is nothing to learn'),
        ("x.tsv", "label\ttext\npos\tgood\npos\tfine\n", 'all texts have the label "pos": there is nothing to learn'),
        ("x.conll", "a\0 X\nb Y\n", "words contain NUL characters; is the file binary?"),
        ("x.txt", "a\nb\0\0\n", "2 NUL characters, the first at x.txt:2; is the file binary?"),
    ],
)
def test_data_from_which_nothing_can_be_learned_are_reported(ensue: Ensue, name: str, content: str, note: str) -> None:
    output = ensue("data", write(name, content))
    assert (output.status, output.err) == (0, "")
    assert f"\nnote: {note}\n" in output.out
    assert "next:" not in output.out


def test_characters_are_proposed_for_names(ensue: Ensue) -> None:
    names = "".join(f"{label}\tname{number:03}{label}\n" for number in range(60) for label in "ab")
    output = ensue("data", write("x.tsv", names)).out
    assert "\nnote: nearly all words are distinct; data.splitter=characters splits texts into characters\n" in output
    assert "next: ensue train classify-linear --train x.tsv --set data.splitter=characters --out classifier\n" in output
    assert "characters" not in ensue("data", write("y.tsv", TABLE)).out.partition("next: ")[2]


def test_a_last_line_without_end_counts_and_windows_line_ends_change_only_texts(ensue: Ensue) -> None:
    assert "\nlines         1\n" in ensue("data", write("one.txt", "so it is")).out
    note = r"note: lines end with \r\n, and a model learns \r like other characters"
    assert [note in ensue("data", write("x.txt", f"so{end}it is{end}")).out for end in ("\n", "\r\n")] == [False, True]
    assert "\nsentences   1\n" in ensue("data", write("one.conll", "so X")).out
    unix = ensue("data", write("x.conll", CONLL)).out
    assert ensue("data", write("x.conll", CONLL.replace("\n", "\r\n"))).out == unix
    unix = ensue("data", write("x.tsv", TABLE)).out
    assert ensue("data", write("x.tsv", TABLE.replace("\n", "\r\n"))).out == unix


def test_a_line_of_a_million_characters_is_counted_and_shortened(ensue: Ensue) -> None:
    long = "b" * 1_000_000
    assert "1,000,002, 3 distinct" in ensue("data", write("x.conll", f"a X\n{long} Y\n\nc X\n")).out
    assert "longest line  1,000,000 characters, at x.txt:2" in ensue("data", write("x.txt", f"a b\n{long}\n")).out
    output = ensue("data", write("x.conll", f"a X\nb {long}\n")).succeeded()
    assert max(map(len, output.out.splitlines())) < 100


def test_rare_labels_are_summed_in_the_last_row(ensue: Ensue) -> None:
    output = ensue("data", write("x.conll", "".join(f"a L{n}\n" * (40 - n) for n in range(30))))
    rows = output.out.split("\n\n")[2].splitlines()
    assert rows[1].split() == ["L0", "40", "5.2", "%"]
    assert len(rows) == 1 + 25 + 1
    assert rows[-1].split() == ["and", "5", "more", "65", "8.5", "%"]


def test_labels_are_shown_without_interpreting_markup(ensue: Ensue) -> None:
    output = ensue("data", write("x.tsv", "label\ttext\n[red]x\tso\n:smile:\tit\n\x1b[31m\tis\n"))
    for label in ("[red]x", ":smile:", r"\x1b[31m"):
        assert f"\n{label} " in output.out
    assert "\x1b" not in output.out


def test_all_columns_are_listed_if_the_label_is_ambiguous(ensue: Ensue) -> None:
    rows = "".join(f"a{n % 2}\t{n % 3}\tone two three {n}\n" for n in range(12))
    output = ensue("data", write("x.tsv", rows))
    assert output.status == 2
    assert "it may be column 1, column 2; --labels 1 or --labels 2 names it\n" in output.err
    assert output.out.endswith(
        "columns   distinct in 12 rows  first row\n"
        "column 1                    2  a0\n"
        "column 2                    3  0\n"
        "column 3                   12  one two three 0\n"
    )
    assert "\nother columns  distinct in 12 rows  first row\ncolumn 1 " in ensue("data", "x.tsv", "--labels", "2").out


def test_the_files_of_folders_and_globs_are_reported_together(ensue: Ensue) -> None:
    for name in ("pos/1.txt", "neg/1.txt", "neg/2.txt"):
        Path("films", name).parent.mkdir(parents=True, exist_ok=True)
        write(f"films/{name}", f"so it is {name}")
    output = ensue("data", "films")
    assert "data        films, 3 files\ntaken for   folders: labeled texts (a folder for each class)\n" in output.out
    assert "\nneg        2  66.7 %\npos        1  33.3 %\n" in output.out
    for name in ("a.conll", "b.conll", "c.tsv"):
        write(name, CONLL)
    output = ensue("data", "*.conll")
    assert "\ndocuments   " not in output.out
    assert "data        *.conll, 2 files\n" in output.out
    assert output.out.endswith("next: ensue train tag-linear --train '*.conll' --out tagger\n")
    assert "note: some files" not in ensue("data", "?.*").out  # all files have one format
    write("A.txt", "It is text.\nNo more than that.\n")
    assert "note: some files are named .conll, .tsv; all are read as plain text" in ensue("data", "[Aabc].*").out


@pytest.mark.slow
def test_a_pipe_gets_the_whole_report_without_colors_and_torch_is_not_imported() -> None:
    program = (
        "import sys; sys.argv = ['ensue', 'data', 'x.tsv']\n"
        "from ensue.cli import main\n"
        "try: main()\n"
        "finally: print(sorted(name for name in ('torch', 'matplotlib', 'ensue.recipe') if name in sys.modules))"
    )
    wide = "-".join(["wide"] * 9)
    write("x.tsv", "".join(f"{wide}{n % 2}\t{' '.join(['word'] * 20)}\t{n % 2}{wide}\n" for n in range(20)))
    environment = os.environ | {"COLUMNS": "20", "TERM": "xterm-256color"}
    completed = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env=environment
    )
    assert completed.returncode == 2
    assert "\x1b" not in completed.stdout
    assert re.search(r"column 1 +2  wide-wide-wide-wide-wide-wide-wide-wi\.\.\.\n", completed.stdout)
    assert completed.stdout.endswith("[]\n")


@pytest.mark.slow
def test_a_closed_pipe_ends_the_command_without_an_error() -> None:
    write("x.conll", CONLL)
    program = "import sys; sys.argv = ['ensue', 'data', 'x.conll']\nfrom ensue.cli import main\ninput()\nmain()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, complaint = process.communicate(b"\n")
    assert (process.returncode, complaint) == (0, b"")


def test_options_are_proposed_if_the_words_are_positions(ensue: Ensue) -> None:
    """As in GermEval: the position of a word, the word, and two columns of labels."""
    rows = "# x\n1\tAnna\tB-PER\tO\n2\tsagte\tO\tO\n\n# y\n1\tBonn\tB-LOC\tO\n2\tist\tO\tO\n"
    note = "all words are numbers; if these are positions, --words 2 --labels 3 reads the next columns"
    assert note in ensue("data", write("a.tsv", rows)).out
    options = ("--words", "2", "--labels", "3")
    report = ensue("data", "a.tsv", *options).out
    assert "scheme      bio\n" in report
    assert note not in report
    assert note not in ensue("data", write("b.tsv", "1 CD\nAnna NNP\n")).out


@pytest.mark.parametrize("data", [["tickets.csv"], ["auto", "--train", "tickets.csv"], ["--train", "tickets.csv"]])
def test_train_uses_the_proposed_recipe(data: list[str], ensue: Ensue) -> None:
    rows = [f"{text};{label}" for text, label in [("Der Motor läuft", "gut"), ("Der Motor steht", "schlecht")] * 10]
    write("tickets.csv", "\n".join(["Text;Kategorie", *rows]).encode("cp1252"))
    completed = ensue("train", *data, "--encoding", "cp1252", "--set", "train.seed=3", "--out", "run").succeeded()
    assert completed.err.startswith("tickets.csv is taken for csv-semicolon with a header: labeled texts (by ")
    assert "); recipe: classify-linear, since texts are few\n" in completed.err
    recipe = read_recipe("run/recipe.toml")
    assert isinstance(recipe, ClassificationRecipe)
    assert (recipe.head.solver, recipe.data.encoding, recipe.train.seed) == ("lbfgs", "cp1252", 3)


def test_the_recipe_auto_is_the_proposed_recipe() -> None:
    """A setting of the user takes precedence over a proposed setting."""
    data = write("train.txt", CONLL * 2)
    assert read_recipe("auto", train=data) == read_recipe("tag-linear", train=data)
    for settings in ({"data.train": data}, [f"data.train={data}"]):
        assert read_recipe("auto", settings) == read_recipe("tag-linear", train=data)
    chinese = write("t.tsv", "label\ttext\n" + "pos\t这部电影很好看\nneg\t这部电影不好看\n" * 9)
    for changes, splitter in (({}, "characters"), ({"data.splitter": "simple", "train.seed": 7}, "simple")):
        recipe = read_recipe("auto", changes, train=chinese)
        assert isinstance(recipe, ClassificationRecipe)
        assert (recipe.data.splitter, recipe.train.seed) == (splitter, changes.get("train.seed", 0))
    with pytest.raises(EnsueError, match="or training data, for which one is proposed"):
        read_recipe("auto")


def test_train_without_a_recipe_proposes_one(refused: Callable[..., str]) -> None:
    data = write("my names.conll", "Anna B-PER\n\nBonn B-LOC\n")
    for arguments in ([data, "--set", "train.seed=2"], ["--train", data]):
        assert refused("train", *arguments) == (
            f"{data} is taken for columns: labeled sentences (by its suffix .conll); recipe: tag-linear, since there "
            "are at most 1,000 sentences; --out RUN trains it"
        )
    assert "nothing can be learned" in refused("train", write("x.conll", "Anna\n\nBonn\n"), "--out", "mine")
    assert refused("train", write("x.jsonl", '{"text": "a"\n')).startswith("x.jsonl:1: ")
    assert (
        refused("train", write("my.recipe", "[train]\nsteps = 1\n"), "--train", "nowhere") == "Missing option '--out'."
    )


def test_a_small_text_is_read_ten_times() -> None:
    """A large text keeps the budget of the recipe, and a budget of the caller is the only one."""
    little, tiny, large = (write(f"{size}.txt", "The old house. " * size) for size in (4_000, 10, 33_334))
    assert read_recipe("auto", train=little).train.tokens == 600_000
    assert read_recipe("auto", train=tiny).train.tokens == 100_000
    assert read_recipe("auto", train=large).train == read_recipe("char-lstm").train
    for name in BUDGETS:
        assert read_recipe("auto", [f"train.{name}=3"], train=tiny).train.budget == name
    assert read_recipe("auto", {"train": {"seconds": 3}}, train=tiny).train.budget == "seconds"
    assert read_recipe("auto", ["train={seconds=3}"], train=tiny).train.budget == "seconds"
    cyrillic = write("cyrillic.txt", "Старый дом. " * 33_333)  # 399,996 characters in 699,993 bytes
    assert read_recipe("auto", train=cyrillic).train.tokens == 3_999_960
    assert read_recipe("auto", ["train.batch_size=2"], train=tiny).train.budget == "tokens"


@pytest.mark.parametrize(
    ("name", "content", "row"),
    [
        ("x.jsonl", '{"tokens": [], "tags": []}\n' * 2, "empty       2, the first at x.jsonl:1"),
        ("x.conll", "a B-X\nb I-X\n\n" * 40 + "a O\nb I-X\n",
         'scheme      bio; 1 sentence breaks it, the first at x.conll:122: "I-X" after "O"'),
    ],
)  # fmt: skip
def test_empty_sentences_and_violations_of_the_scheme_are_counted(
    name: str, content: str, row: str, ensue: Ensue
) -> None:
    output = ensue("data", write(name, content))
    assert (output.status, output.err) == (0, "")
    assert f"\n{row}\n" in output.out
