"""Detection of the kind of data: sentences, texts, pairs or running text."""

import gzip
from pathlib import Path

import pytest

from ensue.data.decoding import BLOCK_BYTES
from ensue.data.detection.format_table import first_lines
from ensue.data.detection.kind import detect
from ensue.data.examples import PairSource
from ensue.errors import DataError
from written_files import write_file

CONLLU = "# newdoc\n# text = Gatos\n1\tGatos\tgato\tNOUN\tN\tGender=Masc|Number=Plur" + "\t_" * 3 + "\tNER=B-X\n\n"


PROSE = "The cat sat on the mat and the dog sat on it\nThe dog saw a cat and the mat\nA dog is not the cat\n" * 9


@pytest.mark.parametrize(
    ("name", "text", "kind", "format"),
    [
        ("x.conllu", "", "sentences", "conllu"),
        ("x.txt", CONLLU, "sentences", "conllu"),
        ("x.conll.gz", "a O\n", "sentences", "columns"),
        ("x.txt", "a NN O\nb NN O\n\nc NN O\n", "sentences", "columns"),
        ("x", "-DOCSTART- O\n\na O\n", "sentences", "columns"),
        ("x.tsv", "a\tO\nb\tB-X\n\nc\tO\n", "sentences", "columns"),
        ("x", "a\tO\nb\tB-X\nc\tO\n", "sentences", "columns"),
        ("x.tsv", "pos\tfine\nneg\tdull\npos\tgood\n", "texts", "tsv"),
        ("x", "ham\tGo until jurong\nspam\tFree entry in\nham\tOk lar joking\n", "texts", "tsv"),
        ("x", "ham\tGo until jurong\nham\tI see now\n\nspam\tFree entry in\n", "texts", "tsv"),
        ("x.csv", "a O\nb O\n\nc O\n", "texts", "csv"),
        ("x.csv", "pos,fine film\n", "texts", "csv"),
        ("x", "__label__a so it is\n", "texts", "fasttext"),
        ("x", "0 so it is\n1 not so\n0 oh\n0 well well\n", "texts", "first-word"),
        ("x", PROSE, "text", "text"),
        ("x", "".join(f"{chr(97 + n % 20)} {n} x y\n" for n in range(80)), "texts", "first-word"),
        ("x", "".join(f"w{n} x y\n" for n in range(19)) + "a b c\n" * 80, "text", "text"),
        ("x.jsonl", '{"tokens": ["a"], "labels": ["O"]}\n', "sentences", "json"),
        ("x.jsonl", '{"text": "Ann", "label": [[0, 3, "PER"]]}\n', "sentences", "json"),
        ("x.jsonl", '{"text": "Ann", "label": []}\n{"text": "Ann", "label": [[0, 3, "PER"]]}\n', "sentences", "json"),
        ("x.jsonl", '{"text": "Ann", "entities": []}\n', "sentences", "json"),
        ("x.jsonl", '{"text": "Ann", "label": ["a", "b"]}\n', "texts", "json"),
        ("x.jsonl", "not JSON\n", "texts", "json"),
        ("x", '{"text": "Ann", "label": "a"}\n', "texts", "json"),
        ("x.jsonl", '{"dialogue": "a", "summary": "b", "topic": "c"}\n', "pairs", "json"),
        ("x.jsonl", '{"source": "a", "target": "b", "label": "c"}\n', "texts", "json"),
        ("x.csv", 'id,dialogue,summary\n1,"a\nb",c\n', "pairs", "csv"),
        ("x.csv", "source,target\nfine film,pos\ndull film,neg\ngood film,pos\n", "texts", "csv"),
        ("x.csv", "source,text,target\na,fine film,1\nb,dull film,0\nc,good film,1\n", "texts", "csv"),
        ("x.tsv", "en\tde\nit rains\tes regnet\n", "pairs", "tsv"),
        ("x", "It rains .\tEs regnet .\nI see .\tIch sehe .\n", "pairs", "tsv"),
        ("x.tsv", "Rome\tRoma\nParis\tParigi\n", "pairs", "tsv"),
        ("x", "".join(f"w{n}\tv{n}\n" for n in range(20)), "pairs", "tsv"),
        ("x", "".join(f"w{n}\tv{n}\n" for n in range(10)), "sentences", "columns"),
        ("x", "".join(f"w{n}\tX{n % 3}\n" for n in range(40)), "sentences", "columns"),
        ("x", "run\tran\tV;PST\ndog\tdogs\tN;PL\n", "pairs", "sigmorphon"),
        ("x", "The\tthe\tD;DEF\ndogs\tdog\tN;PL\n\nIt\tit\tP;SG\n", "sentences", "columns"),
        ("x.txt", "IN: walk OUT: I_WALK\nIN: run OUT: I_RUN\n", "pairs", "scan"),
        ("x", ";;; words\nWORD  W ER1 D\nWORDS  W ER1 D Z\n", "pairs", "cmudict"),
        ("x", "I AM\nYOU ARE\n", "text", "text"),
        ("x.txt", "Janet will back the bill\nShe did\n", "text", "text"),
        ("x.txt", "Janet", "text", "text"),
        ("x.txt", "\n\n", "text", "text"),
    ],
)
def test_kind_and_format_of_a_file_are_detected(tmp_path: Path, name: str, text: str, kind: str, format: str) -> None:
    path = write_file(tmp_path / name, gzip.compress(text.encode()) if name.endswith(".gz") else text.encode() or b"\n")
    result = detect(path)
    assert (result.kind, result.format, result.is_default) == (kind, format, True)


