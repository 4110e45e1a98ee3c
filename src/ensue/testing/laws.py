"""Laws of layers: functions that check a property of a `Subject`, and raise AssertionError if it does not hold.

`EVERY_LAYER` and `OF_CALLS` (about repeated calls) hold for all layers, `STEPPING` for causal layers, which continue
from a state, and `REMEMBERING` for layers that attend to a memory. Such layers have a memory in all other laws, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import get_args

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.utils import prune

from ensue.engine import Execution, executing
from ensue.nn import SequenceLayer, watch
from ensue.nn.layer import Recurrent
from ensue.nn.recurrent.linear_recurrence import LinearRecurrence
from ensue.nn.taps import Tap
from ensue.types import Memory, State, compacted, concatenate_rows, detach, leaves, select_rows

B, T = 6, 5
"""Rows and positions. No size of a subject equals B, so that a batch on another dimension than 0 is noticed."""
LENGTHS = torch.tensor([5, 2, 0, 4, 1, 3])
MASK = torch.arange(T) < LENGTHS.unsqueeze(1)
MORE = 2  # the number of steps after a prompt
S = 4
MEMORY_LENGTHS = torch.tensor([4, 2, 3, 4, 2, 3])
"""At least 2, since the attention weight of a single position is always 1."""
MEMORY_MASK = torch.arange(S) < MEMORY_LENGTHS.unsqueeze(1)

same = torch.testing.assert_close


@dataclass(frozen=True)
class Subject:
    """A kind of layer. `make` returns a new layer, with dropout if possible, so that laws notice dropout in `eval`."""

    name: str
    make: Callable[[], SequenceLayer]
    is_slow: bool = False
    """Whether the layer combines layers and wrappers that other subjects already test."""

    @cached_property
    def layer(self) -> SequenceLayer:
        """The layer of `build`, shared by all laws that do not change it."""
        return self.build()

    def build(self, seed: int = 0) -> SequenceLayer:
        """Return a layer in float64 and `eval`, with larger random parameters than at the start of training."""
        layer = self.make().double().eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
        return layer


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def inputs(layer: SequenceLayer, length: int = T, *, seed: int = 1) -> Tensor:
    return random(B, length, layer.d_in, seed=seed).requires_grad_()


def memory_of(layer: SequenceLayer, *, seed: int = 5) -> Memory | None:
    """Return a memory of B rows of different lengths; None if the layer reads no memory."""
    if layer.d_memory is None:
        return None
    return Memory(random(B, S, layer.d_memory, seed=seed).requires_grad_(), MEMORY_MASK)


def with_memory(subject: Subject) -> tuple[SequenceLayer, Tensor, Memory]:
    """Return the layer of a subject, its inputs, and its memory."""
    memory = memory_of(subject.layer)
    assert memory is not None
    return subject.layer, inputs(subject.layer).detach(), memory


def rows_of(memory: Memory, rows: Tensor) -> Memory:
    return Memory(memory.values[rows], None if memory.mask is None else memory.mask[rows])


def start(layer: SequenceLayer) -> State:
    """Return the state before a sequence: None, or the state from the memory."""
    memory = memory_of(layer)
    return None if memory is None else layer.init_state(B, memory)


def start_alone(layer: SequenceLayer, row: int) -> State:
    """Return the state before a sequence of one row, without the padding of its memory."""
    memory = memory_of(layer)
    if memory is None:
        return None
    return layer.init_state(1, Memory(memory.values[row : row + 1, : int(MEMORY_LENGTHS[row])]))


def steps(layer: SequenceLayer, x: Tensor, state: State) -> tuple[Tensor, State]:
    """Call `step` for each position of `x`."""
    outputs = []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, dim=1), state


def float_leaves(state: State) -> list[Tensor]:
    """Return the floating-point leaves, which can have a gradient."""
    return [leaf for leaf in leaves(state) if leaf.is_floating_point()]


def gradients(layer: SequenceLayer, x: Tensor, *results: Tensor) -> list[Tensor]:
    """Return the gradients of a randomly weighted sum of `results` with respect to `x` and every parameter."""
    total = sum((result * random(*result.shape, seed=7 + k).to(result)).sum() for k, result in enumerate(results))
    assert isinstance(total, Tensor)
    return list(torch.autograd.grad(total, [x, *layer.parameters()], allow_unused=True, materialize_grads=True))


def same_state(state: State, expected: State) -> None:
    same(list(leaves(state)), list(leaves(expected)))


def mask_outputs(y: Tensor) -> Tensor:
    """Return the outputs with zeros at padding."""
    return y.masked_fill(~MASK.unsqueeze(-1), 0.0)


def step_is_forward(subject: Subject) -> None:
    """Calls of `step`, position by position, equal `forward`: outputs, final state, and the gradients of both."""
    layer, x = subject.layer, inputs(subject.layer)
    y, final = layer(x, start(layer))
    for is_grad_enabled in (False, True):  # without gradients, a step may run compiled
        with torch.set_grad_enabled(is_grad_enabled):
            y_steps, final_steps = steps(layer, x, layer.init_state(B, memory_of(layer)))
        same(y_steps, y)
        same_state(final_steps, final)
    same(gradients(layer, x, y_steps, *float_leaves(final_steps)), gradients(layer, x, y, *float_leaves(final)))


def prefix_then_rest_is_whole(subject: Subject) -> None:
    """A sequence in two calls, cut at any position, has the same outputs, final state and gradients as in one call."""
    layer, x = subject.layer, inputs(subject.layer)
    y, final = layer(x, start(layer))
    expected = gradients(layer, x, y, *float_leaves(final))
    for cut in range(T + 1):
        y_prefix, between = layer(x[:, :cut], start(layer))
        y_rest, final_rest = layer(x[:, cut:], between)
        y_both = torch.cat((y_prefix, y_rest), dim=1)
        same(y_both, y)
        same_state(final_rest, final)
        same(gradients(layer, x, y_both, *float_leaves(final_rest)), expected)


def ragged_prefix_then_rest_is_whole(subject: Subject) -> None:
    """Rows of different lengths, some of which end before the cut, have the same results in two calls as in one."""
    layer = subject.layer
    x, x_next = inputs(layer), inputs(layer, 1, seed=2)[:, 0]
    y, final = layer(x, start(layer), mask=MASK)
    y_next, _ = layer.step(x_next, final)
    expected = gradients(layer, x, mask_outputs(y), y_next)
    for cut in range(T + 1):
        y_prefix, between = layer(x[:, :cut], start(layer), mask=MASK[:, :cut])
        y_rest, final_rest = layer(x[:, cut:], between, mask=MASK[:, cut:])
        y_both = mask_outputs(torch.cat((y_prefix, y_rest), dim=1))
        y_next_both, _ = layer.step(x_next, final_rest)
        same(y_both, mask_outputs(y))
        same(y_next_both, y_next)
        same(gradients(layer, x, y_both, y_next_both), expected)


def causality_is_as_declared(subject: Subject) -> None:
    """Every output depends on the input at its position, and on later inputs only if the layer is not causal."""
    layer, x = subject.layer, inputs(subject.layer)
    y, _ = layer(x, start(layer))
    for t in range(T):
        (dx,) = torch.autograd.grad((y[:, t] * random(B, y.shape[2])).sum(), x, retain_graph=True)
        assert bool((dx[:, t].abs().sum(1) > 0).all()), f"output {t} does not depend on input {t}"
        if layer.is_causal:
            assert not dx[:, t + 1 :].any(), f"output {t} depends on later inputs"
        elif t + 1 < T:
            assert bool((dx[:, t + 1 :].abs().sum((1, 2)) > 0).all()), f"output {t} does not look ahead"


def padding_changes_no_value(subject: Subject) -> None:
    """With NaN at padding, real outputs and the final state are the same as with zeros at padding."""
    layer = subject.layer
    x = inputs(layer).detach()
    y, final = layer(mask_outputs(x), start(layer), mask=MASK)
    y_nan, final_nan = layer(x.masked_fill(~MASK.unsqueeze(-1), torch.nan), start(layer), mask=MASK)
    same(mask_outputs(y_nan), mask_outputs(y))
    same_state(final_nan, final)
    assert all(bool(leaf.isfinite().all()) for leaf in leaves(final_nan))


def padding_changes_no_gradient(subject: Subject) -> None:
    """Values at padding do not change the gradients, and the gradients at padding are zero."""
    layer = subject.layer
    results = []
    for seed in (2, 3):
        x = torch.where(MASK.unsqueeze(-1), inputs(layer), 3 * inputs(layer, seed=seed)).detach().requires_grad_()
        y, final = layer(x, start(layer), mask=MASK)
        results.append(gradients(layer, x, mask_outputs(y), *float_leaves(final)))
        assert not results[-1][0][~MASK].any(), "a gradient flows into padding"
    same(*results)


def a_row_alone_is_the_row_in_a_batch(subject: Subject) -> None:
    """A row by itself, without padding, has the same values and gradients as in a batch."""
    layer, x = subject.layer, inputs(subject.layer)
    y, _ = layer(x, start(layer), mask=MASK)
    alone = torch.zeros_like(y)
    for row, length in enumerate(LENGTHS.tolist()):
        y_row, _ = layer(x[row : row + 1, :length], start_alone(layer, row))
        alone = alone.index_put((torch.tensor(row), torch.arange(length)), y_row[0])
    same(alone, mask_outputs(y))
    same(gradients(layer, x, alone), gradients(layer, x, mask_outputs(y)))


def a_ragged_prompt_then_steps_is_each_row_alone(subject: Subject) -> None:
    """After a batch of prompts of different lengths (also 0), steps give each row the outputs that it has alone."""
    layer = subject.layer
    x, x_more = inputs(layer).detach(), inputs(layer, MORE, seed=2).detach()
    _, state = layer(x, start(layer), mask=MASK)
    y_more, _ = steps(layer, x_more, state)
    for row, length in enumerate(LENGTHS.tolist()):
        _, state_row = layer(x[row : row + 1, :length], start_alone(layer, row))
        y_row, _ = steps(layer, x_more[row : row + 1], state_row)
        same(y_more[row : row + 1], y_row)


def selecting_rows_commutes_with_steps(subject: Subject) -> None:
    """Reordering, repeating and dropping rows of a state commutes with steps."""
    layer = subject.layer
    x, x_more = inputs(layer).detach(), inputs(layer, MORE, seed=2).detach()
    _, state = layer(x, start(layer), mask=MASK)
    y_more, final = steps(layer, x_more, state)
    for rows in (torch.randperm(B, generator=torch.Generator().manual_seed(3)), torch.tensor([3, 1, 1, 4])):
        y_selected, final_selected = steps(layer, x_more[rows], select_rows(state, rows))
        same(y_selected, y_more[rows])
        same_state(final_selected, select_rows(final, rows))


def state_is_a_value(subject: Subject) -> None:
    """`step` and `forward` do not change their inputs and states."""
    layer = subject.layer
    x, x_more = inputs(layer).detach(), inputs(layer, MORE, seed=2).detach()
    _, state = layer(x, start(layer), mask=MASK)
    before = [leaf.clone() for leaf in (x, x_more, *leaves(state))]
    steps(layer, x_more, state)
    layer(x_more, state)
    layer(x, start(layer), mask=MASK)
    same([x, x_more, *leaves(state)], before, rtol=0, atol=0)


def state_has_the_batch_first(subject: Subject) -> None:
    """Dim 0 of every leaf of a state is the batch, initially, after `forward` and after `step`."""
    layer, x = subject.layer, inputs(subject.layer)
    y, final = layer(x, start(layer))
    assert y.shape == (B, T, layer.d_out)
    _have_the_batch_first(layer.init_state(B, memory_of(layer)))
    _have_the_batch_first(final)
    if layer.is_causal:
        _have_the_batch_first(layer.step(x[:, 0], final)[1])


def _have_the_batch_first(state: State) -> None:
    for leaf in leaves(state):
        assert leaf.dim() >= 1, "a leaf without a batch"
        assert leaf.shape[0] == B, f"a leaf of shape {tuple(leaf.shape)} in a batch of {B}"


def saved_and_loaded_is_the_same(subject: Subject) -> None:
    """A layer with the saved and loaded state dict of another layer has the same outputs."""
    layer, other = subject.layer, subject.build(seed=1)
    other.load_state_dict(load(save(layer.state_dict())), strict=True)
    x = inputs(layer)
    same(other(x, start(other))[0], layer(x, start(layer))[0], rtol=0, atol=0)


def every_parameter_gets_a_gradient(subject: Subject) -> None:
    """Every parameter gets a gradient that is not zero."""
    layer, x = subject.layer, inputs(subject.layer)
    y, _ = layer(x, start(layer))
    names = [name for name, _ in layer.named_parameters()]
    _, *of_parameters = gradients(layer, x, y)
    dead = [name for name, gradient in zip(names, of_parameters, strict=True) if not gradient.any()]
    assert not dead, f"no gradient reaches {dead}"


def evaluation_is_deterministic(subject: Subject) -> None:
    """In `eval`, equal inputs have bit-identical outputs."""
    layer, x = subject.layer, inputs(subject.layer)
    (y, final), (y_again, final_again) = layer(x, start(layer)), layer(x, start(layer))
    to_the_bit([y_again, *leaves(final_again)], [y, *leaves(final)])
    if layer.is_causal:
        to_the_bit([layer.step(x[:, 0], final)[0]], [layer.step(x[:, 0], final)[0]])


def memory_padding_reaches_nothing(subject: Subject) -> None:
    """Values at padding of the memory, including NaN, change no output and no gradient, and get no gradient."""
    layer, x = subject.layer, inputs(subject.layer)
    results = []
    for number in (0.0, 3.0, torch.nan):
        memory = memory_of(layer)
        assert memory is not None
        values = memory.values.detach().masked_fill(~MEMORY_MASK.unsqueeze(-1), number).requires_grad_()
        y, final = layer(x, layer.init_state(B, Memory(values, MEMORY_MASK)))
        same(steps(layer, x, layer.init_state(B, Memory(values, MEMORY_MASK)))[0], y)
        (dvalues,) = torch.autograd.grad((y * random(*y.shape)).sum(), values, retain_graph=True)
        assert not dvalues[~MEMORY_MASK].any(), "a gradient flows into padding of the memory"
        results.append([y, *leaves(final), dvalues, *gradients(layer, x, y)])
    same(results[1], results[0])
    same(results[2], results[0])


def rows_have_memories_of_their_own(subject: Subject) -> None:
    """No output of a row depends on another row's memory."""
    layer, x, memory = with_memory(subject)
    y, _ = layer(x, layer.init_state(B, memory))
    for row in range(B):
        (dvalues,) = torch.autograd.grad((y[row] * random(T, layer.d_out)).sum(), memory.values, retain_graph=True)
        assert not dvalues[torch.arange(B) != row].any(), f"row {row} depends on another row's memory"


