"""A language model with onnxruntime, numpy and tokenizers.

python predict.py < text                 the surprisal of each token in nats, as `ensue score` prints it
python predict.py --go-on 100 "prompt"   the most probable next tokens, as `ensue generate --temperature 0` writes
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from ensue.text.words import written

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
context = config["context"]  # tokens that attention reads; None: any number
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def start(rows=1):
    """The state before the first token: zeros, and of attention nothing."""
    leaves = {x.name: x for x in model.get_inputs() if x.name.startswith("state")}
    sizes = {"batch": rows, "past": 0}
    return {name: np.zeros([sizes.get(n, n) for n in x.shape], TYPES[x.type]) for name, x in leaves.items()}


def read(ids, state):
    """The log-probabilities (rows, tokens, vocabulary) after each of `ids`, and the state."""
    logits, *leaves = model.run(None, {"ids": np.asarray(ids, np.int64), **state})
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), dict(zip(state, leaves, strict=True))


def scores(ids, piece=1024):
    """The surprisal of each token. Attention reads windows that move on by half; each token is predicted once."""
    state, done, stride = start(), 0, max(1, (context or 0) // 2)
    while done < len(ids):
        begin = 0 if context is None or done < context else done - context + stride
        first = done if context is None else begin
        end = min(len(ids), first + (context or piece))
        inputs = [config["start"] if place < 0 else ids[place] for place in range(first - 1, end - 1)]
        found, after = read([inputs], start() if context else state)
        yield from zip(ids[done:end], -found[0, np.arange(done - first, end - first), ids[done:end]], strict=True)
        state, done = after, end


def decode(ids):
    """The text of tokens."""
    if config["words"] is None:
        return tokenizer.decode(ids)
    return written(map(tokenizer.id_to_token, ids), joins_marks=config["words"] == "simple")


def go_on(prompt, count):
    """The most probable next token, `count` times. Where a context is full, its last half is read again."""
    ids = [config["start"], *tokenizer.encode(prompt, add_special_tokens=False).ids]
    before, recent = decode(ids[1:]), ids[-(context or 0) :]
    found, state = read([recent], start())
    for _ in range(count):
        ids.append(int(found[0, -1].argmax()))
        recent = [*recent, ids[-1]]
        if context and len(recent) > context:
            recent = recent[-(context // 2 or 1) :]
            found, state = read([recent], start())
        else:
            found, state = read([ids[-1:]], state)
    return decode(ids[1:]).removeprefix(before)


sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale
if sys.argv[1:2] == ["--go-on"]:
    print(go_on(sys.argv[3], int(sys.argv[2])))
else:
    sys.stdin.reconfigure(encoding="utf-8")
    text = sys.stdin.read()
    read_text = tokenizer.encode(text, add_special_tokens=False)
    for (token, nats), (begin, end) in zip(scores(read_text.ids), read_text.offsets, strict=True):
        shown = [config["symbols"][token], *([text[begin:end]] if token == config["unknown"] else [])]
        columns = (json.dumps(part, ensure_ascii=False)[1:-1] for part in shown)
        print("\t".join([f"{max(nats, 0.0):9.4f}", *columns]))
