"""The decoder in C gives the scores and searches of the model, and torch runs what it does not support."""

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
        compiled = compile_decoder(model, *sources)
        assert compiled is not None
        return model.begin(*sources), *compiled


@pytest.mark.sampled(1)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", some_slow(["sinusoidal", "learned"], "learned"))
@pytest.mark.parametrize("activation", some_slow(["relu", "gelu", "silu"], "gelu"))
@pytest.mark.parametrize(
    ("d", "heads", "dtype"), [(24, 3, torch.float64), (64, 4, torch.float64), (64, 2, torch.float32)]
)
def test_scores_equal_those_of_the_model(norm, positions, activation, d, heads, dtype):
    model = model_of(d, heads, dtype, norm=norm, positions=positions, activation=activation)
    state, decoder, written = both(model)
    assert decoder._packed.encoder is not None
    ids = torch.randint(SIZE, (4,))
    for _ in range(POSITIONS):
        with torch.inference_mode():
            expected, state = model.step(ids, state)
        scores, written = decoder.step(ids, written)
        expected = expected.log_softmax(-1)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4 if dtype is torch.float32 else 1e-11)
        rows = torch.randint(len(ids), (int(torch.randint(1, 30, ())),))
        state, written = select_rows((state, written), rows)
        ids = torch.randint(SIZE, (len(rows),))


def test_the_memory_of_an_unsupported_encoder_is_read():
    """There are one or several texts, with and without padding."""
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
def test_scores_in_int8_are_close_to_those_of_the_model():
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


def test_steps_do_not_change_earlier_states():
    _, decoder, written = both(model_of())
    ids = torch.tensor([1, 2, 3, 4])
    _, before = decoder.step(ids, written)
    slots = before.slots.clone()
    first, after = decoder.step(ids, before)
    first = first.clone()  # the next call overwrites it
    decoder.step(ids + 7, before)
    decoder.step(ids + 9, after)
    assert torch.equal(before.slots, slots)
    assert torch.equal(decoder.step(ids, before)[0], first)


@pytest.mark.slow
def test_many_rows_and_positions_need_more_than_one_chunk():
    model = model_of(dtype=torch.float32)
    state, decoder, written = both(model)
    state, written = select_rows((state, written), torch.arange(4).repeat_interleave(40))
    for position in range(70):  # sinusoidal positions have no limit
        ids = torch.randint(SIZE, (160,))
        with torch.inference_mode():
            expected, state = model.step(ids, state)
        scores, written = decoder.step(ids, written)
        expected = expected.log_softmax(-1)
        if position % 23 == 0:
            torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)
    assert len(decoder._chunks) == -(-160 * 70 // 256)


def test_scores_do_not_depend_on_the_number_of_threads():
    model = model_of()
    _, decoder, written = both(model)
    written = select_rows(written, torch.arange(4).repeat(5))
    ids = torch.arange(20)
    with use_threads(1):
        expected = decoder.step(ids, written)[0].clone()
    with use_threads(3):
        scores, _ = decoder.step(ids, written)
    torch.testing.assert_close(scores, expected)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("positions", [["sinusoidal"], ["sinusoidal", "learned"], ["rotary", "learned"]])
def test_searches_equal_those_of_the_model(positions):
    models = [model_of(seed=seed, positions=name) for seed, name in enumerate(positions)]
    torch.manual_seed(5)
    sources = some_sources()
    with torch.inference_mode():
        states = [model.begin(*sources) for model in models]
    pairs = zip(models, states, strict=True)
    compiled = [compile_decoder(model, *sources) or (model, state) for model, state in pairs]
    search = BeamSearch(width=4, n_best=3, max_tokens=6)
    starts = torch.zeros(4, dtype=torch.int64)
    if len(models) > 1:
        plain = Ensemble(models), tuple(states)
        fast = Ensemble([stepper for stepper, _ in compiled]), tuple(state for _, state in compiled)
    else:
        plain, fast = (models[0], states[0]), compiled[0]
    expected, hypotheses = (beam_search(*decoder, starts, end_id=END, search=search) for decoder in (plain, fast))
    for results, expected_results in zip(hypotheses, expected, strict=True):
        assert [hypothesis.ids for hypothesis in results] == [hypothesis.ids for hypothesis in expected_results]
        assert [hypothesis.score for hypothesis in results] == pytest.approx(
            [hypothesis.score for hypothesis in expected_results], abs=1e-10
        )


def test_changed_weights_are_packed_again():
    """Torch's address and version of the weights do not change. `CachedWeights.used` skips the comparison."""
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


def replace_linear(model):
    model.decoder.layers[2].feedforward[0] = Doubled(24, 29, dtype=torch.float64)


def add_hook(model):
    model.decoder.layers[2].attention.register_forward_hook(lambda *_: None)


@pytest.mark.parametrize("change", [replace_linear, add_hook])
def test_torch_runs_models_with_other_modules_or_hooks(change):
    model = model_of()
    change(model)
    assert compile_decoder(model, *some_sources()) is None


def test_torch_runs_models_with_hooks_also_while_weights_are_cached() -> None:
    model = model_of()
    with CachedWeights().used(), torch.inference_mode():
        both(model)
        add_hook(model)
        assert compile_decoder(model, *some_sources()) is None


def test_torch_runs_unsupported_models():
    table = TokenEmbedding(SIZE, 12)
    for model in (
        model_of(positions="rotary", d=24),
        model_of(head=TiedSoftmaxHead(24, table)),  # with a projection
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


def test_options_has_each_option_of_a_block_with_another_value() -> None:
    changed = {field.name for field in fields(BlockOptions) if field.default != OPTIONS[field.name]}
    assert changed | {"is_causal"} == OPTIONS.keys()  # encoders are not causal by default


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"rotary", "farthest"}))
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_each_option_of_blocks_is_supported_or_run_by_torch(name: str, side: str) -> None:
    """Supported options give the scores of torch."""
    options = {"positions": "sinusoidal", "num_layers": 2, "num_heads": 2, name: OPTIONS[name]}
    model = model_of()
    try:
        if side == "encoder":
            model.encoder = Transformer(12, **{"is_causal": False, **options})
        else:
            model.decoder = Transformer(24, d_memory=12, **options)
    except ValueError:
        return  # the option is invalid with another default
    model, sources = model.double().eval(), some_sources()
    with torch.inference_mode():
        if compiled := compile_decoder(model, *sources):
            scores, _ = compiled[0].step(torch.arange(4), compiled[1])
            expected, _ = model.step(torch.arange(4), model.begin(*sources))
            torch.testing.assert_close(scores, expected.log_softmax(-1), rtol=0, atol=1e-11)


def test_torch_runs_sources_with_padding_on_the_left() -> None:
    model, (ids, mask) = model_of(), some_sources()
    assert compile_decoder(model, ids, mask.flip(1)) is None
    assert compile_decoder(model, ids[..., None], mask) is None


def test_positions_beyond_the_learned_ones_are_refused():
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
def test_ids_and_states_out_of_range_are_refused(change, error):
    _, decoder, written = both(model_of())
    with pytest.raises((ValueError, TypeError), match=error):
        decoder.step(*change(torch.arange(4), written))