def gradients_reach_the_memory(subject: Subject) -> None:
    """Each row's memory gets a gradient, the same with `step` as with `forward`."""
    layer, x, memory = with_memory(subject)
    results: list[Tensor] = []
    for run in (layer, lambda x, state: steps(layer, x, state)):
        y, _ = run(x, layer.init_state(B, memory))
        results += torch.autograd.grad((y * random(*y.shape)).sum(), [memory.values], materialize_grads=True)
    assert bool((results[0].abs().sum((1, 2)) > 0).all()), "a memory without a gradient"
    same(*results)


def shared_memories_are_as_if_copied(subject: Subject) -> None:
    """Rows that share memories, in any order, have the outputs of rows with copies of the memories."""
    layer, x, memory = with_memory(subject)
    state = layer.init_state(B, memory)
    in_order = torch.arange(B).repeat_interleave(3)
    for rows in (in_order, in_order[[1, 0, 2, 5, *range(6, 18), 3, 4]], in_order.flip(0), torch.tensor([4, 4, 1])):
        y, final = layer(x[rows], layer.init_state(len(rows), rows_of(memory, rows)))
        selected = select_rows(state, rows)
        for shared in (selected, compacted(selected)):
            y_shared, final_shared = layer(x[rows], shared)
            same(y_shared, y)
            y_steps, _ = steps(layer, x[rows], shared)
            same(y_steps, y)
        new_order = torch.arange(len(rows)).roll(1)  # reorders rows in the middle of a text, as beam search does
        y_more, _ = steps(layer, x[rows], select_rows(final_shared, new_order))
        same(y_more, steps(layer, x[rows], select_rows(final, new_order))[0])


