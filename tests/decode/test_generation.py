"""A prompt gets the same tokens alone, in a batch and from a naive loop; invalid arguments are refused."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ensue.decode.generation import generate_ids
from ensue.decode.sampling import Sampling
from ensue.engine import executing
from ensue.errors import ContextError, EnsueError
from ensue.models.build_text import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.types import State, hold, select_rows
from layer_tables import layers
from training.tiny import some_slow

CONTEXT = 8
SIZES = {"d_embedding": 12, "d_model": 16, "num_layers": 2}
SPECIFICATIONS = {
    "window": layers(kind="window", size=3, **SIZES),
    "elman": layers(kind="elman", **SIZES),
    "lstm": layers(kind="lstm", dropout=0.5, **SIZES),
    "gru": layers(kind="gru", tied=True, **SIZES),
    "learned": layers(kind="transformer", context=CONTEXT, dropout=0.2, **SIZES),
    "rotary": layers(kind="transformer", context=CONTEXT, positions="rotary", **SIZES),
}
PROMPTS = [[3], [1, 2, 3, 4, 5, 6, 7, 8], [], [9, 9], [4, 0, 4, 0, 4]]
GREEDY = Sampling(temperature=0.0)


def model_of(name: str) -> LanguageModel:
    torch.manual_seed(5)
    model = build_language_model(**SPECIFICATIONS[name], vocabulary_size=10)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # far from uniform, so that rounding cannot change a choice
    return model.eval()


def generated(model: LanguageModel, prompts: list, max_tokens: int = 20, **options) -> np.ndarray:
    columns = list(generate_ids(model, prompts, max_tokens=max_tokens, start_id=0, **options))
    return torch.stack(columns, dim=1).numpy()


def naive_greedy(model: Any, prompt: list[int], max_tokens: int, state: State = None) -> list[int]:
    """Return greedy tokens, reading the full window for each. A full window is halved."""
    window, output = list(prompt) if len(prompt) == model.context else [0, *prompt], []
    for _ in range(max_tokens):
        if model.context is not None and len(window) > model.context:
            window = window[-(model.context // 2) :]
        with torch.no_grad():
            logits, _ = model(torch.tensor([window]), state)
        output.append(int(logits[0, -1].argmax()))
        window = [*window, output[-1]]
    return output


@pytest.mark.parametrize("name", some_slow(SPECIFICATIONS, "learned"))
def test_greedy_in_a_batch_equals_greedy_alone_and_a_naive_loop(name: str) -> None:
    model = model_of(name)
    together = generated(model, PROMPTS, sampling=GREEDY)
    for row, prompt in zip(together, PROMPTS, strict=True):
        assert row.tolist() == generated(model, [prompt], sampling=GREEDY)[0].tolist()
        assert row.tolist() == naive_greedy(model, prompt, 20)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["window", "elman", "lstm", "gru"])
def test_long_ragged_prompts_are_read_in_chunks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(name)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 10, length).tolist() for length in (100, 1, 37, 0)]
    expected = generated(model, prompts, sampling=GREEDY)
    monkeypatch.setattr("ensue.models.language_model.MAX_CHUNK_TOKENS", 28)  # 7 columns
    assert generated(model, prompts, sampling=GREEDY).tolist() == expected.tolist()


def test_the_same_seed_gives_the_same_text() -> None:
    model = model_of("lstm")
    first, same, other = (generated(model, PROMPTS, seed=seed) for seed in (1, 1, 2))
    assert first.tolist() == same.tolist()
    assert first.tolist() != other.tolist()
    assert generated(model, PROMPTS).tolist() != generated(model, PROMPTS).tolist()


def test_the_penalty_counts_prompt_and_output() -> None:
    model = model_of("elman")
    strong = Sampling(temperature=0.0, repetition_penalty=1e6)
    with torch.no_grad():  # all logits positive, so that the penalty divides them
        model.head.bias.fill_(50.0)
    row = generated(model, [[7, 2]], max_tokens=8, sampling=strong)[0].tolist()
    assert sorted(row) == [0, 1, 3, 4, 5, 6, 8, 9]


def test_a_prompt_may_fill_the_context_but_not_more() -> None:
    model = model_of("learned")
    assert len(generated(model, [[1] * CONTEXT], max_tokens=3)[0]) == 3
    with pytest.raises(ContextError, match="the prompt has 9 tokens; this model's context has 8"):
        generate_ids(model, [[1] * (CONTEXT + 1)], max_tokens=3, start_id=0)


def test_zero_tokens_are_allowed_and_negative_numbers_are_refused() -> None:
    model = model_of("lstm")
    assert list(generate_ids(model, [[1]], max_tokens=0, start_id=0)) == []
    with pytest.raises(EnsueError, match="max_tokens is -1"):
        generate_ids(model, [[1]], max_tokens=-1, start_id=0)
    with pytest.raises(EnsueError, match="seed is -1"):
        generate_ids(model, [[1]], max_tokens=1, start_id=0, seed=-1)


def test_training_mode_is_restored_and_inference_mode_is_off_between_tokens() -> None:
    model = model_of("lstm").train()
    for _ in generate_ids(model, [[1]], max_tokens=2, start_id=0):
        assert not torch.is_inference_mode_enabled()
        assert not model.training
    assert model.training


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_weights_that_change_between_tokens_are_read(name: str) -> None:
    model, texts = model_of(name), []
    for is_compiled in (True, False):
        with executing("compiled" if is_compiled else "fold"):
            columns = generate_ids(model, PROMPTS, max_tokens=20, start_id=0, sampling=GREEDY)
            first = [next(columns) for _ in range(4)]
            with torch.no_grad():
                for parameter in model.layers.parameters():
                    parameter.neg_()
            texts.append([*first, *columns])
            model = model_of(name)
    assert all(map(torch.equal, *texts))


def until(row: list[int], end_id: int) -> list[int]:
    """Return a row in which only end symbols follow the first one."""
    end = row.index(end_id) if end_id in row else len(row)
    return row[:end] + [end_id] * (len(row) - end)


def test_generation_ends_when_every_row_has_an_end_symbol() -> None:
    model = model_of("gru")
    endless = generated(model, PROMPTS, max_tokens=60, seed=1)
    end_id = next(id for id in range(10) if (endless == id).any(1).all())
    last = (endless == end_id).argmax(1).max() + 1
    ending = generated(model, PROMPTS, max_tokens=60, seed=1, end_id=end_id)
    assert last < 60
    assert ending.tolist() == [until(row, end_id)[:last] for row in endless.tolist()]


class Remembering(nn.Module):
    """A model with a context of 4 tokens. Its scores depend on the tokens and on a number for each row."""

    context = 4

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(101, 10, generator=torch.Generator().manual_seed(3)))

    def read(self, ids: Tensor, state: State, *, mask: Tensor | None = None) -> tuple[None, State]:
        for column in range(ids.shape[1]):
            new = self.step(ids[:, column], state)[1]
            state = new if mask is None else hold(mask[:, column], new, state)
        return None, state

    def step(self, ids_t: Tensor, state: State) -> tuple[Tensor, State]:
        memory, number, length = state
        assert length.max() < self.context
        number = (number * 7 + ids_t + 1) % 101
        return self.table[(memory + number) % 101], (memory, number, length + 1)

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        scores, state = self.step(ids[:, -1], self.read(ids[:, :-1], state)[1])
        return scores.unsqueeze(1), state


def test_a_window_that_is_read_again_uses_the_memory() -> None:
    model, memory = Remembering(), torch.tensor([20, 71, 3])
    prompts = [[1, 2, 3], [4], [5, 6, 7, 8]]
    start = (memory, torch.zeros_like(memory), torch.zeros_like(memory))
    together = generated(model, prompts, max_tokens=12, sampling=GREEDY, state=start)
    alone = [select_rows(start, torch.tensor([row])) for row in range(3)]
    assert together.tolist() == [naive_greedy(model, *each) for each in zip(prompts, [12] * 3, alone, strict=True)]


def test_prompts_are_read_from_a_given_state() -> None:
    model, before = model_of("lstm"), torch.tensor([[1, 2], [3, 4]])
    with torch.no_grad():
        _, state = model(before)
        ids = generated(model, [[5, 6], [7]], sampling=GREEDY, state=state)
        alone = [select_rows(state, torch.tensor([row])) for row in range(2)]
    assert ids.tolist() == [naive_greedy(model, [5, 6], 20, alone[0]), naive_greedy(model, [7], 20, alone[1])]
