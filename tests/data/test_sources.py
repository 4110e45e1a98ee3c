"""Files, folders and globs as one text: order, encodings, and messages of errors."""

import glob
import gzip
import io
import lzma
import os
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.data import decoding, sources
from ensue.data.decoding import read_blocks
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.text.tokenizers import KINDS, train_tokenizer
from ensue.version import package_text
from written_files import write_file


def text_of(location: str | Path, encoding: str = "utf-8") -> str:
    return "".join(TextSource(location, encoding=encoding).chunks())


def complaint(location: str | Path, encoding: str = "utf-8") -> str:
    with pytest.raises(DataError) as caught:
        text_of(location, encoding)
    assert "\n" not in str(caught.value)
    return caught.value.in_options()


def test_a_text_equals_its_files(tmp_path: Path) -> None:
    text = "a\r\nb\rc\x85d\u2028e\x00f\ufeff\n\n猫"
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert text_of(tmp_path / "a.txt") == text
    assert TextSource(str(tmp_path / "a.txt")).num_characters == len(text)


@pytest.mark.parametrize("cut", [-10, 3])
@pytest.mark.parametrize(("name", "compress"), [("a.xz", lzma.compress), ("a.gz", gzip.compress)])
def test_damaged_compression_is_named(name: str, compress, cut: int, tmp_path: Path) -> None:
    path = write_file(tmp_path / name, compress(os.urandom(1000).hex().encode())[:cut])
    assert complaint(path).startswith(f"{path}: damaged, or not a {path.suffix} file (")
    path.write_bytes(b"plain text")
    assert "damaged" in complaint(path)


@pytest.mark.parametrize(
    ("kibibytes", "noise", "refused"), [(2049, 8000, True), (2047, 8000, False), (4096, 50_000, False)]
)
def test_a_compression_bomb_is_refused(kibibytes: int, noise: int, refused: bool, tmp_path: Path) -> None:
    """A bomb has over 2 MiB and over 100 to 1: the first has 200 to 1, the second is small, the third has 80 to 1."""
    path = tmp_path / "a.xz"
    content = os.urandom(noise).hex()
    path.write_bytes(lzma.compress((content + "a" * (1024 * kibibytes - len(content))).encode(), preset=0))
    ratio = 1024 * kibibytes / path.stat().st_size
    assert (100 < ratio < 900) == (noise == 8000)
    if refused:
        assert complaint(path) == f"{path}: a compression ratio above 100; if the file is trusted, unpack it"
    else:
        assert len(text_of(path)) == 1024 * kibibytes


def test_a_compression_bomb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """The ratio so far decides, at any size, before the first block is returned."""
    path = tmp_path / "a.xz"
    for megabytes in (5, 40):
        path.write_bytes(lzma.compress(b"a O\n\n" * (megabytes << 18), preset=0))
        with pytest.raises(DataError, match="a compression ratio above 100"):
            next(read_blocks(path))