def joined_states_go_on_as_before(subject: Subject) -> None:
    """Concatenated states, of memories of different lengths or of one memory, continue like the separate states."""
    layer, x, memory = with_memory(subject)
    longer = Memory(random(B, S + 3, memory.values.shape[2], seed=6))
    states = [layer(x, layer.init_state(B, values))[1] for values in (memory, longer)]
    y, _ = steps(layer, torch.cat((x, x)), concatenate_rows(states))
    same(y, torch.cat([steps(layer, x, state)[0] for state in states]))
    halves = [select_rows(states[0], rows) for rows in (torch.arange(2), torch.arange(2, B))]
    same(steps(layer, x, concatenate_rows(halves))[0], y[:B])


def a_memory_may_be_short_or_none(subject: Subject) -> None:
    """Padding changes nothing for a memory with one real position or none. No memory (None) is an empty memory."""
    layer, x, memory = with_memory(subject)
    for length in (0, 1):
        mask = (torch.arange(S) < length).expand(B, S)
        starts = [Memory(memory.values, mask), Memory(memory.values[:, :length]), *([None] if length == 0 else [])]
        y, *others = (layer(x, layer.init_state(B, start))[0] for start in starts)
        assert bool(y.isfinite().all())
        for other in [*others, *([layer(x)[0]] if length == 0 else [])]:
            same(other, y)


