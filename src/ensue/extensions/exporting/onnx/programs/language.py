"""A language model with onnxruntime, numpy and tokenizers.

python predict.py < text                   print the surprisal of each token in nats, like `ensue score`
python predict.py --generate 100 "prompt"   print 100 greedy tokens, like `ensue generate --temperature 0`
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from ensue.text.tokenizer import join_words

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
model = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
context = config["context"]  # the maximum number of tokens, or None without a limit
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def start(rows=1):
    """Return the state before the first token: zeros, and no past positions for attention."""
    leaves = {x.name: x for x in model.get_inputs() if x.name.startswith("state")}
    sizes = {"batch": rows, "past": 0}
    return {name: np.zeros([sizes.get(n, n) for n in x.shape], TYPES[x.type]) for name, x in leaves.items()}


def read(ids, state):
    """Return the log-probabilities (rows, tokens, vocabulary) of the token after each id, and the state."""
    logits, *leaves = model.run(None, {"ids": np.asarray(ids, np.int64), **state})
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), dict(zip(state, leaves, strict=True))


def scores(ids, chunk_tokens=1024):
    """Yield pairs of token and surprisal. A model with a context reads windows with an overlap of half a context."""
    state, num_read, stride = start(), 0, max(1, (context or 0) // 2)
    while num_read < len(ids):
        begin = 0 if context is None or num_read < context else num_read - context + stride
        first = num_read if context is None else begin
        end = min(len(ids), first + (context or chunk_tokens))
        inputs = [config["start"] if index < 0 else ids[index] for index in range(first - 1, end - 1)]
        log_p, after = read([inputs], start() if context else state)
        new = ids[num_read:end]
        yield from zip(new, -log_p[0, np.arange(num_read - first, end - first), new], strict=True)
        state, num_read = after, end


def decode(ids):
    """Return the text of tokens."""
    if config["words"] is None:
        return tokenizer.decode(ids)
    return join_words(map(tokenizer.id_to_token, ids), joins_marks=config["words"] == "simple")


def generate(prompt, count):
    """Return the text of `count` tokens by greedy decoding. The last half of a full context is read as a prompt."""
    ids = [config["start"], *tokenizer.encode(prompt, add_special_tokens=False).ids]
    prompt, recent = decode(ids[1:]), ids[-(context or 0) :]
    log_p, state = read([recent], start())
    for _ in range(count):
        ids.append(int(log_p[0, -1].argmax()))
        recent = [*recent, ids[-1]]
        if context and len(recent) > context:
            recent = recent[-(context // 2 or 1) :]
            log_p, state = read([recent], start())
        else:
            log_p, state = read([ids[-1:]], state)
    return decode(ids[1:]).removeprefix(prompt)


sys.stdout.reconfigure(encoding="utf-8")  # independent of the locale
if sys.argv[1:2] in (["--generate"], ["--go-on"]):  # --go-on is the option of earlier programs
    print(generate(sys.argv[3], int(sys.argv[2])))
else:
    sys.stdin.reconfigure(encoding="utf-8")
    text = sys.stdin.read()
    encoding = tokenizer.encode(text, add_special_tokens=False)
    for (token, nats), (begin, end) in zip(scores(encoding.ids), encoding.offsets, strict=True):
        texts = [config["symbols"][token], *([text[begin:end]] if token == config["unknown"] else [])]
        columns = (json.dumps(column, ensure_ascii=False)[1:-1] for column in texts)
        print("\t".join([f"{max(nats, 0.0):9.4f}", *columns]))
