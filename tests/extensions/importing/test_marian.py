"""Translators of Marian: pieces, logits and searches are those of transformers; damaged files are refused."""

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

import ensue
from ensue.errors import DataError
from ensue.extensions.importing.importing import import_run
from ensue.extensions.importing.marian import _read_tokenizer

from .published import odd_texts

D, MARKS = 16, "\u0301\u0308\u0323"
PIECES = {"source": ["▁", "▁a", "b", "c", "ab"], "target": ["▁", "▁x", "y", "北京", "c"]}


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def field(number: int, value: int | float | bytes) -> bytes:
    """Return a field of a message of protocol buffers."""
    if isinstance(value, bytes):
        return varint(number * 8 + 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number * 8 + 5) + struct.pack("<f", value)
    return varint(number * 8) + varint(value)


def spm(pieces: list[str], *, kind: int = 1, normal: int = 1, blank: int = 1) -> bytes:
    """Return a file of SentencePiece: the unknown piece, two control pieces, and these pieces."""
    first = [field(1, field(1, b"<unk>") + field(3, 2))]
    first += [field(1, field(1, name) + field(3, 3)) for name in (b"<s>", b"</s>")]
    known = [field(1, field(1, p.encode()) + field(2, -1.0 - n) + field(3, normal)) for n, p in enumerate(pieces)]
    return b"".join([*first, *known, field(2, field(3, kind)), field(3, field(1, b"identity") + field(3, blank))])


def vocabulary(*sides: list[str]) -> dict[str, int]:
    symbols = ["</s>", "<unk>", *dict.fromkeys(piece for side in sides for piece in side), ">>fra<<", "<pad>"]
    return {symbol: id for id, symbol in enumerate(symbols)}


def configuration(ids: dict[str, int], **keys: Any) -> dict[str, Any]:
    sizes = {"d_model": D, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20}  # fmt: skip
    last = {"pad_token_id": ids["<pad>"], "decoder_start_token_id": ids["<pad>"], "eos_token_id": 0}
    more = {"activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 100}
    return {"vocab_size": len(ids), **sizes, **last, **more, **keys}


def test_a_file_of_sentencepiece_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    content, path, symbols = spm(PIECES["source"]), tmp_path / "source.spm", [*vocabulary(PIECES["source"])]
    path.write_bytes(content)
    coder = _read_tokenizer(path, symbols)
    assert [symbols[id] for id in coder.encode(" ab <unk>北")] == ["▁a", "b", "▁", "<unk>"]
    assert coder.decode(coder.encode(">>fra<< abc").tolist()) == ">>fra<< abc"
    for end in range(0, len(content) - 1, 3):
        path.write_bytes(content[:end])
        with pytest.raises(DataError, match="unsupported tokenizer: truncated or damaged"):
            _read_tokenizer(path, symbols)


@pytest.mark.parametrize(
    ("keys", "message"),
    [({"kind": 2}, "unigram"), ({"normal": 6}, "byte"), ({"normal": 4}, "user"), ({"blank": 0}, "a dummy prefix")],
)
def test_other_kinds_of_pieces_are_refused(tmp_path: Path, keys: dict[str, int], message: str) -> None:
    (tmp_path / "source.spm").write_bytes(spm(PIECES["source"], **keys))
    with pytest.raises(DataError, match=message):
        _read_tokenizer(tmp_path / "source.spm", ["<unk>"])


STEMS = [a + b for a in "bdfgklmnprst" for b in "aeiou"]


def corpus(extra: str, seed: str, count: int) -> list[str]:
    draw = random.Random(seed)
    words = [["".join(draw.choices(STEMS, k=draw.randint(1, 3))) for _ in range(5)] for _ in range(count)]
    return [" ".join(line) + extra for line in words]


def write_marian(folder: Path, **keys: Any) -> tuple[Any, Any]:
    """Write a small Marian of transformers with random weights into `folder`; return it with its tokenizer."""
    transformers = pytest.importorskip("transformers", reason="pip install ensue[parity]")
    trainer = pytest.importorskip("sentencepiece", reason="pip install ensue[parity]")
    symbols_of_sides = []
    for side, extra in (("source", " é ! ."), ("target", " 北京 ü ?")):
        trainer.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus(extra, side, 500)), model_prefix=str(folder / side), vocab_size=120,
            minloglevel=2,
        )  # fmt: skip
        path = (folder / f"{side}.model").replace(folder / f"{side}.spm")
        read = trainer.SentencePieceProcessor(model_file=str(path))
        symbols_of_sides.append([read.id_to_piece(id) for id in range(3, read.get_piece_size())])
    ids = vocabulary(*symbols_of_sides)
    (folder / "vocab.json").write_text(json.dumps(ids))
    torch.manual_seed(0)
    model = transformers.MarianMTModel(transformers.MarianConfig(**configuration(ids, **keys))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3 * ("positions" not in name))
        model.final_logits_bias.copy_(torch.randn(1, len(ids)))
        model.final_logits_bias[0, 0] += 6
    model.save_pretrained(folder)
    return model, transformers.MarianTokenizer(*(str(folder / n) for n in ("source.spm", "target.spm", "vocab.json")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the model of transformers
@pytest.mark.parametrize("activation", ["swish", "relu"])
@torch.inference_mode()
def test_an_imported_translator_computes_and_searches_like_transformers(tmp_path: Path, activation: str) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    model, tokenizer = write_marian(folder, activation_function=activation)
    assert import_run(folder, tmp_path / "run").notes == []
    pipeline = ensue.load(tmp_path / "run", device="cpu")
    symbols = [*pipeline.coder.target.tokenizer.symbols, "<pad>", "</s>"]
    places = [tokenizer.encoder[symbol] for symbol in symbols]
    texts = [*corpus(" é ! .", "new", 12), "", "a", ">>fra<< bada", "北京 b"]
    marked = {text for text in odd_texts(1000) if any(mark in text for mark in MARKS)}
    for text in {*texts, *odd_texts(1000)} - marked:
        assert [places[id] for id in pipeline.coder.encode([text])[0]] == tokenizer(text)["input_ids"], text
    begin = tokenizer.pad_token_id
    for text in texts:
        read, written = tokenizer(text, return_tensors="pt"), torch.tensor([[begin, 5, 9, 1, 30]])
        expected = model(**read, decoder_input_ids=written).logits[0, :, places].double().log_softmax(-1)
        ours = pipeline.coder.encode([text])[0]
        state = pipeline.model.begin(torch.tensor([ours.tolist()]))
        logits = pipeline.model(torch.tensor([[places.index(id) for id in written[0].tolist()]]), state)[0][0]
        torch.testing.assert_close(logits.double().log_softmax(-1)[:, : len(places)], expected, rtol=0, atol=1e-5)
    for beams in (1, 4):
        outputs = pipeline.with_search(width=beams, max_tokens=25).predict(texts)
        assert sum(output.is_complete for output in outputs) > 8
        for text, output in zip(texts, outputs, strict=True):
            if output.is_complete and text:  # ensue gives an empty text for an empty source
                (answer,) = model.generate(
                    **tokenizer(text, return_tensors="pt"), num_beams=beams, max_new_tokens=26,
                    bad_words_ids=[[begin]], do_sample=False,
                )  # fmt: skip
                assert [places[id] for id in output.ids if id < len(symbols) - 2] == [
                    id for id in answer.tolist() if id not in (begin, 0)
                ]
