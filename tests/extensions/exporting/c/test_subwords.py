"""Subwords as C have the ids of the library for any characters and for words of any length."""

import ctypes
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ensue.extensions.exporting.c.tokens import merge_table
from ensue.models.build_text import build_language_model
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.text.pieces import START
from ensue.text.subwords import SubwordTokenizer, byte_characters
from ensue.text.tokenizers import train_tokenizer
from extensions.exporting.c.carried import COMPILERS, OK, library, put
from extensions.exporting.c.printing import files_of
from language_pipelines import TEXT
from layer_tables import layers

HARNESS = """
int64_t read_all(const NAME_model *model, subwords *in, const uint8_t *bytes, size_t count, uint32_t *ids,
                 uint64_t *ends) {
    utf8 decoder = {0};
    uint32_t found[2];
    int lengths[2];
    int64_t size = 0;
    memset(in, 0, sizeof *in);
    for (size_t k = 0; k <= count; k++) {
        int characters = k < count ? utf8_feed(&decoder, bytes[k], found, lengths) : 0;
        for (int c = 0; c < characters; c++) subwords_feed(model, in, found[c], k + 1 - (size_t)lengths[c], k + 1);
        if (k == count) subwords_end(model, in);
        uint64_t begin, end;
        for (; subwords_take(model, in, ids + size, &begin, &end); size++) {
            if (begin != (size ? ends[size - 1] : 0)) return -1;
            ends[size] = end;
        }
        if (k % 997 == 0 && !subwords_are_valid(model, in)) return -2;
    }
    return size;
}
size_t room(void) { return sizeof(subwords); }
"""
SIGNS = "'’srtvelmd \n\t1٣é!?\x85\x1c\u3000\xa0a<|endoftext|>"


def invented(seed: int) -> str:
    """Return a text of words with common parts, so that merges compete."""
    choose = random.Random(seed)
    parts = ["".join(choose.choices("abcdeé", k=choose.randint(1, 3))) for _ in range(40)]
    return " ".join("".join(choose.choices(parts, k=choose.randint(1, 5))) for _ in range(5000))


def published() -> SubwordTokenizer:
    tokenizer = train_tokenizer("bpe", [TEXT + invented(0)], max_size=1000)
    assert isinstance(tokenizer, SubwordTokenizer)
    tokenizer.library.add_special_tokens(["<|endoftext|>"])
    return SubwordTokenizer(tokenizer.library, special={START: "<|endoftext|>"})


def texts(tokenizer: SubwordTokenizer) -> Iterator[str]:
    choose = random.Random(5)
    pieces = [text for piece in tokenizer.pieces if (text := piece.decode("utf-8", "ignore")).isalpha()]
    for _ in range(300):
        yield "".join(choose.choices(SIGNS, k=choose.randint(0, 60)))
        points = (choose.choice((choose.randrange(0x250), choose.randrange(0xE000, 0x110000))) for _ in range(50))
        yield "".join(map(chr, points))
        unit = "".join(choose.choices(pieces, k=choose.randint(1, 5)))
        yield unit * (5000 // len(unit)) + choose.choice(pieces)
    for begin in range(0, 0x32000, 0x400):
        yield " ".join(chr(point) for point in range(begin, begin + 0x400) if not 0xD800 <= point < 0xE000)
    yield "".join(choose.choices(pieces, k=300_000))  # one word


@pytest.mark.slow
@pytest.mark.skipif(not COMPILERS, reason="neither gcc nor clang is installed")
def test_all_texts_have_the_ids_of_the_library(tmp_path: Path) -> None:
    tokenizer = published()
    table = layers(kind="elman", d_embedding=1, d_model=1)
    model = build_language_model(**table, vocabulary_size=tokenizer.vocabulary_size)
    files = files_of(LanguagePipeline(model, tokenizer), "sea")
    files["sea.c"] += HARNESS.replace("NAME", "sea").encode()
    compiled = library(put(files, tmp_path), "-Wno-missing-prototypes", "sea.c")
    compiled.read_all.restype, opened = ctypes.c_int64, ctypes.c_void_p()
    assert compiled.sea_open(ctypes.byref(opened), str(tmp_path / "sea.weights").encode()) == OK
    room = ctypes.create_string_buffer(compiled.room())
    for text in texts(tokenizer):
        content = text.encode()
        ids, ends = np.empty(len(content), np.uint32), np.empty(len(content), np.uint64)
        places = (ctypes.c_void_p(array.ctypes.data) for array in (ids, ends))
        count = compiled.read_all(opened, room, content, ctypes.c_size_t(len(content)), *places)
        assert ids[: max(count, 0)].tolist() == tokenizer.encode(text).tolist(), text[:99]
        assert count == 0 or ends[count - 1] == len(content)


def test_merges_that_are_not_in_training_order_are_refused() -> None:
    ids = {token: id for id, token in enumerate([*byte_characters(), "ab", "abc", "bc"])}
    table = merge_table({"vocab": ids, "merges": [["a", "b"], "ab c"]})
    assert table[256], table[257] == ((97, 98, 1), (256, 99, 2))
    for merges in ([["ab", "c"], ["a", "b"]], [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]):
        with pytest.raises(ValueError, match="not in training order"):
            merge_table({"vocab": ids, "merges": merges})
