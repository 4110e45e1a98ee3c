"""Layers of papers since 2020 equal the papers' recurrences in numpy, without stabilization."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from ensue.engine import Execution, executing
from ensue.nn import HGRN2, LEM, LRU, MLSTM, RWKV7, SLSTM, GatedDeltaNet, MogrifierLSTM, SequenceLayer
from ensue.nn.recurrent.delta_rule import GatedDeltaRule

B, T, D_IN, D = 2, 6, 3, 4
Numbers = NDArray[np.float64]
Weights = dict[str, Numbers]


def sigmoid(v: Numbers) -> Numbers:
    return 1 / (1 + np.exp(-v))


def lru(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    """Compute eqs. 6 to 8 of the paper with complex numbers."""
    n = len(w["decay"])
    eigenvalues = np.exp(-np.exp(w["decay"]) + 1j * np.exp(w["frequency"]))
    W_in = w["weight_input"][:n] + 1j * w["weight_input"][n:]
    W_out = w["weight_state"][:, :n] - 1j * w["weight_state"][:, n:]
    s, outputs = np.zeros((len(x), n), complex), []
    for x_t in x.transpose(1, 0, 2):
        s = eigenvalues * s + np.exp(w["scale"]) * (x_t @ W_in.T)
        v = (s @ W_out.T).real + x_t @ w["weight_direct"].T
        v = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5)
        v = v * w["norm.weight"] + w["norm.bias"]
        a, b = np.split(v * sigmoid(v) @ w["weight_output"].T + w["bias"], 2, axis=1)
        outputs.append(a * sigmoid(b))
    return np.stack(outputs, 1)


def mogrifier(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    h = c = np.zeros((len(x), D))
    outputs = []
    for x_t in x.transpose(1, 0, 2):
        first = 2 * sigmoid(h @ w["weight_round_0"].T) * x_t
        h = 2 * sigmoid(first @ w["weight_round_1"].T) * h
        third = 2 * sigmoid(h @ w["weight_round_2"].T) * first
        i, f, g, o = np.split(third @ w["weight_input"].T + h @ w["weight_hidden"].T + w["bias"], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs, 1)


def lem(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    y = z = np.zeros((len(x), D))
    W, U, b = (np.split(w[name], 4) for name in ("weight_input", "weight_hidden", "bias"))
    outputs = []
    for x_t in x.transpose(1, 0, 2):
        of_x = [x_t @ W_k.T + b_k for W_k, b_k in zip(W, b, strict=True)]
        long, short = (0.5 * sigmoid(of_x[k] + y @ U[k].T) for k in (0, 1))
        z = z + long * (np.tanh(of_x[2] + y @ U[2].T) - z)
        y = y + short * (np.tanh(of_x[3] + z @ U[3].T) - y)
        outputs.append(y)
    return np.stack(outputs, 1)


def slstm(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    """Compute the recurrence with one block-diagonal recurrent matrix."""
    c = n = h = np.zeros((len(x), D))
    U = np.zeros((4, D, D))
    for head, block in enumerate(np.split(w["weight_hidden"], 2)):
        rows = slice(head * D // 2, (head + 1) * D // 2)
        U[:, rows, rows] = block.reshape(4, D // 2, D // 2)
    outputs = []
    for x_t in x.transpose(1, 0, 2):
        i, f, z, o = np.split(x_t @ w["weight_input"].T + h @ U.reshape(4 * D, D).T + w["bias"], 4, axis=1)
        c, n = sigmoid(f) * c + np.exp(i) * np.tanh(z), sigmoid(f) * n + np.exp(i)
        h = sigmoid(o) * c / n
        outputs.append(h)
    return np.stack(outputs, 1)


def mlstm(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    """Compute the recurrence for each row and head."""
    y = np.zeros((len(x), T, D))
    d = D // 2
    for row in range(len(x)):
        C, n = np.zeros((2, d, d)), np.zeros((2, d))
        for t, x_t in enumerate(x[row]):
            q, k, v, o = np.split(w["weight_input"] @ x_t, 4)
            i, f = np.split(w["weight_gates"] @ x_t + w["bias_gates"], 2)
            for head in range(2):
                features = slice(head * d, (head + 1) * d)
                key = k[features] / np.sqrt(d)
                C[head] = sigmoid(f[head]) * C[head] + np.exp(i[head]) * np.outer(v[features], key)
                n[head] = sigmoid(f[head]) * n[head] + np.exp(i[head]) * key
                y[row, t, features] = C[head] @ q[features] / max(abs(n[head] @ q[features]), 1)
            y[row, t] *= sigmoid(o + w["bias"])
    return y


def hgrn2(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    """Compute the recurrence for each row and head; rows of the state are features of keys, as in the paper."""
    w = {name.removeprefix("layer.layers."): value for name, value in w.items()}
    y, d, bound = np.zeros((len(x), T, D)), D // 2, sigmoid(w["0.bound"])
    for row in range(len(x)):
        S = np.zeros((2, d, d))
        for t, x_t in enumerate(x[row]):
            q, f, v = np.split(w["0.weight_input"] @ x_t, 3)
            q, f = q * sigmoid(q), bound + (1 - bound) * sigmoid(f)
            for head in range(2):
                features = slice(head * d, (head + 1) * d)
                S[head] = np.diag(f[features]) @ S[head] + np.outer(1 - f[features], v[features])
                y[row, t, features] = q[features] @ S[head]
            normed = y[row, t] / np.sqrt((y[row, t] ** 2).mean() + 1e-6) * w["0.gain"]
            y[row, t] = w["1.module.weight"] @ normed
    return y


def unit(v: Numbers) -> Numbers:
    return v / np.sqrt(v @ v + 1e-6)


def gated_deltanet(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    """Compute the recurrence for each row and head with products of matrices, as in the paper."""
    w = {name.removeprefix("layer.layers."): value for name, value in w.items()}
    y, d = np.zeros((len(x), T, D)), D // 2
    for row in range(len(x)):
        S, before = np.zeros((2, d, d)), [np.zeros(3 * D)] * 3
        for t, x_t in enumerate(x[row]):
            of_x = w["0.weight_input"] @ x_t
            before = [*before, of_x[: 3 * D]]
            convolved = sum(before[t + k] * w["0.weight_window"][k] for k in range(4))
            q, k, v = np.split(convolved * sigmoid(convolved), 3)
            gate = of_x[3 * D :] * sigmoid(of_x[3 * D :])
            of_alpha, of_beta = np.split(w["0.weight_gates"] @ x_t, 2)
            alpha = np.exp(-np.exp(w["0.decay"]) * np.log1p(np.exp(of_alpha + w["0.bias"])))
            for head in range(2):
                features, beta = slice(head * d, (head + 1) * d), sigmoid(of_beta[head])
                key = unit(k[features])
                S[head] = S[head] @ (alpha[head] * (np.eye(d) - beta * np.outer(key, key))) + beta * np.outer(
                    v[features], key
                )
                read = S[head] @ unit(q[features])
                y[row, t, features] = read / np.sqrt((read**2).mean() + 1e-6) * w["1.gain"][features] * gate[features]
            y[row, t] = w["2.module.weight"] @ y[row, t]
    return y


def rwkv7(layer: SequenceLayer, w: Weights, x: Numbers) -> Numbers:
    """Compute the recurrence for each row and head with row vectors, as in the paper."""
    w = {name.removeprefix("layer.layers."): value for name, value in w.items()}
    W_r, W_k, W_v = (part.T for part in np.split(w["0.weight_input"], 3))
    A_w, A_a, A_g = (part.T for part in np.split(w["0.weight_down"], [2, 4]))
    xi, alpha, rho = w["1.key"]
    y, d = np.zeros((len(x), T, D)), D // 2
    for row in range(len(x)):
        wkv, before = np.zeros((2, d, d)), np.zeros(D_IN)
        for t, x_t in enumerate(x[row]):
            x_r, x_k, x_v, x_d, x_a, x_g = ((1 - mu) * x_t + mu * before for mu in w["0.mix"])
            before = x_t
            receptance, key, value = x_r @ W_r, x_k @ W_k, x_v @ W_v
            decay = np.exp(-np.exp(-0.5) * sigmoid(np.tanh(x_d @ A_w) @ w["0.weight_decay"].T + w["0.bias_decay"]))
            rate = sigmoid(x_a @ A_a @ w["0.weight_rate"].T + w["0.bias_rate"])
            gate = sigmoid(x_g @ A_g) @ w["0.weight_gate"].T
            written = key * ((1 - alpha) + rate * alpha)
            for head in range(2):
                block = slice(head * d, (head + 1) * d)
                removal = unit((key * xi)[block])
                transition = np.diag(decay[block]) - np.outer(removal, rate[block] * removal)
                wkv[head] = wkv[head] @ transition + np.outer(value[block], written[block])
                p = receptance[block] @ wkv[head].T
                p = (p - p.mean()) / np.sqrt(p.var() + 64e-5) * w["1.gain"][block] + w["1.bias"][block]
                y[row, t, block] = gate[block] * (p + (receptance[block] @ (rho * written)[block]) * value[block])
            y[row, t] = y[row, t] @ w["2.module.weight"].T
    return y


CASES: dict[str, tuple[SequenceLayer, Callable[[SequenceLayer, Weights, Numbers], Numbers]]] = {
    "lru": (LRU(D_IN, D, d_state=5), lru),
    "mogrifier": (MogrifierLSTM(D_IN, D, rounds=3), mogrifier),
    "lem": (LEM(D_IN, D, longest_step=0.5), lem),
    "slstm": (SLSTM(D_IN, D, num_heads=2), slstm),
    "mlstm": (MLSTM(D_IN, D, num_heads=2), mlstm),
    "hgrn2": (HGRN2(D_IN, D, num_heads=2), hgrn2),
    "rwkv-7": (RWKV7(D_IN, D, num_heads=2, rank=2), rwkv7),
    "gated deltanet": (GatedDeltaNet(D_IN, D, num_heads=2), gated_deltanet),
}


@pytest.mark.sampled(1, always="fold")
@pytest.mark.parametrize("execution", ["compiled", "fold"])
@pytest.mark.parametrize("name", CASES)
def test_each_layer_equals_its_equations(name: str, execution: str) -> None:
    layer, oracle = CASES[name]
    layer = layer.double()
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    x = torch.randn(B, T, D_IN, dtype=torch.float64, generator=generator)
    with executing("compiled" if execution == "compiled" else "fold"), torch.no_grad():
        y, _ = layer(x)
    weights = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    np.testing.assert_allclose(y.numpy(), oracle(layer, weights, x.numpy()), rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("in_torch_operations")
def test_the_xlstm_is_finite_where_exponentials_of_gates_overflow() -> None:
    """Input gates of e^200 would give 0 / 0 or infinity / infinity without a stabilizer."""
    for layer in (SLSTM(D_IN, D, num_heads=2), MLSTM(D_IN, D, num_heads=2)):
        bias = layer.bias if isinstance(layer, SLSTM) else layer.bias_gates
        with torch.no_grad():
            bias[: len(bias) // 4 if isinstance(layer, SLSTM) else 2] = 200.0
        y, _ = layer(torch.randn(B, T, D_IN, generator=torch.Generator().manual_seed(0)))
        y.sum().backward()
        assert bool(y.isfinite().all())
        assert all(bool(p.grad.isfinite().all()) for p in layer.parameters() if p.grad is not None)


def test_a_gated_deltanet_reads_what_was_last_written_under_a_key() -> None:
    """Keys are orthogonal, two of them are written twice, and nothing is forgotten."""
    d, keys = 4, torch.eye(4, dtype=torch.float64)[[0, 1, 0, 2, 1, 3]]
    values = torch.randn(6, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rule, numbers = GatedDeltaRule(4 * d + 2, d, num_heads=1).double(), torch.ones(6, 1, dtype=torch.float64)
    _, (s,) = rule(torch.cat((keys, keys, values, keys, numbers, numbers), dim=1).unsqueeze(0))
    torch.testing.assert_close(s[0, 0].T, values[[2, 4, 3, 5]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LRU(2, 2, radius=(0.9, 0.5)), r"expected 0 <= radius\[0\] < "),
        (lambda: MogrifierLSTM(2, 2, rounds=-1), "rounds must be 0 or more, found -1"),
        (lambda: LEM(2, 2, longest_step=0.0), "longest_step must be above 0"),
        (lambda: SLSTM(2, 6), "6 features cannot be divided among 4 heads"),
        (lambda: MLSTM(2, 6), "6 features cannot be divided among 4 heads"),
        (lambda: HGRN2(2, 6), "6 features cannot be divided among 4 heads"),
        (lambda: GatedDeltaNet(2, 6), "6 features cannot be divided among 4 heads"),
        (lambda: RWKV7(2, 6), "6 features cannot be divided among 4 heads"),
        (lambda: RWKV7(2, 4, rank=0), "rank of a matrix must be above 0"),
    ],
)
def test_wrong_sizes_are_refused(make: Callable[[], SequenceLayer], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("execution", ["compiled", "plain", "fold"])
def test_a_common_factor_of_all_input_gates_changes_no_output(execution: Execution) -> None:
    """The factor, from exp(-200) to exp(200), is one of c and of n."""
    layer, x = SLSTM(3, 4, num_heads=2), torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    with executing(execution):
        expected, _ = layer(x)
        for shift in (-200.0, -110.0, 120.0, 200.0):
            other = copy.deepcopy(layer)
            with torch.no_grad():
                other.bias[:4] += shift
            x.requires_grad_()
            y, _ = other(x)
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
            assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()
