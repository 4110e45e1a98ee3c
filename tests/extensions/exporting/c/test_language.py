"""Language models as C have the nats, tokens and samples of ensue for any text in any pieces."""

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ensue.errors import ContextError
from ensue.models.language_model import LanguageModel
from ensue.nn import Recurrent, SoftmaxHead, TokenEmbedding
from ensue.tasks.language_modeling.pipeline import LanguagePipeline
from ensue.text.tokenizers import train_tokenizer
from extensions.exporting.c import carried as runs
from extensions.exporting.c.models import KINDS, MIXED, SAMPLINGS, TRANSFORMER, pipeline
from extensions.exporting.c.printing import files_of
from language_pipelines import TEXT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not runs.COMPILERS, reason="neither gcc nor clang is installed")]
SPELLED = st.text(st.sampled_from("ab<unk>'’-.,31 \n\té“”¿\u0663\U0001f600\u2028"), max_size=60)


def made(name: str) -> LanguagePipeline:
    return pipeline("words", **TRANSFORMER) if name == "transformer" else pipeline(name)


@pytest.fixture(scope="module", params=[*KINDS, "bpe", "transformer"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LanguagePipeline, runs.Carried]:
    model, name = made(request.param), request.param
    return model, runs.Carried(model, tmp_path_factory.mktemp(name), name)


def check_scores(model: LanguagePipeline, carried: runs.Carried, text: str, *pieces: bytes) -> None:
    tokens = carried.read(*pieces)
    assert [token.id for token in tokens] == model.tokenizer.encode(text).tolist()
    nats = [score.nats for score in model.score(text)]
    np.testing.assert_allclose([token.nats for token in tokens], nats, rtol=1e-5, atol=1e-5)


def test_a_text_has_the_tokens_and_the_nats_of_ensue(both: tuple[LanguagePipeline, runs.Carried]) -> None:
    check_scores(*both, MIXED * 5, (MIXED * 5).encode())
    check_scores(*both, "", b"")


@given(text=SPELLED | st.text(max_size=30), cuts=st.lists(st.integers(0, 99), max_size=8))
@settings(max_examples=50, deadline=None)
def test_results_do_not_depend_on_how_the_bytes_are_divided(
    both: tuple[LanguagePipeline, runs.Carried], text: str, cuts: list[int]
) -> None:
    content = text.encode()
    pieces = runs.cut(content, cuts)
    check_scores(*both, text, *pieces)
    if both[1].name != "bytes":
        for token in both[1].read(*pieces):
            shown = content[token.begin : token.end]
            assert token.id == 0 or token.text == shown or (token.text, shown) == (b"<eos>", b"\n")


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from([b"\xe2\x82", b"\xac", b"\xf0\x9f", b"\xed\xa0", b"a", b"\xc0"])).map(b"".join)
)
@settings(max_examples=50, deadline=None)
def test_invalid_utf8_is_replaced_as_in_python(both: tuple[LanguagePipeline, runs.Carried], text: bytes) -> None:
    tokens = both[1].read(*(bytes([byte]) for byte in text))
    assert [token.id for token in tokens] == both[0].tokenizer.encode(text.decode("utf-8", "replace")).tolist()
    assert all(0 <= token.begin <= token.end <= len(text) for token in tokens)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_a_seed_draws_the_samples_of_ensue(
    both: tuple[LanguagePipeline, runs.Carried], sampling: dict[str, Any]
) -> None:
    model, carried = both
    count = 150 if model.model.context is None else 30
    for prompt, seed in (("", 0), ("The sea", 5), ('She said: "', (1 << 63) - 1)):
        expected = "".join(model.generate(prompt, max_tokens=count, seed=seed, **sampling))
        assert carried.written(prompt, count, seed, **sampling).decode("utf-8", "replace") == expected


