"""The decoder in C is the decoder: the same scores, the same searches; and what it does not know it leaves alone."""

from dataclasses import fields

import pytest
import torch
from torch import nn

from ensue.decode.beam import beam_search
from ensue.decode.generation import Ensemble
from ensue.decode.search import BeamSearch
from ensue.engine import CachedWeights
from ensue.errors import ContextError
from ensue.models.compiled_decoder import compile_decoder
from ensue.models.encoder_decoder import EncoderDecoder
from ensue.models.modules import put_in_precision
from ensue.nn import SoftmaxHead, TiedSoftmaxHead, TokenEmbedding, Transformer, watch
from ensue.nn.attention.blocks import BlockOptions
from ensue.training.device import use_threads
from ensue.types import select_rows
from training.tiny import needs_int8, some_slow

SIZE, POSITIONS, END = 37, 9, 1


def model_of(d=24, heads=3, dtype=torch.float64, head=None, seed=0, reads="in C", **options) -> EncoderDecoder:
    torch.manual_seed(seed)
    table = TokenEmbedding(SIZE, d, scale=d**0.5)
    options = {"positions": "sinusoidal", "activation": "relu", "max_positions": POSITIONS, **options}
    decoder = Transformer(d, num_heads=heads, num_layers=2, d_feedforward=29, d_memory=12, **options)
    options |= {} if reads == "in C" else {"positions": "rotary"}
    encoder = Transformer(12, num_heads=2, num_layers=2, is_causal=False, **options)
    model = EncoderDecoder(
        TokenEmbedding(SIZE, 12, scale=1.5), encoder, table, decoder, head or TiedSoftmaxHead(d, table)
    )
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.to(dtype).eval()


def some_sources():
    return torch.randint(SIZE, (4, 7)), torch.arange(7) < torch.tensor([7, 3, 1, 5])[:, None]


def both(model):
    sources = some_sources()
    with torch.inference_mode():
        found = compile_decoder(model, *sources)
        assert found is not None
        return model.begin(*sources), *found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", some_slow(["sinusoidal", "learned"], "learned"))
@pytest.mark.parametrize("activation", some_slow(["relu", "gelu", "silu"], "gelu"))
@pytest.mark.parametrize(
    ("d", "heads", "dtype"), [(24, 3, torch.float64), (64, 4, torch.float64), (64, 2, torch.float32)]
)
def test_it_scores_as_the_model(norm, positions, activation, d, heads, dtype):
    model = model_of(d, heads, dtype, norm=norm, positions=positions, activation=activation)
    state, decoder, written = both(model)
    assert decoder._packed.encoder is not None
    ids = torch.randint(SIZE, (4,))
    for _ in range(POSITIONS):
        with torch.inference_mode():
            expected, state = model.step(ids, state)
        found, written = decoder.step(ids, written)
        expected = expected.log_softmax(-1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 if dtype is torch.float32 else 1e-11)
        rows = torch.randint(len(ids), (int(torch.randint(1, 30, ())),))
        state, written = select_rows((state, written), rows)
        ids = torch.randint(SIZE, (len(rows),))


def test_the_memory_of_another_encoder_is_read():
    """With and without padding, for one text and several."""
    model = model_of(reads="in torch")
    sources, mask = some_sources()
    for arguments in ((sources, mask), (sources[:1],), (sources, None)):
        for encoder in (model, model_of()):
            ids = torch.arange(len(arguments[0]))
            with torch.inference_mode():
                expected = encoder.step(ids, encoder.begin(*arguments))[0].log_softmax(-1)
                decoder, state = compile_decoder(encoder, *arguments)
            assert (decoder._packed.encoder is None) == (encoder is model)
            torch.testing.assert_close(decoder.step(ids, state)[0], expected)


@needs_int8
def test_it_scores_as_the_model_in_int8():
    model, exact = model_of(64, 4, torch.float32), model_of(64, 4, torch.float32)
    assert put_in_precision(model, "int8")
    sources, ids = some_sources(), torch.tensor([1, 2, 3, 4])
    with torch.inference_mode():
        expected = model.step(ids, model.begin(*sources))[0].log_softmax(-1)
        scores, exact_scores = (
            decoder.step(ids, state)[0] for decoder, state in (compile_decoder(one, *sources) for one in (model, exact))
        )
    torch.testing.assert_close(scores, expected, rtol=0, atol=0.02)
    assert (scores - exact_scores).abs().max() > 0.02