@pytest.mark.parametrize(
    ("text", "kind", "format"),
    [
        ("a O\nb O\nc O O\n\nd O\ne O\n", "sentences", "columns"),
        ("ham\tGo until jurong\nham\tI see now\nham I see\nspam\tFree entry in\n", "texts", "tsv"),
    ],
)
def test_a_file_with_a_wrong_line_is_still_detected(tmp_path: Path, text: str, kind: str, format: str) -> None:
    path = write_file(tmp_path / "x", text)
    result = detect(path)
    assert (result.kind, result.format, result.is_default) == (kind, format, False)


def test_named_keys_decide_the_kind_of_json(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "Ann left", "form": ["Ann", "left"], "about": "x", "names": [[0, 3, "PER"]]}\n')
    assert detect(path).kind == "sentences"
    assert detect(path, labels="about").kind == "texts"
    assert detect(path, labels="names").kind == "sentences"
    assert detect(path, words="form", labels="about").kind == "sentences"


def test_a_named_format_is_used(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.txt", "a\tO\nb\tO\n\nc\tO\n")
    assert detect(path)[:2] == ("sentences", "columns")
    assert detect(path, format="tsv") == ("texts", "tsv", "set by --format", False, ())
    assert detect(path, format="columns").is_default
    assert detect(path, format="plain").kind == detect(path, format="text").kind == "text"
    with pytest.raises(DataError, match='unknown format "colums"; did you mean "columns"'):
        detect(path, format="colums")


def test_named_columns_decide_between_pairs_and_texts(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.csv", "source,target,kind\nfine film,it was fine,a\ndull film,it was dull,b\n")
    assert detect(path)[:2] == ("pairs", "csv")
    assert detect(path, labels="kind").kind == "texts"
    path.write_text("a,b\nfine film,pos\nso,neg\nwell,pos\n")
    assert detect(path).kind == "texts"
    assert detect(path, are_pairs=True) == ("pairs", "csv", "by the named columns", True, ())
    assert detect(path, format="scan") == ("pairs", "scan", "set by --format", False, ())
    assert detect(f"{path},{path}")[:2] == ("pairs", "aligned")


def test_the_kinds_and_formats_of_folders_are_detected(tmp_path: Path) -> None:
    for name in ("pos/1.txt", "neg/1.txt", "neg/2.txt"):
        (tmp_path / "classes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "classes" / name).write_text("so it is")
    for name in ("en/train.conllu", "zh/train.conllu"):
        (tmp_path / "treebanks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "treebanks" / name).write_text(CONLLU)
    assert detect(tmp_path / "treebanks")[:2] == ("sentences", "conllu")
    (tmp_path / "treebanks/zh/train.tsv").write_text("a\tX\n")
    assert detect(tmp_path / "classes")[:2] == ("texts", "folders")
    treebanks = detect(tmp_path / "treebanks")
    assert (treebanks.kind, treebanks.format, treebanks.others) == ("sentences", "conllu", (".tsv",))
    assert detect(tmp_path / "treebanks/*/*.conllu").others == ()


def test_detection_reads_complete_lines(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x", "a\r\nb\n\nc", newline="")
    assert first_lines(path) == ["a\r\n", "b\n", "\n", "c"]
    path.write_text("a\n" + "b" * BLOCK_BYTES)
    assert first_lines(path) == ["a\n"]
    path.write_text("b" * 2 * BLOCK_BYTES)
    assert first_lines(path) == ["b" * 2 * BLOCK_BYTES]


@pytest.mark.parametrize("codes", ["en\tpcm", "eng\tdeu", "yor\ten", "fra\tben"])
def test_codes_of_languages_are_detected_as_a_header(codes: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(codes + "\n" + "".join(f"a sentence {n}\tits translation {n}\n" for n in range(40)))
    assert len(list(PairSource(path))) == 40


@pytest.mark.parametrize(
    ("third", "kind"), [("CC-BY 2.0 (France) Attribution: tatoeba.org #1", "pairs"), ("x", "texts")]
)
def test_a_column_of_licenses_is_ignored(third: str, kind: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / "deu.txt", "".join(f"Go on {n}.\tWeiter mit {n}.\t{third} ({n})\n" for n in range(40)))
    assert detect(path).kind == kind
    if kind == "pairs":
        assert next(iter(PairSource(path)))[:2] == (("Go on 0.",), ("Weiter mit 0.",))
