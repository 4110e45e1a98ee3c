"""Memory of the engine: rows are packed without padding, and a cell saves no more numbers than it needs."""

from typing import Any

import pytest
import torch
from torch import Tensor

from engine.written_steps import D, Written
from ensue.engine import Execution, executing, storage, unroll
from ensue.engine.program import Array, build
from ensue.engine.runner import PlainPasses, Runner, Values
from ensue.engine.schedule import overlays, schedule
from ensue.engine.storage import Packing, Storage, empty_rows
from ensue.engine.trace import trace
from ensue.nn import LSTM, LayerNormLSTM
from ensue.nn.recurrent.lstm import LSTMState

B, T = 4, 3


def test_packed_rows_equal_those_of_loops() -> None:
    """Packing, sorting, and their inverses."""
    lengths = [2, 0, 4, 4, 1, 3]
    mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
    x = torch.randn(6, 5, 3)
    rows = Packing.of(x, mask)
    order = sorted(range(6), key=lambda row: -lengths[row])  # stable
    places = [(row, t) for t in range(5) for row in order if t < lengths[row]]
    packed = torch.stack([x[place] for place in places])
    assert rows.size == sum(lengths)
    assert rows.counts.tolist() == [5, 4, 3, 2]
    assert torch.equal(rows.packed(x), packed)
    assert torch.equal(rows.unpacked(packed), x.masked_fill(~mask.unsqueeze(-1), 0.0))
    assert torch.equal(rows.sorted(x[:, 0]), x[order, 0])
    assert torch.equal(rows.unsorted(rows.sorted(x[:, 0])), x[:, 0])
    expected = torch.stack([x[row, t - 1] for row, t in places if t])
    assert torch.equal(packed[rows.before], expected)


def test_a_batch_without_padding_is_not_reordered() -> None:
    x = torch.randn(4, 3, 2)
    for rows in (Packing.of(x, None), Packing.of(x, torch.ones(4, 3, dtype=torch.bool))):
        packed = rows.packed(x)
        assert torch.equal(packed, torch.cat([x[:, t] for t in range(3)]))
        assert torch.equal(rows.unpacked(packed), x)
        assert torch.equal(packed[rows.before], packed[:8])
        assert rows.sorted(x) is x


class TestMemory:
    """An LSTM with d units needs 4 d numbers a position for the gates, d for h and d for c."""

    N, d = B * T, 8

    def arrays(self, monkeypatch: pytest.MonkeyPatch, *, trains: bool) -> dict[str, dict[Array, Storage]]:
        """Return the arrays that each pass runs on."""
        arrays_of_pass: dict[str, dict[Array, Storage]] = {}
        run = PlainPasses.run

        def spy(plain: PlainPasses, name: str, arrays: dict[Array, Storage], *args: Any, **kwargs: Any) -> None:
            arrays_of_pass[name] = dict(arrays)
            run(plain, name, arrays, *args, **kwargs)

        monkeypatch.setattr(PlainPasses, "run", spy)
        layer = LSTM(3, self.d)
        with torch.set_grad_enabled(trains), executing("plain"):
            results = unroll(layer, torch.randn(B, T, 3), layer.init_state(B), None)
            assert results is not None
            if trains:
                (results[0].sum() + results[1].c.sum()).backward()
        return arrays_of_pass

    def numbers(self, arrays: dict[Array, Storage]) -> int:
        """Return how many numbers a position takes in arrays of all positions. An array inside another takes none."""
        tensors = [storage.tensor for array, storage in arrays.items() if len(storage.tensor) == self.N]
        num_bytes = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() // 4 for tensor in tensors}
        return sum(num_bytes.values()) // self.N

    def test_training_saves_gates_h_and_c_and_backward_adds_errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        arrays = self.arrays(monkeypatch, trains=True)
        x, error = 3, self.d
        assert self.numbers(arrays["forward"]) == 4 * self.d + 2 * self.d + x
        assert self.numbers(arrays["backward"]) == 4 * self.d + 2 * self.d + x + error

    def test_inference_stores_outputs_and_products_of_x(self, monkeypatch: pytest.MonkeyPatch) -> None:
        arrays = self.arrays(monkeypatch, trains=False)
        assert arrays.keys() == {"inference"}
        assert self.numbers(arrays["inference"]) == 4 * self.d + self.d + 3

    def test_layer_norm_saves_whole_rows_and_errors_that_are_only_summed_need_no_array(self) -> None:
        d = self.d
        program = build(trace(LayerNormLSTM(3, d)))
        assert sorted(array.width for array in program.saved) == [1] * 6 + [4 * d] * 2
        arrays = schedule(program.backward).arrays
        assert {array.width for array in arrays if array.name == "work"} == {d}

    def test_the_saved_arrays_and_outputs_are_6_d_numbers(self) -> None:
        traced = trace(LSTM(3, self.d))
        program = build(traced)
        runner = Runner(traced, program, PlainPasses(program), torch.float64)
        layer = LSTM(3, self.d)
        tensors = [torch.zeros(self.N, 3)]
        tensors += [torch.zeros(B, self.d)] * 2 + [layer.bias.view(1, -1)] * len(traced.vectors)
        shapes = ((3, 4 * self.d), (self.d, 4 * self.d))
        matrices = [torch.zeros(*shapes[place]) for place in range(len(traced.matrices))]
        values = Values.of([tensor.detach() for tensor in (*tensors, *matrices)], traced)
        rows = Packing.of(torch.zeros(B, T, 3), None)
        output, _, saved = runner.forward(values, rows, save=True)
        assert self.numbers(saved) + output.numel() // self.N == 6 * self.d
        assert runner.forward(values, rows, save=False)[2] == {}


