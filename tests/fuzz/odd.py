"""Odd values: numbers, words, names of files, encodings. All are short."""

from random import Random
from typing import Any

INTEGERS = [0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**14, 10**20, -(10**30), 10**400]
"""Small numbers, or numbers beyond all bounds: others may be valid and slow."""
REALS = [0.0, -0.0, 0.5, 1.0, -1.0, 1e-308, 5e-324, 1e308, 1e10, float("inf"), float("-inf"), float("nan"), 1 - 1e-16]
NUMERALS = [
    "0", "-1", "1", "1.5", "1e400", "1e-400", "nan", "inf", "-inf", "0x10", "1_000", "٣", "１", "²", "+1", " 1", "1 ",
    "", "--", "9" * 400, "9" * 5000, "99999999999999", "1e14", "true", "None", "1,5", "1e3", "00", "-0",
]  # fmt: skip
STRINGS = [
    "", " ", "\t", "\n", "\r", "\0", "-", "--", "--help", "--x", "=", "a=b", "$", "$1_$2", "$5^$", "%s", "{}", "{0.x}",
    "\\", "'", '"', "[", "]", "*", "**", "?", "[!", "~", "~nosuchuser/x", ".", "..", "/", "//", "/dev/null",
    "/dev/zero", "/dev/full", "/proc/self/mem", "/nowhere/at/all", "con", "é", "ﬀ", "漢字", "😀", "\u2028", "\u200f",
    "\ufeff", "\udcff", "\ud800", "a" * 256, "a" * 5000, "/".join("a" * 2500), "a\nb", "a\x1b[31mb", "None", "null",
    "<unk>", "O", "B-", "I-X", "__label__", "__label__x", "#", "# newdoc", "-DOCSTART-", "{", "}", '{"a":',
    "label\ttext", "auto", "last", "1", "0",
]  # fmt: skip
ENCODINGS = [
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-7", "latin-1", "cp1252", "cp037", "shift_jis",
    "gb18030", "iso2022_jp", "hz", "big5", "euc_kr", "koi8-r", "cp65001", "mac-roman", "ascii",
]  # fmt: skip
NO_ENCODINGS = [
    "punycode", "idna", "rot13", "hex", "base64", "zlib", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs",
    "oem", "utf8\0", "", " ", "utf-9", "a" * 300, "é", "palmos", "bz2", "uu", "quopri", "string_escape",
]  # fmt: skip
FORMATS = [
    "auto", "text", "plain", "columns", "conllu", "json", "tsv", "csv", "csv-semicolon", "csv-tab", "fasttext",
    "first-word", "class-files", "folders", "tmx", "scan", "cmudict", "sigmorphon", "aligned", "conll", "", "x",
]  # fmt: skip
NAMES = [
    "a b", "-x", "--help", "a\nb", "$x^", "é", "漢字", "😀", "a\udcffb", "%s", "{x}", "*", "[a]", "a" * 250, "~", "#",
    "'", '"', "a.tar.gz.xz", ".hidden", "a\tb", "a\x1b[31m", "x.JSONL", "x.TXT", "x.Conllu", "a,b",
]  # fmt: skip


def integer(choose: Random) -> int:
    return choose.choice(INTEGERS)


def scalar(choose: Random) -> Any:
    """Return a value of JSON or TOML."""
    match choose.randrange(6):
        case 0:
            return integer(choose)
        case 1:
            return choose.choice(REALS)
        case 2 | 3:
            return choose.choice(STRINGS)
        case 4:
            return choose.choice([True, False])
    return choose.choice([None, [], {}, [None], [[]], [1, "a"], {"": ""}, ["a"] * 3, {"a": {"b": 1}}])


def numeral(choose: Random) -> str:
    return choose.choice(NUMERALS)


def string(choose: Random) -> str:
    """Return a string without a null character, so that it can be an argument."""
    return choose.choice(STRINGS).replace("\0", "").replace("\ud800", "\udc80")


def encoding(choose: Random) -> str:
    return choose.choice([*ENCODINGS, *NO_ENCODINGS]).replace("\0", "")