def test_a_state_is_a_value():
    _, decoder, written = both(model_of())
    ids = torch.tensor([1, 2, 3, 4])
    _, before = decoder.step(ids, written)
    kept = before.slots.clone()
    first, after = decoder.step(ids, before)
    first = first.clone()  # the next call overwrites it
    decoder.step(ids + 7, before)
    decoder.step(ids + 9, after)
    assert torch.equal(before.slots, kept)
    assert torch.equal(decoder.step(ids, before)[0], first)


@pytest.mark.slow
def test_many_rows_and_positions_take_more_than_one_chunk():
    model = model_of(dtype=torch.float32)
    state, decoder, written = both(model)
    state, written = select_rows((state, written), torch.arange(4).repeat_interleave(40))
    for position in range(70):  # of sinusoids there are as many as are asked for
        ids = torch.randint(SIZE, (160,))
        with torch.inference_mode():
            expected, state = model.step(ids, state)
        found, written = decoder.step(ids, written)
        expected = expected.log_softmax(-1)
        if position % 23 == 0:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert len(decoder._chunks) == -(-160 * 70 // 256)


def test_threads_share_the_rows():
    model = model_of()
    _, decoder, written = both(model)
    written = select_rows(written, torch.arange(4).repeat(5))
    ids = torch.arange(20)
    with use_threads(1):
        expected = decoder.step(ids, written)[0].clone()
    with use_threads(3):
        found, _ = decoder.step(ids, written)
    torch.testing.assert_close(found, expected)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("positions", [["sinusoidal"], ["sinusoidal", "learned"], ["rotary", "learned"]])
def test_a_search_finds_the_same(positions):
    models = [model_of(seed=seed, positions=name) for seed, name in enumerate(positions)]
    torch.manual_seed(5)
    sources = some_sources()
    with torch.inference_mode():
        states = [model.begin(*sources) for model in models]
    ways = zip(models, states, strict=True)
    found = [compile_decoder(model, *sources) or (model, state) for model, state in ways]
    search = BeamSearch(width=4, n_best=3, max_tokens=6)
    starts = torch.zeros(4, dtype=torch.int64)
    if len(models) > 1:
        plain = Ensemble(models), tuple(states)
        fast = Ensemble([stepper for stepper, _ in found]), tuple(begun for _, begun in found)
    else:
        plain, fast = (models[0], states[0]), found[0]
    expected, of_fast = (beam_search(*way, starts, end_id=END, search=search) for way in (plain, fast))
    for mine, theirs in zip(of_fast, expected, strict=True):
        assert [one.ids for one in mine] == [one.ids for one in theirs]
        assert [one.score for one in mine] == pytest.approx([one.score for one in theirs], abs=1e-10)


def test_changed_weights_are_read_again():
    """Also where torch has no sign of a change: address and version stay. Where they are held, nobody looks."""
    model, held = model_of(), CachedWeights()
    with held.used(), torch.inference_mode():
        both(model)
    both(model)
    for weight in model.parameters():
        weight.data.copy_(0.5 * weight)
    ids = torch.arange(4)
    with torch.inference_mode():
        state, decoder, written = both(model)
        expected = model.step(ids, state)[0].log_softmax(-1)
        torch.testing.assert_close(decoder.step(ids, written)[0], expected)
        with held.used():
            _, decoder, written = both(model)
            assert not torch.allclose(decoder.step(ids, written)[0], expected)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def a_part_of_another_type(model):
    model.decoder.layers[2].feedforward[0] = Doubled(24, 29, dtype=torch.float64)


def a_hook(model):
    model.decoder.layers[2].attention.register_forward_hook(lambda *_: None)


@pytest.mark.parametrize("change", [a_part_of_another_type, a_hook])
def test_a_part_that_it_does_not_know_is_left_to_torch(change):
    model = model_of()
    change(model)
    assert compile_decoder(model, *some_sources()) is None


def test_a_hook_runs_also_with_weights_that_are_cached() -> None:
    model = model_of()
    with CachedWeights().used(), torch.inference_mode():
        both(model)
        a_hook(model)
        assert compile_decoder(model, *some_sources()) is None


def test_what_it_does_not_know_is_left_to_torch():
    table = TokenEmbedding(SIZE, 12)
    for model in (
        model_of(positions="rotary", d=24),
        model_of(head=TiedSoftmaxHead(24, table)),  # projects
        model_of(dtype=torch.bfloat16),
        model_of(norm_input=True),
        model_of(activation="gelu-tanh"),
    ):
        assert compile_decoder(model, *some_sources()) is None
    model = model_of(head=SoftmaxHead(24, SIZE))
    assert compile_decoder(model, *some_sources()) is not None
    with watch(model, "decoder.*"):
        assert compile_decoder(model, *some_sources()) is None


OPTIONS = {
    "num_heads": 4, "dropout": 0.1, "is_causal": True, "rotary": True, "rotary_share": 0.5, "rotary_base": 99.0,
    "relative_buckets": 4, "farthest": 2, "neighbors": 2, "d_feedforward": 13, "dropout_attention": 0.2,
    "activation": "silu", "norm_kind": "rms", "norm_epsilon": 0.1, "norm_first": False, "gated": True, "parallel": True,
}  # fmt: skip
"""A value of each option that the blocks of `model_of` do not have; `positions` sets `rotary` and `farthest`."""


def test_each_option_of_a_block_has_another_value() -> None:
    changed = {field.name for field in fields(BlockOptions) if field.default != OPTIONS[field.name]}
    assert changed | {"is_causal"} == OPTIONS.keys()  # encoders are not causal by default


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"rotary", "farthest"}))
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_an_option_of_blocks_is_computed_or_left_to_torch(name: str, side: str) -> None:
    """The scores are those of torch, whichever option of the encoder's or decoder's blocks is not its default."""
    options = {"positions": "sinusoidal", "num_layers": 2, "num_heads": 2, name: OPTIONS[name]}
    model = model_of()
    try:
        if side == "encoder":
            model.encoder = Transformer(12, **{"is_causal": False, **options})
        else:
            model.decoder = Transformer(24, d_memory=12, **options)
    except ValueError:
        return  # excluded together with another option
    model, sources = model.double().eval(), some_sources()
    with torch.inference_mode():
        if compiled := compile_decoder(model, *sources):
            scores, _ = compiled[0].step(torch.arange(4), compiled[1])
            expected, _ = model.step(torch.arange(4), model.begin(*sources))
            torch.testing.assert_close(scores, expected.log_softmax(-1), rtol=0, atol=1e-11)


