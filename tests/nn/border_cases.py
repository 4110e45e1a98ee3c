"""Valid and invalid arguments of layers, which `test_border_cases.py` tries by the thousand in another process.

For every layer of the laws' table and for other objects, each argument has many forms. A valid call must give the
values, state and gradients of plain copies of the same numbers; an invalid one must raise `ValueError` or `TypeError`
with a message of one line. The process prints each case before its call, so that a crash can be attributed.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue import nn as layers
from ensue.types import Memory, State, leaves, map_state
from laws.table import SUBJECTS

B, T = 3, 4
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool, torch.complex128)


class Form(NamedTuple):
    """A form of an argument; `fits` says whether the layer must accept it."""

    name: str
    value: Any
    fits: bool


def numbers(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


def spread(x: Tensor) -> Tensor:
    """Return the same numbers with other numbers between them in memory."""
    return torch.stack((x, ~x if x.dtype is torch.bool else x + 1), dim=-1)[..., 0]


def turned(x: Tensor) -> Tensor:
    """Return the same numbers with the last dimension first in memory."""
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


def mirrored(x: Tensor) -> Tensor:
    """Return the same numbers in a tensor with the negative bit of torch."""
    return torch.view_as_complex(torch.stack((x, -x), dim=-1)).conj().imag


def behind(x: Tensor) -> Tensor:
    """Return the same numbers at an offset of one number in memory."""
    return torch.cat((x.flatten()[:1], x.flatten()))[1:].view(x.shape)


def forms(x: Tensor, *, of_any_type: bool = False, of_any_sizes: bool = False) -> Iterator[Form]:
    """Yield forms of an argument of real numbers; with `of_any_type` the layer has no parameters and so no device."""
    for change in (torch.clone, spread, turned, mirrored, behind):
        yield Form(change.__name__, change(x), True)
    if x.numel():
        yield Form("expanded over rows", x[:1].expand_as(x), True)
        yield Form("expanded", x.flatten()[0].expand_as(x), True)
    for kind in TYPES:
        yield Form(str(kind), x.to(kind), of_any_type and kind.is_floating_point)
    if not of_any_type:
        yield Form("on no device", x.to("meta"), False)
    yield Form("a list", x.tolist(), False)
    yield Form("one dimension more", x.unsqueeze(0), of_any_sizes)
    yield Form("one dimension less", x.sum(0), of_any_sizes)


def forms_of_x(layer: layers.SequenceLayer, *before: int) -> Iterator[Form]:
    has_type = any(True for _ in (*layer.parameters(), *layer.buffers()))
    yield from forms(numbers(*before, layer.d_in), of_any_type=not has_type)
    for features in {0, 1, layer.d_in - 1, layer.d_in + 1, 2 * layer.d_in} - {layer.d_in}:
        yield Form(f"{features} features", numbers(*before, features), False)


def initial_state(layer: layers.SequenceLayer, rows: int) -> State:
    return layer.init_state(rows, None if layer.d_memory is None else Memory(numbers(rows, 3, layer.d_memory)))


def forms_of_state(layer: layers.SequenceLayer, rows: int) -> Iterator[Form]:
    yield Form("none", None, True)
    begin = map_state(
        lambda leaf: torch.randn_like(leaf) if leaf.is_floating_point() else leaf, initial_state(layer, rows)
    )
    has_state = begin is not None and any(True for _ in leaves(begin))
    if not has_state:
        yield Form("a state for a layer without", (torch.zeros(rows, 2),), False)
    else:
        for change in (torch.clone, spread, behind):
            yield Form(change.__name__, map_state(change, begin), layer.is_causal)
        if rows:
            yield Form("expanded", map_state(lambda leaf: leaf[:1].expand_as(leaf), begin), layer.is_causal)
        for other in {0, 1, max(rows - 1, 0), rows + 1, 2 * rows} - {rows}:
            yield Form(
                f"{other} rows", map_state(lambda leaf, n=other: leaf.new_zeros(n, *leaf.shape[1:]), begin), False
            )
        for kind in TYPES:
            yield Form(
                str(kind),
                map_state(lambda leaf, kind=kind: leaf.to(kind), begin),
                layer.is_causal and kind in {leaf.dtype for leaf in leaves(begin)} == {kind},
            )
        more = map_state(lambda leaf: torch.cat((leaf, leaf), -1), begin)
        yield Form("more of all", more, layer.is_causal and same_form(begin, more))
        yield Form("on no device", map_state(lambda leaf: leaf.to("meta"), begin), False)
        yield Form("a list", [*leaves(begin)], False)
        yield Form("no tensors", map_state(lambda leaf: leaf.sum(), begin), False)
    for subject in random.sample(SUBJECTS, 6):
        state = initial_state(subject.layer, rows)
        if state is not None:
            yield Form(
                f"of {subject.name}", state, same_form(begin, state) and (layer.is_causal or not list(leaves(state)))
            )


def same_form(a: State, b: State) -> bool:
    if type(a) is not type(b):
        return False
    if a is None or isinstance(a, Tensor):
        return a is None or (a.shape, a.dtype) == (b.shape, b.dtype)
    return len(a) == len(b) and all(map(same_form, a, b))


def forms_of_mask(rows: int, positions: int) -> Iterator[Form]:
    lengths = torch.randint(0, positions + 1, (rows, 1))
    mask = torch.arange(positions) < lengths
    yield Form("none", None, True)
    yield Form("of all", torch.ones(rows, positions, dtype=torch.bool), True)
    yield Form("of none", torch.zeros(rows, positions, dtype=torch.bool), True)
    for change in (torch.clone, spread, turned):
        yield Form(change.__name__, change(mask), True)
    if rows:
        yield Form("expanded", mask[:1].expand_as(mask), True)
    for sizes in ((rows - 1, positions), (rows + 1, positions), (rows, positions - 1), (rows, positions + 1), (1, 1)):
        if min(sizes) >= 0 and sizes != (rows, positions):
            yield Form(f"of {sizes}", torch.ones(sizes, dtype=torch.bool), False)
    for kind in (torch.int64, torch.float64, torch.uint8):
        yield Form(str(kind), mask.to(kind), False)
    yield Form("on no device", mask.to("meta"), False)
    yield Form("one dimension more", mask.unsqueeze(-1), False)
    if rows and positions > 1:
        gap = torch.ones(rows, positions, dtype=torch.bool)
        gap[random.randrange(rows), random.randrange(positions - 1)] = False
        yield Form("with a gap", gap, False)
        yield Form("on the left", torch.arange(positions).expand(rows, -1) > 0, False)


class Case(NamedTuple):
    """A call that returns tensors or must be refused; `naive`, or the call itself, gives the expected tensors."""

    name: str
    run: Callable[..., list[Tensor]]
    arguments: list[Any]
    fits: bool
    naive: Callable[..., list[Tensor]] | None = None


def plain(value: Any) -> Any:
    """Return contiguous copies of all tensors."""
    return map_state(lambda leaf: torch.tensor(leaf.tolist(), dtype=leaf.dtype).view(leaf.shape), value)


def reading(function: Callable[..., Any]) -> Callable[..., list[Tensor]]:
    """Return a function of x, state and mask to the outputs, the final state, and the gradient of their sum by x."""

    def read(x: Any, state: Any, *masks: Any) -> list[Tensor]:
        if isinstance(x, Tensor) and x.is_floating_point():
            x = x.detach().requires_grad_()
        y, final = function(x, state, **({"mask": masks[0]} if masks else {}))
        y = y.masked_fill(~masks[0].unsqueeze(-1), 0.0) if masks and masks[0] is not None else y
        results = [y, *leaves(final)]
        total = x.sum() * 0 + sum(result.sum() for result in results if result.is_floating_point())
        return [*results, *torch.autograd.grad(total, [x], allow_unused=True, materialize_grads=True)]

    return read


def cases_of_layers(share: float) -> Iterator[Case]:
    for subject in SUBJECTS:
        layer = subject.layer
        for rows, positions in ((B, T), (B, T), (0, T), (B, 0), (1, 1)):
            for x, state, mask in triples(layer, rows, positions):
                if random.random() < share:
                    name = f"{subject.name}: x {x.name}, state {state.name}, mask {mask.name}"
                    naive = reading(layer.fold) if isinstance(layer, layers.Recurrent) else None
                    fits = x.fits and state.fits and mask.fits
                    yield Case(name, reading(layer), [x.value, state.value, mask.value], fits, naive)
        for x, state in pairs(list(forms_of_x(layer, B)), list(forms_of_state(layer, B))):
            if random.random() < share:
                name, fits = f"{subject.name}: step, x {x.name}, state {state.name}", x.fits and state.fits
                yield Case(name, reading(layer.step), [x.value, state.value], fits and layer.is_causal)


def cases_of_memories(share: float) -> Iterator[Case]:
    for subject in SUBJECTS:
        layer = subject.layer
        if layer.d_memory is None:
            continue
        values = numbers(B, T, layer.d_memory)
        fewer = [Form("a feature less", values[..., 1:], False), Form("a row less", values[1:], False)]
        for value, mask in pairs([*forms(values), *fewer], list(forms_of_mask(B, T))):
            if random.random() < share:
                name = f"{subject.name}: memory {value.name}, mask {mask.name}"
                yield Case(name, partial(state_of_memory, layer), [value.value, mask.value], value.fits and mask.fits)


def state_of_memory(layer: layers.SequenceLayer, values: Any, mask: Any) -> list[Tensor]:
    return tensors(layer.init_state(B, Memory(values, mask)))


def pairs(first: list[Form], second: list[Form]) -> Iterator[tuple[Form, Form]]:
    """Yield each form of one list with a random valid form of the other."""
    for a in first:
        yield a, random.choice(second[:3])
    for b in second:
        yield random.choice(first[:5]), b


def triples(layer: layers.SequenceLayer, rows: int, positions: int) -> Iterator[tuple[Form, Form, Form]]:
    xs, states = list(forms_of_x(layer, rows, positions)), list(forms_of_state(layer, rows))
    masks = list(forms_of_mask(rows, positions))
    for x, state in pairs(xs, states):
        yield x, state, random.choice(masks[:6])
    for mask in masks:
        yield random.choice(xs[:5]), random.choice(states[:3]), mask
    for _ in range(10):  # several wrong at once
        yield random.choice(xs), random.choice(states), random.choice(masks)


def cases_of_others(share: float) -> Iterator[Case]:
    """Yield cases of objects other than layers, with many forms of each argument and valid other arguments."""
    K, D, V = 5, 6, 11
    crf, head, large = (
        layers.LinearChainCRF(K).double(),
        layers.SoftmaxHead(D, V).double(),
        layers.SoftmaxHead(D, 1100).double(),
    )
    mask, tags = torch.arange(T) < torch.tensor([[4], [0], [2]]), torch.randint(0, K, (B, T))
    ids = torch.randint(0, V, (B, T))
    e, h = numbers(B, T, K), numbers(B, T, D)
    pools = [
        layers.FirstPooling(D),
        layers.LastPooling(D),
        layers.MeanPooling(D),
        layers.MaxPooling(D),
        layers.AttentionPooling(D),
    ]
    pools = [*pools, layers.LastPooling(D, bidirectional=True)]
    pools = [pool.double() for pool in [*pools, layers.Poolings([layers.MeanPooling(D), layers.MaxPooling(D)])]]
    functions: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "crf.log_partition": (crf.log_partition, [e, mask]), "crf.score": (crf.score, [e, tags, mask]),
        "crf.nats": (crf.nats, [e, tags, mask]), "crf.marginals": (crf.marginals, [e, mask]),
        "crf.best": (crf.best, [e, mask]), "crf.best_k": (lambda e, mask: crf.best_k(e, 3, mask), [e, mask]),
        "head": (head, [h]), "head.nats": (head.nats, [h, ids]), "head.total_nats": (head.total_nats, [h, ids]),
        "large head.total_nats": (large.total_nats, [h, ids]),
        "linear_cross_entropy": (layers.linear_cross_entropy, [numbers(B, D), numbers(V, D), numbers(V), ids[:, 0]]),
        "embedding": (layers.TokenEmbedding(V, D).double(), [ids]), "scalar mix": (layers.ScalarMix(T).double(), [h]),
        "character lstm": (layers.CharacterLSTM(V, d_character=3, d_out=4).double(), [ids, mask]),
        "character cnn": (layers.CharacterCNN(V, d_character=3, d_out=4).double(), [ids, mask]),
        "scan": (lambda a, b, start, mask: layers.scan(a, b, start, mask=mask), [h.sigmoid(), h, numbers(B, D), mask]),
        **{f"pooling {pool!r}": (pool, [h, mask]) for pool in pools},
    }  # fmt: skip
    for name, (function, args) in functions.items():
        for place, arg in enumerate(args):
            for form in forms_of_argument(
                arg,
                of_any_type=name.startswith("crf"),
                of_any_sizes=name in {"head", "scalar mix"},
                of_any_features=name == "scalar mix",
            ):
                if random.random() < share:
                    values = [*args[:place], form.value, *args[place + 1 :]]
                    yield Case(
                        f"{name}: argument {place} {form.name}",
                        lambda *values, function=function: tensors(function(*values)),
                        values,
                        form.fits,
                    )


def forms_of_argument(arg: Tensor, *, of_any_type: bool, of_any_sizes: bool, of_any_features: bool) -> Iterator[Form]:
    if arg.is_floating_point():
        yield from forms(arg, of_any_type=of_any_type, of_any_sizes=of_any_sizes)
        if arg.dim() > 1:
            yield Form("a feature less", arg[..., 1:], of_any_features)
            yield Form("a row less", arg[1:], of_any_sizes)
            if arg.dim() > 2:
                yield Form("a position less", arg[:, 1:], of_any_sizes and not of_any_features)
    elif arg.dtype is torch.bool:
        yield from forms_of_mask(*arg.shape)
    else:
        for change in (torch.clone, spread, turned, behind):
            yield Form(change.__name__, change(arg), True)
        for kind in (torch.float64, torch.bool, torch.complex128):
            yield Form(str(kind), arg.to(kind), False)
        yield Form("on no device", arg.to("meta"), False)


def tensors(result: Any) -> list[Tensor]:
    return list(leaves(result))


def outcome(case: Case) -> str | None:
    """Run a case and return the problem, or None."""
    try:
        results = case.run(*case.arguments)
    except (ValueError, TypeError) as error:
        if case.fits:
            return f"refused: {error}"
        return f"several lines: {error}" if "\n" in str(error) else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not case.fits:
        return "not refused"
    expected = (case.naive or case.run)(*map(plain, case.arguments))
    try:
        torch.testing.assert_close(results, expected, rtol=1e-7, atol=1e-7, equal_nan=True)
    except AssertionError as error:
        return f"not what plain copies give: {' '.join(str(error).split())}"
    return None


def main(seed: int, share: float) -> None:
    """Run a random `share` of all cases."""
    random.seed(seed)
    torch.manual_seed(seed)
    count = 0
    for cases in (cases_of_layers, cases_of_memories, cases_of_others):
        for case in cases(share):
            print("case", case.name, flush=True)
            wrong = outcome(case)
            if wrong is not None:
                print("WRONG", case.name, "|", wrong, flush=True)
            count += 1
    print("done", count, flush=True)