def seeded(layer: SequenceLayer, run: Callable[[Tensor, State], tuple[Tensor, State]] | None = None) -> list[Tensor]:
    """Return outputs, final state, gradients and generator state of a call, always with the same inputs and seed.

    `run` is by default the layer's `forward` with `MASK`. Gradients are in the order of names.
    """
    torch.manual_seed(0)
    x = inputs(layer)
    y, final = layer(x, start(layer), mask=MASK) if run is None else run(x, start(layer))
    dx, *others = gradients(layer, x, mask_outputs(y))
    by_name = dict(zip((name for name, _ in layer.named_parameters()), others, strict=True))
    names = sorted(by_name, key=lambda name: name.removesuffix("_orig"))
    return [mask_outputs(y), *leaves(final), dx, *(by_name[name] for name in names), torch.random.get_rng_state()]


def to_the_bit(results: list[Tensor], expected: list[Tensor]) -> None:
    same(results, expected, rtol=0, atol=0)


def the_first_call_is_like_the_second(subject: Subject) -> None:
    """The first two calls agree in results, random draws and values at taps, in training and in evaluation."""
    for is_training in (True, False):
        layer, hooked = subject.build().train(is_training), subject.build().train(is_training)
        first = seeded(layer)
        to_the_bit(seeded(layer), first)
        hook_values = seen_by_hooks(hooked)
        first, seen_first = seeded(hooked), hook_values[:]
        hook_values.clear()
        to_the_bit(seeded(hooked), first)
        to_the_bit(hook_values, seen_first)