def test_a_folder_is_read_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name, text in {"b.txt": "B", "a/z.txt": "Z\n", "a/.no": "no", ".h/no": "no", "empty": "", "c.txt": "C"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [path.name for path in TextSource(tmp_path).paths] == ["z.txt", "b.txt", "c.txt", "empty"]
    assert text_of(tmp_path) == "Z\nB\nC"
    assert text_of(f"{tmp_path}/?.txt") == "B\nC"
    assert text_of(f"{tmp_path}/**/*.txt") == "Z\nB\nC"


def test_a_file_whose_name_looks_like_a_glob_is_read(tmp_path: Path) -> None:
    (tmp_path / "[a].txt").write_text("brackets")
    (tmp_path / "a.txt").write_text("no")
    assert text_of(tmp_path / "[a].txt") == "brackets"


def test_a_byte_order_mark_is_dropped_at_each_files_start(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\n")
    (tmp_path / "b").write_bytes(b"\xef\xbb\xbftwo\xef\xbb\xbf")
    assert text_of(tmp_path) == "one\ntwo\ufeff"
    (tmp_path / "c").write_bytes("drei".encode("utf-16"))
    assert text_of(tmp_path / "c", "utf-16") == "drei"


def test_an_error_of_a_missing_path_names_the_nearest_folder(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("x")
    assert complaint(tmp_path / "inptu.txt").endswith('no such file or folder; did you mean "input.txt"?')
    assert f"{tmp_path / 'none'} is not a folder, either" in complaint(tmp_path / "none" / "input.txt")
    assert "no file matches" in complaint(f"{tmp_path}/*.md")
    assert "no such file" in complaint("")
    assert "no such file" in complaint("nul\0byte")
    assert "cannot be read" in complaint("x" * 5000)
    (tmp_path / "folder").mkdir()
    assert "no file in this folder" in complaint(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe, which can be read only once" in complaint(tmp_path / "pipe")


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "b").write_bytes(b"\xef\xbb\xbf")
    assert complaint(tmp_path) == f"{tmp_path}: the text is empty"


@pytest.mark.parametrize(
    "name", ["utf-88", "hex", "rot13", "undefined", "", "a\0b", "idna", "punycode", "mbcs", "xxxx" * 1000]
)
def test_unknown_encodings_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert "unknown encoding" in complaint(tmp_path / "a", name)
    assert 'did you mean "utf-8"' in complaint(tmp_path / "a", "utf-88")


def test_unreadable_files_and_folders_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("x")
    source = TextSource(tmp_path / "a")

    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:  # the tests may run as root, who ignores permissions
        patch.setattr(os, "scandir", refuse)
        assert complaint(tmp_path) == f"{tmp_path}: cannot be read (Permission denied)"
    monkeypatch.setattr(Path, "open", refuse)
    assert complaint(tmp_path / "a") == f"{tmp_path / 'a'}: cannot be read (Permission denied)"
    with pytest.raises(DataError, match="cannot be read"):
        source.fingerprint()


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_error_of_a_wrong_byte_names_its_line(block: int, mark: bytes, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(decoding, "BLOCK_BYTES", block)
    path = write_file(tmp_path / "a.txt", mark + "one\nété\u2028\x85\nthey".encode() + b"\xe9 are\n")
    advice = "for Windows' Western European try --encoding cp1252 (in training --set data.encoding=cp1252)"
    message = f"{path}:3: not UTF-8 (byte 0xe9 in column 5); {advice}"
    assert complaint(path) == message
    assert text_of(path, "latin-1").endswith("theyé are\n")
    path.write_bytes("one\nab猫".encode()[:-1])
    assert complaint(path).startswith(f"{path}:2: not UTF-8 (byte 0xe7 in column 3)")


TEXTS = {
    "cp1252": ("Größe und Übermut: schöne Grüße an alle Straßen", "L'été dernier, à Noël, ça a été très différent où",
               "Mañana el niño comerá en Córdoba según la canción", "Över ån på ön; blåbær og rødgrød med fløde",
               "It’s a “quoted” text – don’t", "São João não pôde às três", "It is 20 °C"),
    "cp850": ("Größe und Übermut: schöne Grüße", "Les élèves étaient très fatigués après l'école, où ils ont mangé",
              "Mañana el niño comerá en Córdoba", "Der är en ö på sjön; rødgrød på øen", "São João não pôde às três"),
    "mac_roman": ("Größe und Übermut: „schöne“ Grüße", "L’été dernier, à Noël, ça a été très différent où",
                  "¿Qué comerá mañana el niño?", "Der är en ö på sjön, och älgen går", "Perché non è più così?"),
    "cp1250": ("Zażółć gęślą jaźń, Łódź i Kraków są piękne", "Příliš žluťoučký kůň úpěl ďábelské ódy",
               "Az árvíztűrő tükörfúrógép őrült"),
    "cp1254": ("Şu ağaç çok güzel, ışık sönüyor", "öğrenci değil mi bugün"),
    "cp1257": ("Ąžuolas ėjo į mišką, šalia upės žmonės", "Glāžšķūņa rūķīši dzērumā čiepj"),
    "cp1251": ("Привет, как дела сегодня у вас", "Съешь ещё этих мягких французских булок"),
    "koi8-r": ("Привет, как дела сегодня у вас",),
    "cp1253": ("Καλημέρα κόσμε, τι κάνετε σήμερα",),
    "cp1255": ("שלום עולם מה שלומך היום",),
    "cp1256": ("مرحبا بالعالم كيف حالك اليوم",),
    "cp874": ("สวัสดีชาวโลก วันนี้อากาศดี",),
    "shift_jis": ("こんにちは世界の皆さん、今日は天気がいいです", "東京タワーへ行きました。とても楽しかった"),
    "euc_jp": ("こんにちは世界の皆さん、今日は天気がいいです",),
    "cp949": ("안녕하세요 세계 여러분 오늘은 날씨가 좋습니다",),
    "gb18030": ("你好世界，今天天气很好，我们去公园", "这个产品的质量不错，我很喜欢"),
    "big5": ("你好世界，今天天氣很好，我們去公園", "這個產品的品質不錯，我很喜歡"),
}  # fmt: skip
"""Sentences by encoding."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("encoding", TEXTS)
def test_the_encoding_of_the_file_is_proposed(encoding: str, tmp_path: Path) -> None:
    """The file has labels and a beginning in ASCII, and the sample may end within a character."""
    assert {*TEXTS} == {*tomllib.loads(package_text("data/detection/encodings.toml"))}
    for text in TEXTS[encoding]:
        path = tmp_path / "a.csv"
        for beginning, count in (("text,label\n", 1200), ("x " * 50_000, 40)):
            path.write_bytes((beginning + f"{text},good\n" * count).encode(encoding))
            assert complaint(path).endswith(f"try --encoding {encoding} (in training --set data.encoding={encoding})")
            assert text in text_of(path, encoding)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_proposed(encoding: str, tmp_path: Path) -> None:
    """Texts of several languages are UTF-16, even if their bytes are valid UTF-8. Texts with NULs at even and odd
    positions, or with few NULs, are not.
    """
    path = tmp_path / "a.csv"
    for text in ("Hello, world", *(text for texts in TEXTS.values() for text in texts)):
        for count in (1, 1200):
            path.write_bytes(("text,label\n" + f"{text},good\n" * count).encode(encoding))
            assert complaint(path).endswith(f"try --encoding {encoding} (in training --set data.encoding={encoding})")
            assert text in text_of(path, encoding)
    for content in (b"a\0b\0", b"some text with one\0 NUL\n" * 3, b"\0\0\0" * 9, "text".encode("utf-32-le") * 9):
        path.write_bytes(content)
        assert text_of(path, "utf-8") == content.decode()


@pytest.mark.parametrize("length", [0, 1, 1 << 15, 1 << 16, (1 << 20) + 1])
@pytest.mark.parametrize("rest", [b"\xe9", b"\xe9 \n", b"\xff\xff", b"\x80\n\n"])
def test_a_wrong_byte_anywhere_is_an_error_of_one_line(length: int, rest: bytes, tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", b"x" * length + rest)
    assert f"not UTF-8 (byte 0x{rest[0]:02x} in column {length + 1})" in complaint(path)


def test_other_encodings_are_named_in_errors(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", b"ok\nna\xefve")
    assert complaint(path, "ascii").startswith(f"{path}:2: not ASCII (byte 0xef in column 3); ")
    path.write_bytes("猫".encode("shift_jis") + b"\n\x81")
    assert complaint(path, "shift-jis").startswith(f"{path}:2: not SHIFT_JIS (byte 0x81 in column 1); ")
    assert "byte order mark" in complaint(path, "utf-16") or "BOM" in complaint(path, "utf-16")
    path.write_bytes("猫".encode("utf-16"))
    assert complaint(path).endswith("(in training --set data.encoding=utf-16)")


@given(
    text=st.text(st.sampled_from("ab é\n\t\u2028猫"), min_size=1),
    start=st.integers(0, 120),
    length=st.none() | st.integers(0, 60),
)
def test_ranges_equal_slices(
    text: str, start: int, length: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write_file(tmp_path_factory.mktemp("range") / "a", text.encode())
    stop = None if length is None else start + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "BLOCK_BYTES", 3)
        patch.setattr(sources, "CHUNK_CHARACTERS", 10)
        assert "".join(TextSource(path).chunks(start, stop)) == text[start:stop]


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"published"}))  # a tokenizer that is not trained
def test_pieces_have_the_ids_of_the_full_text(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "BLOCK_BYTES", 50)
    monkeypatch.setattr(sources, "CHUNK_CHARACTERS", 100)
    text = "Words, and  words;\n\n  more words\u2028 don't\xa0 stop\r\n" * 20
    (tmp_path / "a").write_bytes(text.encode())
    pieces = list(TextSource(tmp_path / "a").chunks())
    tokenizer = train_tokenizer(kind, pieces, max_size=300)
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 200
    ids = np.concatenate([tokenizer.encode(piece) for piece in pieces])
    assert ids.tolist() == tokenizer.encode(text).tolist()


def test_a_line_without_blanks_is_still_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "BLOCK_BYTES", 50)
    monkeypatch.setattr(sources, "CHUNK_CHARACTERS", 100)
    (tmp_path / "a").write_text("x" * 10_000)
    assert max(map(len, TextSource(tmp_path / "a").chunks())) <= 150


def test_the_fingerprint_depends_on_bytes_and_order(tmp_path: Path) -> None:
    def fingerprint(**files: bytes) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return TextSource(folder).fingerprint()

    original = fingerprint(a=b"one", b=b"two")
    assert fingerprint(a=b"one", c=b"two") == original
    others = [fingerprint(a=b"two", b=b"one"), fingerprint(a=b"onet", b=b"wo"), fingerprint(a=b"onetwo")]
    assert len({original, *others}) == 4


def test_pipes_and_cyclic_links_in_folders_are_skipped(tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer. Each link to its folder would double the paths, to a depth of 40."""
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.txt").write_text("two")
    os.mkfifo(tmp_path / "pipe.txt")
    for name in ("x", "y"):
        (tmp_path / name).symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "c.txt").symlink_to(tmp_path / "gone")
    (tmp_path / "d.txt").symlink_to(tmp_path / "a.txt")
    for location in (tmp_path, f"{tmp_path}/**/*.txt", f"{tmp_path}/**"):
        names = [str(path.relative_to(tmp_path)) for path in TextSource(location).paths]
        assert names == ["a.txt", "d.txt", "deep/b.txt"]
    assert [path.name for path in TextSource(f"{tmp_path}/x/*.txt").paths] == ["a.txt", "d.txt"]


def test_globs_match_like_those_of_python(in_tmp_path: None) -> None:
    for name in ("a.txt", "b.md", "x/a.txt", "x/y/z.txt", ".h/q.txt", "x/.hid", "[k].txt", "x/y/a.txt", "z/y/a.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("x")
    for pattern in ("*", "*.txt", "**", "**/*", "**/*.txt", "x/**", "x/**/a.txt", "*/y/*", "./*.txt", ".h/*",
                    "*/.h*", "[a-b].*", "**/y/**", "x/../*.txt", "?.txt", "**/**/*.txt"):  # fmt: skip
        expected = {Path(name) for name in glob.glob(pattern, recursive=True) if Path(name).is_file()}
        assert TextSource(pattern).paths == tuple(sorted(expected)), pattern


def test_errors_that_pathlib_ignores_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, ask in (("exists", os.path.exists), ("is_file", os.path.isfile), ("is_dir", os.path.isdir)):
        monkeypatch.setattr(Path, name, lambda path, ask=ask: ask(path))  # like Python 3.14
    assert "cannot be read (File name too long)" in complaint(tmp_path / ("x" * 300))


def test_an_error_of_the_system_for_a_path_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert complaint(tmp_path / "link") == f"{tmp_path / 'link'}: a link to {tmp_path / 'gone'}, which does not exist"
    assert complaint("~nosuchuser/x") == "~nosuchuser/x: no home directory of ~nosuchuser"
    assert "cannot be read (File name too long)" in complaint(tmp_path / ("x" * 300))
    assert "cannot be read (File name too long)" in complaint(f"{tmp_path}/{'x' * 300}/*")

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)  # like a path in a folder that cannot be searched
    assert complaint(tmp_path / "a") == f"{tmp_path / 'a'}: cannot be read (Permission denied)"


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("utf-16", "a\n\ud800b".encode("utf-16-le", "surrogatepass")), ("utf-16", b"a\nb"), ("utf-32", b"\xff" * 9),
        ("utf-16", b"\xff\xfea"), ("utf-7", b"a\n+////-"), ("iso2022_jp", b"\x1b$B\xff"), ("charmap", b"\xff"),
        ("hz", b"~{\xff~}"), ("utf-8-sig", b"\xef\xbb\xbf\xff"),
    ],
)  # fmt: skip
def test_bytes_that_no_encoding_allows_are_named(encoding: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with suppress(DataError):
        text_of(tmp_path / "a", encoding)
    if encoding != "charmap":
        assert "not " in complaint(tmp_path / "a", encoding)


def test_an_encoding_is_proposed_only_if_the_bytes_fit(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.txt", "\u201cten\u201d \u20ac".encode("cp1252"))
    assert "try --encoding cp1252 " in complaint(path)
    assert text_of(path, "cp1252") == "\u201cten\u201d \u20ac"
    with pytest.raises(DataError, match=r"column 1\); save the file as UTF-8$"):  # without an option for its encoding
        decoding.load_text(path, "")
    for content in (b"caf\xe9\0", b"caf\xe9\x01"):
        path.write_bytes(content)
        assert complaint(path).endswith("; give its encoding with --encoding (in training --set data.encoding=...)")


def zipped(name: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("[Content_Types].xml", "<a/>")
        file.writestr(name, "<a/>")
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (zipped("xl/workbook.xml"), "a spreadsheet (Excel, .xlsx); save the sheet as CSV in UTF-8"),
        (zipped("a.txt"), "a zip archive; unpack it first"),
        (gzip.compress(b"a text", mtime=0), "compressed by gzip; rename it to end in .gz"),
        (lzma.compress(b"a text"), "compressed by xz; rename it to end in .xz"),
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "a PDF; save its text in UTF-8"),
        (b"PAR1\x15\x04\x15\xe8\x07", "a Parquet file; rename it to end in .parquet"),
    ],
)
def test_a_binary_file_is_named(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert complaint(tmp_path / "a.csv").startswith(f"{tmp_path / 'a.csv'}: {expected}")
    if b"\0" in content:
        assert expected in complaint(tmp_path / "a.csv", "latin-1")
    (tmp_path / "a.txt").write_text("PAR1 and %PDF- begin a text")
    assert text_of(tmp_path / "a.txt") == "PAR1 and %PDF- begin a text"
