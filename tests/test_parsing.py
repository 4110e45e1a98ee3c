"""JSON and TOML with limits: parsers return a value or raise a `ParseError` of one line."""

import json
import os
import time

import pytest

from ensue import parsing


@pytest.mark.parametrize("text", ["{}", '{"a": [1, 2.5, null, "[[["]}', "3", '"x"', b'{"a": "\xc3\xa9"}'])
def test_json_is_parsed_as_by_the_standard_library(text):
    assert parsing.parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    "text", ['[1, -2.5, 1e3, "1", NaN, {"a": [0]}]', "9" * 4300, "[1,,]", "0." + "9" * 5000, "1.e"]
)
def test_the_yielding_decoder_gives_the_same_values_and_errors(text):
    results = []
    for decoder in (None, parsing.YIELDING):
        try:
            results.append(repr(parsing.parse_json(text, decoder)))
        except parsing.ParseError as error:
            results.append(str(error))
    assert results[0] == results[1]


@pytest.mark.parametrize("escaped", [True, False])
def test_exact_decoding_keeps_the_spelling_of_numbers(escaped):
    """Numbers are written back as they were read, and no string becomes a number, whatever its characters."""
    lone = [f"{before}{chr(code)}1" for code in range(0xD800, 0xE000) for before in ("", 'a"')]
    text = json.dumps([*lone, {key: key for key in lone}], ensure_ascii=escaped)[:-1] + ', 1e5, -0, 1.10, {"1": 1E+2}]'
    assert parsing.to_json(parsing.EXACT.decode(text), ensure_ascii=escaped) == text


def test_brackets_in_strings_do_not_count_as_depth():
    assert parsing.parse_json(json.dumps(["[" * 500])) == ["[" * 500]


@pytest.mark.parametrize(
    "parse", [parsing.parse_json, lambda text: parsing.parse_toml(f"x = {text}")], ids=["json", "toml"]
)
def test_depth_is_limited(parse):
    inside = parsing.MAX_DEPTH - 1  # the TOML document is a level itself
    parse("[" * inside + "]" * inside)
    for depth in (parsing.MAX_DEPTH + 1, 400, 100_000):
        with pytest.raises(parsing.ParseError, match=f"nested more than {parsing.MAX_DEPTH} deep"):
            parse("[" * depth + "]" * depth)


@pytest.mark.parametrize(
    "parse", [parsing.parse_json, lambda text: parsing.parse_toml(f"x = {text}")], ids=["json", "toml"]
)
def test_digits_are_limited(parse):
    with pytest.raises(parsing.ParseError, match=r"more than 4,300 digits$"):
        parse("9" * 5000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1,", "not JSON (Expecting value in column 4)"),
        ("[1,\n2,,", "not JSON (Expecting value in line 2, column 3)"),
        ("", "not JSON (Expecting value in column 1)"),
        (b'"\xff"', "not UTF-8 (byte 2 is 0xff)"),
    ],
)
def test_errors_of_json_name_the_place(text, message):
    with pytest.raises(parsing.ParseError) as caught:
        parsing.parse_json(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["a = ", "= 1", "a = 1\na = 2", "a = 2020-13-45", b"a = '\xff'", "[a]\n[a]"])
def test_errors_of_toml_are_one_line(text):
    with pytest.raises(parsing.ParseError, match=r"^not (TOML|UTF-8)") as caught:
        parsing.parse_toml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", [".".join("a" * 100_000), '"a b".' * 50_000 + "c"])
@pytest.mark.parametrize("document", ["{} = 1", "[{}]", "x = {{{} = 1}}", "x = {{y = 1, {} = 1}}"])
def test_keys_of_many_parts_are_refused_within_a_second(key, document):
    started = time.process_time()
    with pytest.raises(parsing.ParseError, match="deep"):
        parsing.parse_toml(document.format(key))
    assert time.process_time() - started < 1


def test_dots_in_strings_are_not_counted_as_keys():
    text = "It ends. " * 500
    assert parsing.parse_toml(f'about = "{text}"\na.b.c = 1')["about"] == text
    assert parsing.parse_toml(f'about = """\n{"." * 500}\n{text}"""') == {"about": "." * 500 + "\n" + text}


def test_the_size_of_toml_is_limited():
    with pytest.raises(parsing.ParseError, match=f"more than {parsing.MAX_TOML_CHARACTERS:,} characters"):
        parsing.parse_toml("#" * (parsing.MAX_TOML_CHARACTERS + 1))


def test_files_are_read_up_to_a_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert parsing.read_bounded(path, 5) == b"12345"
    with pytest.raises(parsing.ParseError, match="more than 4 bytes"):
        parsing.read_bounded(path, 4)
    with pytest.raises(FileNotFoundError):
        parsing.read_bounded(tmp_path / "none", 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(parsing.ParseError, match="not a file"):
        parsing.read_bounded(tmp_path / "pipe", 4)


def test_values_are_shown_short():
    assert parsing.quote("a\nb") == r"'a\nb'"
    assert len(parsing.quote(10**400)) == 60
    assert parsing.quote(10**5000) == "a very large int"
