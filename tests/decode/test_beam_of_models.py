"""Beam search over models: results are independent of the batch and of padding; scores, ensembles, coverage."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ensue.decode.beam import beam_search
from ensue.decode.generation import Ensemble
from ensue.decode.search import BeamSearch, Hypothesis
from ensue.errors import EnsueError
from ensue.nn import LSTM, AttentionalLayer, MultiHeadCrossAttention, SequenceLayer, Stack, Transformer
from ensue.nn.taps import watch
from ensue.types import Memory, State

SIZE, END, START, D = 12, 1, 0, 8
SEARCH = BeamSearch(4, 3, max_tokens=9)


class Decoder(nn.Module):
    """An embedding, layers that attend to a memory, and logits."""

    vocabulary_size = SIZE

    def __init__(self, layers: SequenceLayer) -> None:
        super().__init__()
        self.embedding, self.layers, self.head = nn.Embedding(SIZE, D), layers, nn.Linear(D, SIZE)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(2.0)  # far from uniform, so that rounding cannot change a choice
        self.eval()

    def init_state(self, batch_size: int, memory: Memory | None) -> State:
        return self.layers.init_state(batch_size, memory)

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        h, state = self.layers(self.embedding(ids), state)
        return self.head(h), state

    def step(self, ids_t: Tensor, state: State) -> tuple[Tensor, State]:
        h, state = self.layers.step(self.embedding(ids_t), state)
        return self.head(h), state


def transformer(seed: int) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(Transformer(D, num_heads=2, num_layers=2, d_memory=D, max_positions=20))


def recurrent(seed: int) -> Decoder:
    torch.manual_seed(seed)
    attention = AttentionalLayer(MultiHeadCrossAttention(D, D))
    return Decoder(Stack([LSTM(d_in=D, d_out=D), attention]))


MODELS = {"transformer": transformer, "recurrent": recurrent}
ATTENTIONS = {"transformer": ["*.cross_attention.weights"], "recurrent": ["layers.layers.1.attention.weights"]}
LENGTHS = [5, 1, 3, 7, 2]


def memory_of(number: int) -> Tensor:
    return torch.randn(LENGTHS[number], D, generator=torch.Generator().manual_seed(100 + number)) * 2


def batch(numbers: list[int]) -> Memory:
    """Return the memories of several sources, padded with large numbers."""
    max_length = max(LENGTHS[number] for number in numbers)
    values = torch.full((len(numbers), max_length, D), 1e4)
    mask = torch.zeros(len(numbers), max_length, dtype=torch.bool)
    for row, number in enumerate(numbers):
        values[row, : LENGTHS[number]], mask[row, : LENGTHS[number]] = memory_of(number), True
    return Memory(values, mask)


def search_model(
    model: nn.Module, numbers: list[int], search: BeamSearch = SEARCH, **demands: list
) -> list[list[Hypothesis]]:
    state = initial_state(model, batch(numbers))
    starts = torch.full((len(numbers),), START)
    return beam_search(model, state, starts, end_id=END, search=search, **demands)


def initial_state(model: nn.Module, memory: Memory) -> State:
    if isinstance(model, Ensemble):
        return tuple(initial_state(member, memory) for member in model.models)
    return model.init_state(len(memory.values), memory)


def assert_same(results: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [result.ids for result in results] == [result.ids for result in expected]
    assert [result.score for result in results] == pytest.approx([result.score for result in expected], abs=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", MODELS)
def test_batch_order_and_padding_change_no_result(name: str) -> None:
    model = MODELS[name](1)
    together = search_model(model, [0, 1, 2, 3, 4])
    assert len({len(result.ids) for results in together for result in results}) > 2, "outputs have few lengths"
    for position, number in enumerate(order := [3, 1, 4, 0, 2]):
        assert_same(search_model(model, order)[position], together[number])
        assert_same(search_model(model, [number])[0], together[number])


@pytest.mark.parametrize("name", MODELS)
def test_the_score_of_a_hypothesis_equals_the_score_of_a_forward_pass(name: str) -> None:
    model = MODELS[name](2)
    for number, hypotheses in enumerate(search_model(model, [0, 1, 2, 3, 4], BeamSearch(4, 4, max_tokens=4))):
        for hypothesis in hypotheses:
            targets = torch.tensor([*hypothesis.ids, END] if hypothesis.is_complete else hypothesis.ids)
            inputs = torch.tensor([[START, *hypothesis.ids]])[:, : len(targets)]
            with torch.no_grad():
                logits, _ = model(inputs, model.init_state(1, batch([number])))
            nats = nn.functional.cross_entropy(logits[0], targets, reduction="sum")
            assert hypothesis.log_probability == pytest.approx(-float(nats), abs=1e-4)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / len(targets))


def test_a_shared_memory_is_reduced_when_inputs_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise rows and texts disagree, and the keys of every row are copied."""
    model, texts = transformer(1), []
    attention = next(module for module in model.modules() if isinstance(module, MultiHeadCrossAttention))
    forward = attention.forward

    def record_texts(x: Tensor, state: State = None, *, mask: Tensor | None = None) -> object:
        texts.append(state.num_texts)
        assert state.repeats == len(x) // state.num_texts
        return forward(x, state, mask=mask)

    monkeypatch.setattr(attention, "forward", record_texts)
    search_model(model, [0, 1, 2, 3, 4], max_tokens=[1, 6, 3, 1, 9])
    assert texts[0] == 5
    assert texts == sorted(texts, reverse=True)
    assert texts[-1] == 1