def test_a_value_is_not_written_over_what_its_loop_reads_at_other_features() -> None:
    """tanh of a feature would overwrite the input of σ of the next feature."""

    def write(p: Written, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = x @ p.W + a @ p.W
        return a, torch.cat((b[:, :1], torch.tanh(z[:, 1:]) * torch.sigmoid(z[:, :-1].detach())), 1), b

    program = build(trace(Written(write)))
    assert [array.width for array in program.saved] == [D - 1, D - 1]
    assert not set(program.saved) & overlays(program).keys()


def test_a_whole_weight_is_not_sliced() -> None:
    """Autograd would fill zeros, copy the gradient into them, and copy again to add them up."""
    layer, names = LSTM(3, 8), set()
    results = unroll(layer, torch.randn(B, T, 3), layer.init_state(B), None)
    assert results is not None
    nodes = [results[0].grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            names.add(node.name())
            nodes.extend(before for before, _ in node.next_functions)
    assert "TBackward0" in names
    assert "SliceBackward0" not in names


class TestEmptyRows:
    """Memory for arrays: rows that would share lines of a processor's cache are moved apart."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    @pytest.mark.parametrize("shape", [(0, 16), (3, 16), (3, 1024)])
    def test_rows_can_be_written(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        rows = empty_rows(torch.ones(1, dtype=dtype), *shape)
        assert (rows.shape, rows.dtype, rows.stride(1)) == (shape, dtype, 1)
        rows.fill_(1.5)
        assert float(rows.double().sum()) == 1.5 * shape[0] * shape[1]

    def test_too_many_rows_raise_torchs_error(self) -> None:
        """Training catches that error and makes batches smaller."""
        with pytest.raises(RuntimeError, match="allocate memory"):
            empty_rows(torch.zeros(1), 1 << 40, 1024)

    @pytest.mark.parametrize(("width", "ld"), [(1, 1), (256, 256), (511, 511), (512, 528), (600, 600), (2048, 2064)])
    def test_rows_of_large_powers_of_2_have_gaps(self, width: int, ld: int) -> None:
        assert empty_rows(torch.zeros(1), 3, width).stride() == (ld, 1)

    @pytest.mark.sampled(1)
    @pytest.mark.parametrize("execution", ["compiled", "plain"])
    @pytest.mark.parametrize("kind", [LSTM, LayerNormLSTM])
    def test_a_layer_whose_rows_have_gaps_equals_fold(
        self, kind: type[LSTM], execution: Execution, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(storage, "CONFLICT_BYTES", 1)  # a gap between any rows
        layer, x = kind(3, 5).double(), torch.randn(B, T, 3, dtype=torch.float64, requires_grad=True)
        state = LSTMState(*torch.randn(2, B, 5, dtype=torch.float64))
        mask = torch.arange(T) < torch.tensor([3, 1, 0, 2]).unsqueeze(1)
        sources = [x, *layer.parameters()]
        with executing(execution):
            results = unroll(layer, x, state, mask)
            assert results is not None
            gradients = torch.autograd.grad(results[0].square().sum(), sources)
            with torch.no_grad():
                torch.testing.assert_close(unroll(layer, x, state, mask), results)
        expected = layer.fold(x, state, mask=mask)[0] * mask.unsqueeze(-1)
        torch.testing.assert_close(results[0], expected)
        torch.testing.assert_close(gradients, torch.autograd.grad(expected.square().sum(), sources))
