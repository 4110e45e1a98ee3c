"""A batch that is cut over processes: each of them in turn, in this one, and what they would add up."""

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


class Alone(ProcessGroup):
    """One of several processes that hears nothing of the others."""

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
        company = Alone(rank, size, exact=exact)
        found = Gradients(network, job.task, seed=3, precision="float32", group=company)
        found.compute(batch, None, step=0, micro_batches=2)
        gradients = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
        network.zero_grad()
        return torch.cat([gradients, found.total.view(1)])

    whole, first, second = (sent(rank, size, exact=False) for rank, size in ((0, 1), (0, 2), (1, 2)))
    assert not torch.allclose(first, whole, atol=1e-3)
    torch.testing.assert_close(first + second, whole, rtol=1e-6, atol=1e-6)
    whole, first, second = (sent(rank, size, exact=True) for rank, size in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(first + second, whole)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
@pytest.mark.parametrize("exact", [False, True])
def test_a_process_reads_the_ids_of_its_rows_alone(
    kind: str, exact: bool, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        found = Gradients(network, job.task, seed=3, precision="float32", group=Alone(rank, size, exact=exact))
        found.compute(batch, None, step=1, micro_batches=2)
        return list(read)

    whole = read_by(0, 1)
    by_rank = [read_by(rank, 4) for rank in range(4)]
    assert [len(found) for found in by_rank] == [4] * 4
    assert sorted(start for found in by_rank for start in found) == sorted(whole)


DRAWING: dict[str, SequenceLayer] = {
    "dropout": Dropout(0.4, d_in=6),
    "variational": VariationalDropout(0.4, d_in=6),
    "zoneout": Zoneout(LSTM(6, 6), hidden=0.4, cell=0.3),
    "attention": MultiHeadAttention(6, num_heads=2, dropout=0.4),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DRAWING)
def test_rows_have_the_random_numbers_of_the_whole_batch(name: str) -> None:
    layer, x = DRAWING[name].train(), torch.randn(5, 4, 6)
    torch.manual_seed(7)
    whole, _ = layer(x)
    after = torch.rand(())
    for rows in (slice(0, 2), slice(2, 5)):
        torch.manual_seed(7)
        with drawing_rows(RowSlice(rows, 5)):
            some, _ = layer(x[rows])
        torch.testing.assert_close(some, whole[rows], rtol=1e-5, atol=1e-6)
        assert torch.rand(()) == after


@pytest.mark.parametrize("parts", [1, 3, 6])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_each_row_is_worked_on_once(size: int, parts: int) -> None:
    found = [
        Gradients(torch.nn.Linear(1, 1), None, seed=0, precision="float32", group=Alone(rank, size, exact=False))  # type: ignore[arg-type]
        for rank in range(size)
    ]
    rows = torch.cat([each.local_rows(6, parts) for each in found])
    assert rows.sort().values.tolist() == list(range(6))
    assert all(len(each.local_rows(6, parts)) for each in found)


def test_work_is_spread_and_comes_back_in_order() -> None:
    class Three(Alone):
        def all_gather(self, found: list[int]) -> list[list[int]]:  # type: ignore[override]
            assert found == [1, 16]
            return [[0, 9], found, [4]]

    assert list(sharded_map(lambda item: item**2, range(5))) == [0, 1, 4, 9, 16]
    with use_process_group(Three(1, 3, exact=False)):
        assert list(sharded_map(lambda item: item**2, range(5))) == [0, 1, 4, 9, 16]
        assert process_group().num_shards == 3
        assert process_group().with_exact_sums(exact=True).num_shards == NUM_SHARDS
    assert [shard(5, index, 3) for index in range(3)] == [slice(0, 1), slice(1, 3), slice(3, 5)]