def test_an_ensemble_has_the_mean_of_probabilities() -> None:
    models = [transformer(5), recurrent(6)]
    (hypotheses,) = search_model(Ensemble(models), [3], BeamSearch(4, 2, max_tokens=5))
    scores, _ = Ensemble(models).step(torch.tensor([START]), initial_state(Ensemble(models), batch([3])))
    assert float(scores.detach().exp().sum()) == pytest.approx(1)
    assert Ensemble.returns_log_probabilities, "so that the search does not compute a softmax again"
    for hypothesis in hypotheses:
        ids = [*hypothesis.ids, END] if hypothesis.is_complete else hypothesis.ids
        total = 0.0
        with torch.no_grad():
            read = torch.tensor([[START, *hypothesis.ids]])
            logits = [model(read, model.init_state(1, batch([3])))[0][0] for model in models]
        for position, id in enumerate(ids):
            total += math.log(np.mean([float(of_model[position].softmax(-1)[id]) for of_model in logits]))
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


def test_an_ensemble_of_different_vocabularies_is_refused() -> None:
    other_model = transformer(1)
    other_model.vocabulary_size = 13
    with pytest.raises(EnsueError, match="expected equal vocabularies, found 12 and 13 symbols"):
        Ensemble([transformer(1), other_model])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", MODELS)
def test_coverage_equals_the_coverage_of_a_forward_pass(name: str) -> None:
    model = MODELS[name](7)
    search = BeamSearch(4, 4, max_tokens=6, coverage_penalty=0.7)
    for number, hypotheses in zip([0, 1, 3], search_model(model, [0, 1, 3], search), strict=True):
        for hypothesis in hypotheses:
            with torch.no_grad(), watch(model, *ATTENTIONS[name]) as weights_of_layers:
                model(torch.tensor([[START, *hypothesis.ids]]), model.init_state(1, batch([number])))
            attention = torch.stack([weights[0].mean(0) for (weights,) in weights_of_layers.values()]).mean(0).sum(0)
            length = len(hypothesis.ids) + hypothesis.is_complete
            expected = hypothesis.log_probability / length + 0.7 * float(attention.clamp(max=1).log().sum())
            assert hypothesis.score == pytest.approx(expected, abs=1e-3)
    assert search_model(model, [0, 1, 3], search) != search_model(model, [0, 1, 3], BeamSearch(4, 4, max_tokens=6))


def test_coverage_without_attention_is_refused() -> None:
    model = Decoder(LSTM(d_in=D, d_out=D))
    with pytest.raises(EnsueError, match="needs a model that attends to a source"):
        beam_search(model, None, torch.tensor([START]), end_id=END, search=BeamSearch(coverage_penalty=1.0))


def test_the_mode_of_the_model_is_restored() -> None:
    model = transformer(1).train()
    search_model(model, [0])
    assert model.training