def seen_by_hooks(layer: SequenceLayer) -> list[Tensor]:
    """Return a list to which hooks append the values at all taps."""
    values: list[Tensor] = []
    for module in layer.modules():
        if isinstance(module, Tap):
            module.register_forward_hook(lambda _, args, value: values.append(value.detach().clone()))
    return values


def training_after_evaluation_is_training(subject: Subject) -> None:
    """After a call in training or evaluation, the other mode has the results of a new layer."""
    for is_training in (True, False):
        layer = subject.build().train(not is_training)
        seeded(layer)
        to_the_bit(seeded(layer.train(is_training)), seeded(subject.build().train(is_training)))


def changed_weights_change_the_output(subject: Subject) -> None:
    """After a change of weights, `forward`, `step` and gradients equal those of a new layer with these weights."""
    for change in CHANGES:
        layer, new = subject.build(), subject.build()
        weights = {name: 0.5 * weight.detach() for name, weight in new.named_parameters()}
        if not weights:
            return
        new.load_state_dict(weights, strict=False)
        runs = [None, *([partial(steps, layer)] if layer.is_causal else [])]
        for run in runs:
            seeded(layer, run)
        change(layer, weights)
        for run in runs:
            same(seeded(layer, run), seeded(new, None if run is None else partial(steps, new)))


