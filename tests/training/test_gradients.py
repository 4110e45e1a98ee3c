"""Batches divided over simulated processes: their gradients add up to those of one process."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.mapped_file import TokenFile
from ensue.nn import MultiHeadAttention, VariationalDropout, Zoneout
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.nn.dropout import Dropout
from ensue.nn.layer import SequenceLayer
from ensue.nn.recurrent.lstm import LSTM
from ensue.ranks import NUM_SHARDS, ProcessGroup, process_group, shard, sharded_map, use_process_group
from ensue.training.gradients import Gradients
from ensue.training.run import begin_job
from training.tiny import tiny_recipe


class SimulatedGroup(ProcessGroup):
    """One of several processes; `all_reduce` records its argument and returns it."""

    def __init__(self, rank: int, size: int, *, exact: bool) -> None:
        self.rank, self.size, self.exact = rank, size, exact
        self.sent: list[Tensor] = []

    def all_reduce(self, numbers: Tensor) -> Tensor:
        self.sent.append(numbers.clone())
        return numbers


def test_the_gradients_of_processes_add_up_to_those_of_one(text: Path) -> None:
    model = {"kind": "lstm", "d_embedding": 6, "d_model": 8, "dropout": 0.3, "dropout_words": 0.2}
    job = begin_job(tiny_recipe(text, batch_size=6, model=model), None)
    torch.manual_seed(0)
    network = job.build_model()
    batch = job.task.lazy_batch(0, torch.device("cpu"))

    def sent(rank: int, size: int, *, exact: bool) -> Tensor:
        group = SimulatedGroup(rank, size, exact=exact)
        gradients_of_rank = Gradients(network, job.task, seed=3, precision="float32", group=group)
        gradients_of_rank.compute(batch, None, step=0, micro_batches=2)
        gradients = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
        network.zero_grad()
        return torch.cat([gradients, gradients_of_rank.total.view(1)])

    expected, first, second = (sent(rank, size, exact=False) for rank, size in ((0, 1), (0, 2), (1, 2)))
    assert not torch.allclose(first, expected, atol=1e-3)
    torch.testing.assert_close(first + second, expected, rtol=1e-6, atol=1e-6)
    expected, first, second = (sent(rank, size, exact=True) for rank, size in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(first + second, expected)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
@pytest.mark.parametrize("exact", [False, True])
def test_a_process_reads_ids_of_its_rows(kind: str, exact: bool, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = begin_job(tiny_recipe(text, batch_size=16, model={"kind": kind, "d_embedding": 6, "d_model": 8}), None)
    network, read = job.build_model(), list[int]()
    read_rows = TokenFile.read_rows

    def spy(tokens: TokenFile, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        read.extend(starts.tolist())
        return read_rows(tokens, starts, length)

    monkeypatch.setattr(TokenFile, "read_rows", spy)

    def read_by(rank: int, size: int) -> list[int]:
        read.clear()
        batch = job.task.lazy_batch(1, torch.device("cpu"))
        gradients = Gradients(
            network, job.task, seed=3, precision="float32", group=SimulatedGroup(rank, size, exact=exact)
        )
        gradients.compute(batch, None, step=1, micro_batches=2)
        return list(read)

    all_starts = read_by(0, 1)
    by_rank = [read_by(rank, 4) for rank in range(4)]
    assert [len(starts) for starts in by_rank] == [4] * 4
    assert sorted(start for starts in by_rank for start in starts) == sorted(all_starts)


DRAWING: dict[str, SequenceLayer] = {
    "dropout": Dropout(0.4, d_in=6),
    "variational": VariationalDropout(0.4, d_in=6),
    "zoneout": Zoneout(LSTM(6, 6), hidden=0.4, cell=0.3),
    "attention": MultiHeadAttention(6, num_heads=2, dropout=0.4),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DRAWING)
def test_random_numbers_of_a_row_do_not_depend_on_the_slice_of_the_batch(name: str) -> None:
    layer, x = DRAWING[name].train(), torch.randn(5, 4, 6)
    torch.manual_seed(7)
    full, _ = layer(x)
    after = torch.rand(())
    for rows in (slice(0, 2), slice(2, 5)):
        torch.manual_seed(7)
        with drawing_rows(RowSlice(rows, 5)):
            sliced, _ = layer(x[rows])
        torch.testing.assert_close(sliced, full[rows], rtol=1e-5, atol=1e-6)
        assert torch.rand(()) == after


@pytest.mark.parametrize("parts", [1, 3, 6])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_each_row_belongs_to_one_process(size: int, parts: int) -> None:
    gradients = [
        Gradients(
            torch.nn.Linear(1, 1), None, seed=0, precision="float32", group=SimulatedGroup(rank, size, exact=False)
        )  # type: ignore[arg-type]
        for rank in range(size)
    ]
    rows = torch.cat([each.local_rows(6, parts) for each in gradients])
    assert rows.sort().values.tolist() == list(range(6))
    assert all(len(each.local_rows(6, parts)) for each in gradients)


def test_sharded_map_returns_results_in_order() -> None:
    class Three(SimulatedGroup):
        def all_gather(self, results: list[int]) -> list[list[int]]:  # type: ignore[override]
            assert results == [1, 16]
            return [[0, 9], results, [4]]

    assert list(sharded_map(lambda item: item**2, range(5))) == [0, 1, 4, 9, 16]
    with use_process_group(Three(1, 3, exact=False)):
        assert list(sharded_map(lambda item: item**2, range(5))) == [0, 1, 4, 9, 16]
        assert process_group().num_shards == 3
        assert process_group().with_exact_sums(exact=True).num_shards == NUM_SHARDS
    assert [shard(5, index, 3) for index in range(3)] == [slice(0, 1), slice(1, 3), slice(3, 5)]
