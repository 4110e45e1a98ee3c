"""Mutants of one line, each in a different mechanism, with the default tests that kill it."""

from typing import NamedTuple


class OneLine(NamedTuple):
    """A line of a file of src/ensue, its replacement, and the tests, of which one must fail."""

    path: str
    before: str
    after: str
    tests: str


TABLE = {
    "LSTM": OneLine(
        "nn/recurrent/lstm.py",
        "c = self.cell(f * c + i * g)\n        h = self.hidden(o * torch.tanh(c))\n        return h, LSTMState(h, c)",
        "c = self.cell(f * c + g)\n        h = self.hidden(o * torch.tanh(c))\n        return h, LSTMState(h, c)",
        "nn/test_hand_worked.py nn/recurrent/test_recurrent_against_torch.py",
    ),
    "GRU": OneLine(
        "nn/recurrent/gru.py",
        "(1 - z) * n + z * h",
        "z * n + (1 - z) * h",
        "nn/test_hand_worked.py nn/recurrent/test_recurrent_against_torch.py",
    ),
    "RWKV-7's decay": OneLine(
        "nn/recurrent/delta_rule.py", "math.exp(-0.5) * w", "math.exp(-0.6) * w", "nn/recurrent/test_recent.py"
    ),
    "sLSTM": OneLine("nn/recurrent/xlstm.py", "o * c / n)", "o * c)", "nn/recurrent/test_recent.py"),
    "LRU": OneLine(
        "nn/recurrent/linear_recurrence.py",
        "a * real - b * imaginary + u",
        "a * real + u",
        "nn/recurrent/test_recent.py",
    ),
    "minimal units": OneLine(
        "nn/recurrent/linear_recurrence.py",
        "self.output(a * h + b, gate)",
        "self.output(a * h - b, gate)",
        "nn/recurrent/test_minimal.py nn/recurrent/test_qrnn.py",
    ),
    "rotary positions": OneLine(
        "nn/attention/positions.py", "even * cos - odd * sin", "even * cos + odd * sin", "nn/attention"
    ),
    "sinusoidal positions": OneLine(
        "nn/attention/positions.py",
        "torch.stack((angles.sin(), angles.cos())",
        "torch.stack((angles.cos(), angles.sin())",
        "nn/test_hand_worked.py",
    ),
    "CRF's partition function": OneLine(
        "nn/heads/chain.py", "total = torch.logsumexp(alpha + end, 1)", "total = torch.logsumexp(alpha, 1)", "nn/heads"
    ),
    "cross-entropy in chunks": OneLine(
        "nn/heads/softmax.py",
        "nats = z.amax(1, keepdim=True) - expected",
        "nats = z.amax(1, keepdim=True) + expected",
        "nn/heads/test_linear_cross_entropy.py",
    ),
    "mixture of Gaussians": OneLine(
        "nn/gaussian.py", "self.log_weights - nats.sum(-1)", "self.log_weights - nats.mean(-1)", "nn/heads"
    ),
    "length penalty": OneLine(
        "decode/frontier.py", "** self.search.length_penalty", "* self.search.length_penalty", "decode"
    ),
    "ties of the best ids": OneLine("decode/beam.py", "stable=True).indices", "stable=True).indices.flip(0)", "decode"),
    "warm-up": OneLine(
        "training/optimizer.py",
        "recipe.learning_rate * progress / recipe.warmup",
        "recipe.learning_rate",
        "training/test_schedule.py",
    ),
    "weight decay of matrices": OneLine(
        "training/optimizer.py",
        "if p.dim() >= 2 and p not in extended",
        "if p.dim() >= 1 and p not in extended",
        "training/test_tuning.py training/test_schedule.py training/test_loop.py",
    ),
    "clipping": OneLine(
        "training/gradients.py",
        "self.model.parameters(), max_norm)",
        "self.model.parameters(), 2 * max_norm)",
        "training/test_loop.py training/test_gradients.py training/test_golden.py",
    ),
    "random stream of a step": OneLine(
        "training/gradients.py",
        "step_seed(self.seed, step))",
        "step_seed(self.seed, 0))",
        "training/test_gradients.py training/test_resume.py training/test_golden.py training/test_loop.py",
    ),
    "span scores": OneLine(
        "metrics/labeling.py",
        "correct = gold_spans & {*predicted_spans}",
        "correct = gold_spans",
        "metrics/test_labeling.py",
    ),
    "bootstrap": OneLine(
        "metrics/scores.py",
        "np.abs(samples - samples.mean()) >= abs(value)",
        "np.abs(samples) >= abs(value)",
        "metrics/test_comparison.py",
    ),
    "borders of spans": OneLine(
        "text/schemes.py",
        'before.kind in "BI" and current.kind in "IE"',
        'before.kind in "BIE" and current.kind in "IE"',
        "text/test_schemes.py",
    ),
    "batches of one length": OneLine(
        "data/buckets.py",
        'order = np.argsort(shuffled[block], kind="stable")',
        "order = np.arange(len(shuffled[block]))",
        "data/test_buckets.py",
    ),
    "bound of unpacked bytes": OneLine(
        "data/decoding.py",
        "max(RATIO_BYTES, MAX_RATIO * stored",
        "max(RATIO_BYTES, 9 * MAX_RATIO * stored",
        "data/test_sources.py",
    ),
    "digest of the data": OneLine(
        "data/sources.py",
        "digest.update(_file_digest(path))",
        'digest.update(b"")',
        "data/test_sources.py training/test_resume.py",
    ),
    "outputs that are there": OneLine(
        "outputs.py",
        "if not overwrite and _is_replaceable(path) and is_foreign:",
        "if False:",
        "test_outputs.py cli/test_outputs.py",
    ),
    "negative sampling": OneLine(
        "extensions/word_vectors/task.py", "drawn[drawn != target]", "drawn", "extensions/word_vectors"
    ),
    "texts worth a label": OneLine(
        "extensions/annotating/choice.py",
        "if without_spaces not in excluded and any(without_spaces)]",
        "if any(without_spaces)]",
        "extensions/annotating/test_choice.py",
    ),
    "ranking of doubts": OneLine(
        "extensions/annotating/doubts.py",
        "key=lambda row: (doubts[row][1].probability,",
        "key=lambda row: (-doubts[row][1].probability,",
        "extensions/annotating/test_doubts.py",
    ),
    "sessions that end": OneLine(
        "extensions/serving/served_model.py",
        "self.seconds and (is_within_limits or",
        "self.seconds or (is_within_limits or",
        "extensions/serving",
    ),
    "bound of a session": OneLine(
        "extensions/serving/served_model.py",
        "len(self._sessions) <= self.max_sessions and sum",
        "len(self._sessions) <= self.max_sessions or sum",
        "extensions/serving",
    ),
    "causal attention": OneLine(
        "nn/attention/multi_head.py", "is_causal=self.is_causal and allowed is None", "is_causal=False", "nn/attention"
    ),
}