def _copy_weights(layer: SequenceLayer, weights: dict[str, Tensor]) -> None:
    for name, weight in layer.named_parameters():
        weight.data.copy_(weights[name])


def _multiply_weights(layer: SequenceLayer, weights: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for weight in layer.parameters():
            weight.mul_(0.5)


def _load_weights(layer: SequenceLayer, weights: dict[str, Tensor]) -> None:
    layer.load_state_dict(weights, strict=False)


def _swap_parameters(layer: SequenceLayer, weights: dict[str, Tensor]) -> None:
    for owner, name, weight in _list_owners(layer, weights):
        setattr(owner, name, nn.Parameter(weight))


def _prune_weights(layer: SequenceLayer, weights: dict[str, Tensor]) -> None:
    """Prune the weights, so that hooks compute each weight from a parameter, and change these parameters."""
    for owner, name, weight in _list_owners(layer, weights):
        prune.custom_from_mask(owner, name, torch.ones_like(weight))  # type: ignore[no-untyped-call]
    seeded(layer)
    for weight in layer.parameters():
        weight.data.mul_(0.5)


def _list_owners(layer: SequenceLayer, weights: dict[str, Tensor]) -> list[tuple[nn.Module, str, Tensor]]:
    """Return each weight with its module and its name in the module."""
    paths = [(name.rpartition("."), weight) for name, weight in weights.items()]
    return [(layer.get_submodule(owner), name, weight.clone()) for (owner, _, name), weight in paths]


CHANGES = (_copy_weights, _multiply_weights, _load_weights, _swap_parameters, _prune_weights)


def changed_numbers_take_effect(subject: Subject) -> None:
    """A changed float in an attribute takes effect at the next call."""
    for is_training in (True, False):
        layer, new = subject.build().train(is_training), subject.build().train(is_training)
        seeded(layer)
        _change_numbers(layer)
        _change_numbers(new)
        to_the_bit(seeded(layer), seeded(new))


def _change_numbers(layer: SequenceLayer) -> None:
    """Change the floats in attributes of all submodules, and in dicts that are attributes."""
    for module in layer.modules():
        attributes = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        for values in (vars(module), *(value for value in attributes.values() if isinstance(value, dict))):
            values.update({name: 0.5 * value + 0.1 for name, value in values.items() if isinstance(value, float)})


def padding_of_recurrent_layers_is_zero(subject: Subject) -> None:
    """In every execution, the outputs of a recurrent layer at padding are zero."""
    layer = subject.layer
    if not isinstance(layer, Recurrent):
        return
    x, outputs = inputs(layer), []
    for execution in get_args(Execution):
        with executing(execution):
            outputs.append(layer(x, start(layer), mask=MASK)[0])
    with watch(layer):
        outputs.append(layer(x, start(layer), mask=MASK)[0])
    if isinstance(layer, LinearRecurrence):
        outputs.append(layer.by_scan(x, mask=MASK)[0])
    for y in outputs:
        assert not y[~MASK].any(), "outputs at padding are not zero"


def a_state_holds_no_more_than_its_own_bytes(subject: Subject) -> None:
    """A state that is detached, or from a call without gradients, keeps no sequence in memory."""
    layer, x = subject.layer, inputs(subject.layer)
    states = [detach(layer(x, start(layer), mask=mask)[1]) for mask in (None, MASK)]
    with torch.no_grad():
        states += [layer(x, start(layer), mask=mask)[1] for mask in (None, MASK)]
        for execution in ("compiled", "fold") if layer.is_causal else ():
            with executing(execution):  # type: ignore[arg-type]
                states += [layer.step(x[:, 0], start(layer))[1], steps(layer, x, states[-1])[1]]
    for state in states:
        storages = {leaf.untyped_storage().data_ptr(): leaf.untyped_storage().nbytes() for leaf in leaves(state)}
        assert sum(storages.values()) <= sum(leaf.nbytes for leaf in leaves(state)), "a state keeps excess memory"


Law = Callable[[Subject], None]

STEPPING: list[Law] = [
    step_is_forward, prefix_then_rest_is_whole, ragged_prefix_then_rest_is_whole,
    a_ragged_prompt_then_steps_is_each_row_alone, selecting_rows_commutes_with_steps, state_is_a_value,
]  # fmt: skip
EVERY_LAYER: list[Law] = [
    causality_is_as_declared, padding_changes_no_value, padding_changes_no_gradient, a_row_alone_is_the_row_in_a_batch,
    state_has_the_batch_first, saved_and_loaded_is_the_same, every_parameter_gets_a_gradient,
    evaluation_is_deterministic,
]  # fmt: skip
OF_CALLS: list[Law] = [
    the_first_call_is_like_the_second, training_after_evaluation_is_training, changed_weights_change_the_output,
    changed_numbers_take_effect, padding_of_recurrent_layers_is_zero, a_state_holds_no_more_than_its_own_bytes,
]  # fmt: skip
REMEMBERING: list[Law] = [
    memory_padding_reaches_nothing, rows_have_memories_of_their_own, gradients_reach_the_memory,
    shared_memories_are_as_if_copied, joined_states_go_on_as_before, a_memory_may_be_short_or_none,
]  # fmt: skip


def laws_of(layer: SequenceLayer) -> list[Law]:
    """Return the laws of values, gradients and states for a layer, which are all laws except `OF_CALLS`."""
    return [*EVERY_LAYER, *(STEPPING if layer.is_causal else []), *(REMEMBERING if layer.d_memory is not None else [])]


def check(laws: list[Law], subject: Subject) -> None:
    """Raise an ExceptionGroup with an AssertionError for each law that the subject breaks."""
    broken: list[AssertionError] = []
    for law in laws:
        try:
            law(subject)
        except AssertionError as error:
            error.add_note(f"the law: {law.__name__}")
            broken.append(error)
    if broken:
        raise ExceptionGroup(f"{subject.name} breaks {len(broken)} laws", broken)


def check_layer(make: Callable[[], SequenceLayer]) -> None:
    """Check all laws of a layer. `make` returns a new layer at each call, with d_in and d_out other than B = 6.

    Raises an ExceptionGroup with an AssertionError for each law that the layer breaks.
    """
    subject = Subject(type(make()).__name__, make)
    check([*laws_of(subject.layer), *OF_CALLS], subject)