def test_sources_that_are_padded_on_the_left_are_left_to_torch() -> None:
    model, (ids, mask) = model_of(), some_sources()
    assert compile_decoder(model, ids, mask.flip(1)) is None
    assert compile_decoder(model, ids[..., None], mask) is None


def test_a_position_behind_the_last_that_was_learned_is_refused():
    _, decoder, written = both(model_of(positions="learned"))
    for _ in range(POSITIONS):
        _, written = decoder.step(torch.arange(4), written)
    with pytest.raises(ContextError, match=f"{POSITIONS + 1} positions"):
        decoder.step(torch.arange(4), written)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda ids, state: (ids + SIZE, state), "ids from 0 to 36, found 40"),
        (lambda ids, state: (ids - 1, state), "ids from 0 to 36, found -1"),
        (lambda ids, state: (ids[:2], state), r"ids is expected as \(4,\), found \(2,\)"),
        (lambda ids, state: (ids, state._replace(texts=state.texts + 1)), "texts from 0 to 3, found 4"),
        (lambda ids, state: (ids, state._replace(slots=torch.full((4, 1), 9))), "slots from 0 to -1, found 9"),
        (lambda ids, state: (ids.int(), state), "ids is expected in torch.int64"),
    ],
)
def test_c_is_given_nothing_that_is_not_there(change, error):
    _, decoder, written = both(model_of())
    with pytest.raises((ValueError, TypeError), match=error):
        decoder.step(*change(torch.arange(4), written))