def test_a_copied_state_continues_independently(both: tuple[LanguagePipeline, runs.Carried]) -> None:
    _, carried = both
    text = MIXED.encode()
    for place in range(0, len(text), 29):
        state = carried.begun()
        before = list(carried.feed(state, text[:place]))
        loaded = ctypes.create_string_buffer(state.raw, len(state))
        list(carried.feed(state, b"something else"))
        assert carried.call("check", carried.model, loaded) == runs.OK
        assert before + [t for piece in (text[place:], None) for t in carried.feed(loaded, piece)] == carried.read(text)


def test_invalid_arguments_and_files_give_a_negative_code(
    both: tuple[LanguagePipeline, runs.Carried], tmp_path: Path
) -> None:
    _, carried = both
    content = Path(carried.path.decode()).read_bytes()
    other = files_of(pipeline("bytes", d_model=16), "other")["other.weights"]
    flipped = bytearray(content)
    flipped[len(content) // 3] ^= 1
    for wrong in (b"", content[:-1], content[: len(content) // 2], content + b"\0", bytes(flipped), other):
        (tmp_path / "wrong").write_bytes(wrong)
        probe = ctypes.c_void_p()
        assert carried.call("open", ctypes.byref(probe), str(tmp_path / "wrong").encode()) == runs.DAMAGED
        assert probe.value is None
    assert carried.call("open", ctypes.byref(ctypes.c_void_p()), str(tmp_path / "none").encode()) == runs.NO_FILE
    assert carried.call("open", ctypes.byref(ctypes.c_void_p()), str(tmp_path).encode()) == runs.NO_FILE
    assert carried.call("open", ctypes.byref(ctypes.c_void_p()), None) == runs.ARGUMENT
    state, token = carried.begun(), runs.CToken()
    assert carried.call("check", carried.model, ctypes.create_string_buffer(len(state))) == runs.BAD_STATE
    used = ctypes.c_size_t()
    arguments = (carried.model, state, b"a", carried.size(1), ctypes.byref(used), ctypes.byref(token))
    assert carried.call("feed", *arguments, carried.size(31)) == runs.ARGUMENT
    for bad in ({"temperature": -1.0}, {"top_p": 1.5}, {"min_p": -0.1}, {"temperature": float("nan")}):
        assert (
            carried.call("next", carried.model, state, ctypes.byref(runs.CSampling(**bad)), ctypes.byref(token))
            == runs.ARGUMENT
        )
    assert len({carried.call("message", code) for code in range(-6, 0)}) == 6


def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    model = pipeline("characters")
    with torch.no_grad():
        model.model.head.bias[2] = torch.nan
    carried = runs.Carried(model, tmp_path, "nan")
    token = runs.CToken()
    assert carried.call("next", carried.model, carried.begun(), None, ctypes.byref(token)) == runs.NUMBERS_FAIL


@pytest.mark.parametrize(("number", "kind"), list(enumerate([*KINDS, "bpe", "transformer"])))
def test_examples_print_like_the_command_line_without_sanitizer_errors(number: int, kind: str, tmp_path: Path) -> None:
    model, embed = made(kind), kind in ("bytes", "words")
    files = files_of(model, "sea", embed=embed)
    example = runs.Example(files, tmp_path, runs.COMPILERS[number % len(runs.COMPILERS)])
    lines = example(MIXED.encode()).decode().split("\n")[:-1]
    for line, score in zip(lines, model.score(MIXED), strict=True):
        nats, *texts = line.split("\t")
        assert float(nats) == pytest.approx(max(score.nats, 0), abs=2e-4)
        wanted = [score.symbol, *([] if score.text is None else [score.text])]
        assert texts == [json.dumps(text, ensure_ascii=False)[1:-1] for text in wanted]
    expected = "The sea" + "".join(model.generate("The sea", max_tokens=100, seed=4, temperature=0.8)) + "\n"
    assert example(b"The sea", "--generate", "100", "4", "0.8").decode("utf-8", "replace") == expected
    (tmp_path / "elsewhere").mkdir()
    for command in ([str(tmp_path / "sea")], ["../sea"], ["../sea", "--weights", "../sea.weights"]):
        completed = subprocess.run(
            command, cwd=tmp_path / "elsewhere", input=b"The sea", capture_output=True, check=True
        )
        assert completed.stdout == example(b"The sea")
    if not embed:
        assert example(b"", "--weights", "none", code=2) == b"sea: none: the file of weights cannot be read\n"
    for numbers in (["1e3"], ["5", "x"], ["5", "1", "0,8"], ["5", "1", "-1"], ["5", "1", "nan"]):
        assert example(b"", "--generate", *numbers, code=2).startswith(b"usage: sea ")
    for text in runs.ODD_TEXTS:
        example(text)


@pytest.mark.parametrize("compiler", runs.COMPILERS)
def test_processors_with_half_precision_evaluate_floats_as_floats(compiler: str, tmp_path: Path) -> None:
    """For them gcc in its own dialect sets FLT_EVAL_METHOD to 16, which must not be mistaken for wider floats."""
    model = pipeline("bytes")
    folder = runs.put(files_of(model, "sea"), tmp_path)
    options = ["-std=gnu11", "-march=sapphirerapids", "-shared", "-fPIC"]
    runs.compiled(folder, "-o", "sea.so", "sea.c", compiler=compiler, options=options)


class Leaky(Recurrent):
    """A user-defined cell: a leaky sum with a gate, and an initial state other than 0."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.into, self.gate = torch.nn.Linear(d_in, d_out), torch.nn.Linear(d_in + d_out, d_out)

    def init_state(self, batch_size: int, memory: Any = None) -> Tensor:
        return torch.full((batch_size, self.d_out), 0.25)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        h = self.init_state(len(x_t)) if state is None else state
        gate = torch.sigmoid(self.gate(torch.cat((x_t, h), dim=-1)))
        h = gate * h + (1 - gate) * torch.sin(self.into(x_t))
        return h * h.abs().sum(1, keepdim=True), h


def test_a_user_defined_cell_and_tied_embeddings_are_exported(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("characters", [TEXT])
    embedding = TokenEmbedding(tokenizer.vocabulary_size, 6, scale=1.5)
    torch.manual_seed(0)
    model = LanguageModel(embedding, Leaky(6, 10), SoftmaxHead(10, tokenizer.vocabulary_size))
    torch.nn.init.normal_(model.head.weight)
    guest = LanguagePipeline(model, tokenizer)
    check_scores(guest, runs.Carried(guest, tmp_path, "guest"), TEXT, TEXT.encode())
    tied = pipeline("characters", tied=True)
    check_scores(tied, runs.Carried(tied, tmp_path / "tied", "tied"), TEXT, TEXT.encode())


TABLES: list[dict[str, Any]] = [
    {"positions": "learned", "norm": "post", "activation": "relu", "context": 8},
    {"positions": "sinusoidal", "tied": True, "activation": "gelu-tanh", "context": 7, "d_embedding": 12},
    {"gated": True, "activation": "silu", "parallel": True, "rotary_share": 0.5, "norm_kind": "rms", "context": 23},
    {"norm_first": False, "norm_input": True, "context": 1, "num_layers": 1},
]


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_windows_of_a_transformer_are_those_of_ensue(table: dict[str, Any], tmp_path: Path) -> None:
    """A prompt may be as long as a window, and a longer prompt is refused."""
    model = pipeline("characters", **{**TRANSFORMER, **table})
    carried = runs.Carried(model, tmp_path, "sea")
    check_scores(model, carried, TEXT, TEXT.encode())
    context: Any = model.model.context
    for length in {0, 1, context - 1, context}:
        expected = "".join(model.generate(TEXT[:length], max_tokens=3 * context + 1, seed=length))
        assert carried.written(TEXT[:length], 3 * context + 1, length).decode() == expected
    state, token = carried.begun(), runs.CToken()
    list(carried.feed(state, TEXT[: context + 1].encode()))
    assert carried.call("next", carried.model, state, None, ctypes.byref(token)) == runs.TOO_LONG
    with pytest.raises(ContextError):
        next(model.generate(TEXT[: context + 1]))
