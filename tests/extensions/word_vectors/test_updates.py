"""Updates of word vectors in compiled code, in numpy, and as gradients of the loss are equal."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ensue.data.compact_texts import Ragged
from ensue.data.mapped_file import TokenFile
from ensue.extensions.word_vectors import task as updates
from ensue.extensions.word_vectors.examples import (
    Kind,
    NegativeSampling,
    Noise,
    WordContexts,
    WordExamples,
    keep_probabilities,
)
from ensue.extensions.word_vectors.model import CountedVectors, SampledVectors
from ensue.tasks.contract.task import LazyBatch

WORDS, BUCKETS, D, NEGATIVES, WINDOW = 12, 9, 8, 5, 3
RNG = np.random.default_rng(0)
KINDS: list[Kind] = ["cbow", "skip-gram"]


@pytest.fixture(autouse=True)
def reset_random_numbers() -> None:
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


def contexts(*, words: int = 60, across_lines: bool = False) -> WordContexts:
    ids = np.random.default_rng(1).integers(0, WORDS, 150)
    probabilities = keep_probabilities(np.bincount(ids, minlength=WORDS), 0.05)
    tokens = TokenFile(ids)
    return WordContexts(tokens, probabilities, words=words, window=WINDOW, across_lines=across_lines, seed=3)


def sampling(kind: Kind, *, subwords: bool = False) -> NegativeSampling:
    weights = np.append([0.0, 0.0], np.arange(1.0, WORDS - 1))
    starts = np.cumsum([0, *RNG.integers(0, 4, WORDS)])
    rows = Ragged(RNG.integers(WORDS, WORDS + BUCKETS, starts[-1]), starts) if subwords else None
    return NegativeSampling(kind, WINDOW, NEGATIVES, Noise(weights), rows)


def tables(rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.tensor(RNG.normal(size=(count, D)) / 10, dtype=dtype) for count in (rows, WORDS)]


def compiled(plan: NegativeSampling, rows: int, dtype: torch.dtype) -> updates.CompiledSampling:
    if updates.compiled_functions(D, NEGATIVES, dtype) is None:
        pytest.skip("no C compiler")
    return updates.CompiledSampling(plan, words=WORDS, rows=rows, dimension=D, dtype=dtype)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("subwords", [False, True])
def test_compiled_updates_equal_updates_in_numpy(kind: Kind, subwords: bool, dtype: torch.dtype, atol: float) -> None:
    plan, rows = sampling(kind, subwords=subwords), WORDS + BUCKETS * subwords
    ours = tables(rows, dtype)
    plain = [table.clone() for table in ours]
    for step in range(2):
        examples = contexts().examples(step)
        assert examples.rows > 10
        loss = compiled(plan, rows, dtype).update(examples, ours[0], ours[1], 0.1)
        expected = updates.update_by_sampling_in_numpy(plan, examples, plain[0].numpy(), plain[1].numpy(), 0.1)
        assert loss == pytest.approx(expected, rel=1e-6)
    for table, other in zip(ours, plain, strict=True):
        assert float((table - other).abs().max()) < atol


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("subwords", [False, True])
def test_an_update_follows_the_gradient_of_the_loss(kind: Kind, subwords: bool) -> None:
    """For one example. As published, CBOW moves each row of the context by the whole step, not by its share."""
    plan = sampling(kind, subwords=subwords)
    ids = np.array([3, 7], np.int32)
    left, right = np.array([0, 0], np.int32), np.array([2, 2], np.int32)
    examples = WordExamples(range(1), ids, left, right, key=5, num_words=2)
    model = SampledVectors(WORDS, D, ngrams=_ngrams(plan), buckets=BUCKETS).double()
    torch.nn.init.normal_(model.outputs)
    task = updates.SampledTask(contexts(), replace(plan, subwords=None), judged_by="")
    loss, _ = task.loss(model, examples, None)
    loss.total.backward()
    vectors, outputs = model.vectors.detach().clone(), model.outputs.detach().clone()
    assert updates.update_by_sampling_in_numpy(plan, examples, vectors.numpy(), outputs.numpy(), 0.1) == pytest.approx(
        float(loss.total.detach())
    )
    read = plan.rows(7 if kind == "cbow" else 3)
    for table, parameter, scale in ((vectors, model.vectors, len(read)), (outputs, model.outputs, 1)):
        assert parameter.grad is not None
        torch.testing.assert_close(table, parameter.detach() - 0.1 * scale * parameter.grad)


def _ngrams(plan: NegativeSampling) -> Ragged | None:
    return None if plan.subwords is None else Ragged(plan.subwords.values - WORDS, plan.subwords.starts)


def counts(dtype: type = np.float32) -> updates.PairBatch:
    pairs = RNG.integers(2, WORDS, (2, 30)).astype(np.int32)
    return updates.PairBatch(
        pairs[0], pairs[1], RNG.normal(size=30).astype(dtype), RNG.uniform(0.1, 1, 30).astype(dtype)
    )


def test_compiled_updates_of_glove_equal_updates_in_numpy() -> None:
    if updates.compiled_functions(D, 0, torch.float32) is None:
        pytest.skip("no C compiler")
    model, batch = CountedVectors(WORDS, D), counts()
    squares = tuple(map(torch.ones_like, model.tables()))
    ours, plain = ([tensor.clone() for tensor in (*model.tables(), *squares)] for _ in range(2))
    for _ in range(2):
        loss = updates.update_glove(batch.columns(), ours[:4], ours[4:], 0.05)
        numbers = [tensor.numpy() for tensor in plain]
        expected = updates.update_glove_in_numpy(batch.columns(), numbers[:4], numbers[4:], 0.05)
        assert loss == pytest.approx(expected, rel=1e-6)
    for table, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(table, other, rtol=1e-6, atol=1e-6)


def test_a_step_of_glove_follows_the_gradient_of_its_loss() -> None:
    """For one pair, with sums of squares of 1."""
    pairs = np.zeros(0, [("word", "<i4"), ("context", "<i4"), ("count", "<f4")])
    model, batch = CountedVectors(WORDS, D), counts().slice_rows(slice(0, 1))
    task = updates.CountedTask(np.resize(pairs, 1), batch_size=1, largest_count=10, power=0.75, words=2, judged_by="")
    loss, _ = task.loss(model, batch, None)
    loss.total.backward()
    before = [tensor.clone() for tensor in model.tables()]
    updated = task.update(model, LazyBatch.of(batch), None, 0.05)
    assert updated is not None
    assert float(updated[0].total) == pytest.approx(float(loss.total.detach()), rel=1e-5)
    for table, parameter in zip(before, model.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.detach(), table - 0.05 * parameter.grad, rtol=1e-5, atol=1e-6)


def test_several_threads_do_all_the_work() -> None:
    """Threads may write the same row, so a few updates may be lost."""
    plan = sampling("skip-gram")
    sums = []
    for threads in (1, 3):
        torch.manual_seed(0)
        ours = [torch.full((WORDS, D), 0.1), torch.zeros(WORDS, D)]
        torch.set_num_threads(threads)
        try:
            sampler = compiled(plan, WORDS, torch.float32)
            losses = [sampler.update(contexts().examples(step), ours[0], ours[1], 0.01) for step in range(4)]
        finally:
            torch.set_num_threads(1)
        sums.append(sum(losses))
    assert sums[1] == pytest.approx(sums[0], rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.array([2, WORDS], np.int32)}, "ids: expected values from 0 to 11"),
        ({"left": np.array([-1, 0], np.int32)}, "left: expected values"),
        ({"right": np.array([2, 3], np.int32)}, "right: expected values"),
        ({"ids": np.array([2, 3, 4], np.int32)}, "expected as"),
        ({"ids": np.array([2, 3], np.int64)}, "expected in torch.int32"),
        ({"centers": range(3)}, "centers: expected a range"),
        ({"centers": range(0, 2, 2)}, "centers: expected a range"),
    ],
)
def test_examples_of_invalid_shapes_types_or_values_are_refused(change: dict[str, Any], message: str) -> None:
    two = np.array([2, 3], np.int32), np.array([0, 0], np.int32), np.array([2, 2], np.int32)
    examples = replace(WordExamples(range(2), *two, key=1, num_words=2), **change)
    with pytest.raises((ValueError, TypeError), match=message):
        compiled(sampling("cbow"), WORDS, torch.float32).update(examples, *tables(WORDS, torch.float32), 0.1)


def test_tables_contexts_and_noise_of_other_sizes_are_refused() -> None:
    sampler = compiled(sampling("cbow"), WORDS, torch.float32)
    vectors, outputs = tables(WORDS, torch.float32)
    with pytest.raises(ValueError, match="vectors is expected"):
        sampler.update(contexts().examples(0), vectors[1:], outputs, 0.1)
    far = WordExamples(range(9), np.full(9, 2, np.int32), np.zeros(9, np.int32), np.full(9, 9, np.int32), 1, 9)
    with pytest.raises(ValueError, match="wider than 3"):
        sampler.update(far, vectors, outputs, 0.1)
    with pytest.raises(ValueError, match="n-grams: expected"):
        compiled(replace(sampling("cbow"), subwords=Ragged(np.array([99]), np.array([0, 1]))), 21, torch.float32)
    with pytest.raises(ValueError, match="noise: expected 12 words, found 13"):
        compiled(replace(sampling("cbow"), noise=Noise(np.ones(WORDS + 1))), WORDS, torch.float32)


def test_contexts_stay_on_their_line_within_a_window_that_varies() -> None:
    lines = np.array([2, 3, 4, 5, 1, 6, 7, 1, 8, 0, 9])
    probabilities = (np.arange(WORDS) > 1).astype(float)
    for across, line_of in ((False, [0, 0, 0, 0, 1, 1, 2, 2]), (True, [0] * 8)):
        widths = set()
        word_contexts = WordContexts(TokenFile(lines), probabilities, words=11, window=3, across_lines=across, seed=1)
        for step in range(40):
            examples = word_contexts.examples(step)
            assert examples.ids.tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
            assert examples.count == 9
            for i, (left, right) in enumerate(zip(examples.left, examples.right, strict=True)):
                assert len({line_of[j] for j in range(left, right)}) == 1
                widths.add(int(max(i - left, right - 1 - i)))
        assert widths == {1, 2, 3}
        centers, others = examples.pairs()
        assert [(c, o) for c, o in zip(centers.tolist(), others.tolist(), strict=True)] == [
            (i, j) for i in range(8) for j in range(examples.left[i], examples.right[i]) if i != j
        ]


def test_frequent_words_are_subsampled_with_the_published_probabilities() -> None:
    counts = np.array([50, 50, 900, 90, 10])
    probabilities = keep_probabilities(counts, 0.01)
    ratio = 0.01 / 0.9
    assert probabilities[:2].tolist() == [0, 0]
    assert probabilities[2] == pytest.approx(np.sqrt(ratio) + ratio)
    assert probabilities[4] == 1
    assert keep_probabilities(counts, 0).tolist() == [0, 0, 1, 1, 1]
    tokens = TokenFile(np.full(20_000, 2))
    examples = WordContexts(tokens, probabilities, words=20_000, window=2, across_lines=False, seed=0).examples(0)
    assert examples.rows / 20_000 == pytest.approx(probabilities[2], rel=0.05)


def test_noise_is_drawn_in_proportion_to_its_weights() -> None:
    weights = np.array([0.0, 3.0, 0.5, 0.0, 1.0, 5.5])
    drawn = Noise(weights).draw(7, np.arange(200_000))
    shares = np.bincount(drawn, minlength=6) / 200_000
    assert np.abs(shares - weights / weights.sum()).max() < 0.004
    assert shares[[0, 3]].tolist() == [0, 0]
    assert (Noise(weights).draw(8, np.arange(20)) != drawn[:20]).any()
