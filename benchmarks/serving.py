"""The server against `generate`, under open-loop load, and a tagger against spaCy in a FastAPI app.

    python benchmarks/serving.py streams RUN            tokens/s of 64 streams, and of 64 samples in a process
    python benchmarks/serving.py load RUN               a table for 1 to 4096 clients, Poisson arrivals
    python benchmarks/serving.py tagger RUN [PYTHON]    requests/s; PYTHON has spacy, fastapi and uvicorn
    python benchmarks/serving.py soak RUN TAGGER [SECONDS]    ten good clients, alone and beside hostile ones

Servers are processes of their own; the client is this one. What is compared is measured in turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

STREAMS, TOKENS = 64, 200
STREAM_TURNS, TAGGER_TURNS = 15, 3
CLIENTS = (1, 8, 64, 512, 2048, 4096)
SENTENCES = [
    "EU rejects German call to boycott British lamb .",
    "The committee met in Geneva on Tuesday to hear what the farmers of northern Italy had to say .",
    "Peter Blackburn",
    "Rare Hendrix song draft sells for almost 17,000 dollars at a sale in London , the auction house said .",
]
SPACY = """
import spacy
from fastapi import FastAPI
from pydantic import BaseModel

nlp = spacy.load(MODEL)
app = FastAPI()

class Texts(BaseModel):
    inputs: list[str]

@app.post("/v1/predict")
def predict(texts: Texts):
    documents = nlp.pipe(texts.inputs)
    return {"outputs": [[(token.text, token.ent_iob_, token.ent_type_) for token in found] for found in documents]}
"""


class Server:
    """A process that serves, and its address."""

    def __init__(self, command: list[str], url: str | None = None) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = url or self.process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2])

    async def ready(self, path: str = "/ready") -> None:
        for _ in range(600):
            with suppress(OSError):
                if (await exchange(self.port, path, None))[0] in (200, 404):
                    return
            await asyncio.sleep(0.2)
        raise SystemExit("the server did not begin")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def ensue_server(*arguments: str) -> Server:
    return Server([sys.executable, "-m", "ensue", "serve", *arguments, "--port", "0"])


def loaded() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def busy_threads(server: Server) -> dict[str, float]:
    """The processor time of each thread of a server, in seconds."""
    found = {}
    for file in Path(f"/proc/{server.process.pid}/task").glob("*/stat"):
        fields = file.read_text().rpartition(")")[2].split()
        found[file.parent.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def request(path: str, content: Any) -> bytes:
    body = b"" if content is None else json.dumps(content).encode()
    method = b"GET" if content is None else b"POST"
    head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (method, path.encode(), len(body)) + body


async def exchange(port: int, path: str, content: Any) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request(path, content))
        return await answer(reader)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if "content-length:" not in head:
        return int(head.split()[1]), await reader.readuntil(b"data: [DONE]")
    size = int(head.partition("content-length:")[2].split("\r")[0])
    return int(head.split()[1]), await reader.readexactly(size)


class Times(NamedTuple):
    """Of one stream: seconds to its first piece, between its pieces on average, whole; its tokens; its status."""

    first: float
    between: float
    whole: float
    tokens: int
    status: int


async def stream(port: int, wishes: dict[str, Any]) -> Times:
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    writer.write(request("/v1/completions", {**wishes, **options}))
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status, first, last, usage = int(head.split()[1]), 0.0, start, b""
    try:
        if status != 200:
            return Times(0, 0, time.perf_counter() - start, 0, status)
        while True:
            size = int(await reader.readline(), 16)
            part = await reader.readexactly(size + 2)
            if b"data: {" in part:
                first, last = first or time.perf_counter(), time.perf_counter()
            usage = part if b'"completion_tokens"' in part else usage
            if size == 0 or b"[DONE]" in part:
                break
        tokens = int(usage.partition(b'"completion_tokens":')[2].split(b",")[0])
        return Times(first - start, (last - first) / max(1, tokens - 1), time.perf_counter() - start, tokens, status)
    finally:
        writer.close()


async def streams(run: str) -> None:
    """64 streams at once, in turns with `samples` of a process that does nothing else."""
    server, name = ensue_server(run), Path(run).resolve().name
    await server.ready()
    program = (
        "import sys, time, torch, ensue; torch.set_num_threads(1); lm = ensue.load(sys.argv[1], device='cpu')\n"
        "lm.samples('The', 64, max_tokens=20)\n"
        "for line in sys.stdin:\n"
        "    start, busy = time.perf_counter(), time.process_time()\n"
        f"    lm.samples('The', {STREAMS}, max_tokens={TOKENS}, seed=1)\n"
        "    print(time.perf_counter() - start, time.process_time() - busy, flush=True)\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    wishes = [{"model": name, "prompt": "The", "max_tokens": TOKENS, "seed": n} for n in range(STREAMS)]
    await asyncio.gather(*(stream(server.port, one) for one in wishes[:8]))
    ratios, count = [], STREAMS * TOKENS
    for _ in range(STREAM_TURNS):
        other.stdin.write("\n")
        other.stdin.flush()
        wall, busy = map(float, (await asyncio.to_thread(other.stdout.readline)).split())
        start, before = time.perf_counter(), busy_threads(server)
        found = await asyncio.gather(*(stream(server.port, one) for one in wishes))
        took = time.perf_counter() - start
        threads = sorted(after - before.get(thread, 0) for thread, after in busy_threads(server).items())
        assert sum(one.tokens for one in found) == count
        ratios.append((wall / took, busy / threads[-1], busy / sum(threads)))
        print(
            f"tokens/s: generate {count / wall:7,.0f}, server {count / took:7,.0f}; by processor time: generate "
            f"{count / busy:7,.0f}, the server's loop {count / threads[-1]:7,.0f}, all of the server "
            f"{count / sum(threads):7,.0f}",
            flush=True,
        )
    wall, loop, whole = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"medians: {wall:.2f} by the clock, {loop:.2f} and {whole:.2f} by processor time; {loaded()}")
    other.stdin.close()
    server.end()


async def load(run: str, seconds: float = 15) -> None:
    """Poisson arrivals: clients that each ask once in four seconds on average, whatever the server does."""
    name = Path(run).resolve().name
    print("clients  requests/s  tokens/s  first token p50, p99  between p50, p99  whole p50, p99  refused")
    for clients in CLIENTS:
        server = ensue_server(run, "--places", "256")
        await server.ready()
        choose, tasks, start = random.Random(clients), [], time.perf_counter()
        at = 0.0
        while (at := at + choose.expovariate(clients / 4)) < seconds:
            await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
            wishes = {"model": name, "prompt": "The king", "max_tokens": 100, "seed": len(tasks)}
            tasks.append(asyncio.create_task(stream(server.port, wishes)))
        found = await asyncio.gather(*tasks)
        took = time.perf_counter() - start
        done = [one for one in found if one.status == 200]
        columns = "  ".join(
            f"{1000 * percentile(values, 50):9.1f} {1000 * percentile(values, 99):8.1f}"
            for values in ([getattr(one, what) for one in done] for what in ("first", "between", "whole"))
        )
        tokens = sum(one.tokens for one in done) / took
        print(
            f"{clients:7}  {len(done) / took:10.1f}  {tokens:8,.0f}  {columns}  {len(found) - len(done):7}", flush=True
        )
        server.end()
    print(f"milliseconds; {loaded()}")


def percentile(values: list[float], share: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else float("nan")


async def requests(server: Server, content: Any, clients: int, seconds: float) -> tuple[float, float]:
    """Requests per second, and the seconds of processor time of the server for one. Closed loop: each client asks again
    when it has its answer, on one connection.
    """
    start, before = time.perf_counter(), sum(busy_threads(server).values())
    end, counts = start + seconds, [0] * clients

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while time.perf_counter() < end:
            sentence = SENTENCES[counts[number] % len(SENTENCES)]
            writer.write(request("/v1/predict", {**content, "inputs": [sentence]}))
            status, _ = await answer(reader)
            assert status == 200, status
            counts[number] += 1
        writer.close()

    await asyncio.gather(*map(client, range(clients)))
    busy = sum(busy_threads(server).values()) - before
    return sum(counts) / (time.perf_counter() - start), busy / sum(counts)


async def tagger(run: str, python: str | None = None, model: str = "en_core_web_sm") -> None:
    """One sentence a request, 8 connections."""
    ours, theirs = ensue_server(run), None
    await ours.ready()
    if python:
        folder = tempfile.mkdtemp()
        (Path(folder) / "peer.py").write_text(SPACY.replace("MODEL", repr(model)))
        arguments = ["-m", "uvicorn", "peer:app", "--app-dir", folder, "--port", "8765", "--log-level", "warning"]
        theirs = Server([python, *arguments], "http://127.0.0.1:8765")
        await theirs.ready("/docs")
    name = Path(run).resolve().name
    ratios = []
    for server, wishes in ((ours, {"model": name}), (theirs, {})):
        if server:
            await requests(server, wishes, 8, 1)
    for _ in range(TAGGER_TURNS):
        mine, busy = await requests(ours, {"model": name}, 8, 4)
        peer, peer_busy = await requests(theirs, {}, 8, 4) if theirs else (float("nan"), float("nan"))
        ratios.append((mine / peer, peer_busy / busy))
        print(
            f"requests/s: ensue {mine:7.1f}, spaCy {peer:7.1f}; ms of processor time for one: ensue {1000 * busy:.2f}, "
            f"spaCy {1000 * peer_busy:.2f}",
            flush=True,
        )
    wall, processor = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"medians: {wall:.2f} by the clock, {processor:.2f} by processor time; {loaded()}")
    for server in filter(None, (ours, theirs)):
        server.end()


GOOD = 10


async def soak(run: str, tagger: str, seconds: float = 60) -> None:
    """Ten good clients, first alone and then beside one hostile client of each kind, which are in a process of their
    own. Every answer is compared with the first of its kind, and the memory is looked at ten times.
    """
    server = ensue_server(run, tagger, "--request-seconds", "20")
    await server.ready()
    names = [Path(one).resolve().name for one in (run, tagger)]
    wishes = {"model": names[0], "prompt": "The king", "max_tokens": 40, "seed": 7, "top_p": 0.9}
    kinds = {
        "completion": ("/v1/completions", wishes),
        "stream": ("/v1/completions", {**wishes, "stream": True}),
        "predict": ("/v1/predict", {"model": names[1], "inputs": [SENTENCES[1]]}),
    }
    expected = {kind: what_is_said(*await exchange(server.port, *asked)) for kind, asked in kinds.items()}
    alone, _ = await good_clients(server, kinds, expected, max(20.0, seconds / 10), 1)
    command = [sys.executable, __file__, "hostile", str(server.port), *names, str(seconds)]
    hostile = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    beside, states = await good_clients(server, kinds, expected, seconds, 10)
    assert hostile.stdout is not None
    print("hostile:", hostile.stdout.read().strip())
    await asyncio.sleep(25)
    states.append(state_of(server, (await exchange(server.port, "/metrics", None))[1].decode()))
    print("good clients: kind, answers, p50 and p99 in ms alone, the same beside, ratio of p99")
    for kind in (*kinds, "all"):
        pairs = [[took for name, took in found if kind in (name, "all")] for found in (alone, beside)]
        (p50, p99), (p50_beside, p99_beside) = ([1000 * percentile(took, n) for n in (50, 99)] for took in pairs)
        print(
            f"{kind:10} {len(pairs[0])} + {len(pairs[1])}: {p50:.1f} {p99:.1f}, {p50_beside:.1f} {p99_beside:.1f}, "
            f"{p99_beside / p99:.2f}"
        )
    print("MiB, descriptors and what is held, at each tenth and at the end:", *states, sep="\n  ")
    print(loaded())
    server.end()


def what_is_said(status: int, body: bytes) -> str:
    """The text or the labels of an answer."""
    assert status == 200, (status, body[:300])
    if body.endswith(b"data: [DONE]"):
        events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
        return "".join(event["choices"][0]["text"] for event in events)
    found = json.loads(body)
    return str(found["choices"][0]["text"] if "choices" in found else found["outputs"])


def state_of(server: Server, numbers: str) -> str:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    held = [line.split()[1] for line in numbers.splitlines() if line.startswith("ensue_held{")]
    return f"{int(status.partition('VmRSS:')[2].split()[0]) // 1024} MiB, {files}, {held}"


async def good_clients(
    server: Server, kinds: dict[str, Any], expected: dict[str, str], seconds: float, parts: int
) -> tuple[list[tuple[str, float]], list[str]]:
    """The seconds of each answer by its kind, and the state of the server at the end of each part."""
    found: list[tuple[str, float]] = []
    states: list[str] = []
    begin = time.perf_counter()

    async def client(number: int) -> None:
        choose = random.Random(number)
        while time.perf_counter() < begin + seconds:
            kind = choose.choice(list(kinds))
            start = time.perf_counter()
            said = what_is_said(*await exchange(server.port, *kinds[kind]))
            found.append((kind, time.perf_counter() - start))
            assert said == expected[kind], (kind, said)
            await asyncio.sleep(choose.expovariate(5))

    async def look() -> None:
        for part in range(parts):
            await asyncio.sleep(max(0.0, begin + (part + 0.99) * seconds / parts - time.perf_counter()))
            states.append(state_of(server, (await exchange(server.port, "/metrics", None))[1].decode()))

    await asyncio.gather(look(), *map(client, range(GOOD)))
    return found, states


async def hostile(port: float, run: str, tagger: str, seconds: float) -> None:
    """One client of each kind, again and again."""

    def body(path: str, content: bytes | dict[str, Any]) -> bytes:
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        return head % (path.encode(), len(sent)) + sent

    def many(item: bytes, count: int) -> bytes:
        return b"[" + b",".join([item] * count) + b"]"

    lm, tags = f'{{"model":"{run}",'.encode(), f'{{"model":"{tagger}",'.encode()
    long = "The sea was calm, and nobody spoke. "
    hog = {"model": run, "n": 128, "max_tokens": 2000, "logprobs": 5}
    endless = body("/v1/completions", {"model": run, "max_tokens": 60000, "stream": True})
    answer = body("/v1/score", {"model": run, "inputs": [long * 400]})
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
    ways: dict[str, tuple[bytes, float, float]] = {  # what is sent, seconds until it leaves, seconds before it reads
        "130,000 items": (body("/v1/predict", tags + b'"inputs":' + many(b"{}", 130_000) + b"}"), 30, 0),
        "4 MB of items": (body("/v1/predict", tags + b'"inputs":' + many(b"{}", 1_390_000) + b"}"), 30, 0),
        "500,000 lists": (body("/v1/predict", tags + b'"inputs":' + many(b"[]", 500_000) + b"}"), 30, 0),
        "1,000,000 ids": (body("/v1/completions", lm + b'"prompt":' + many(b"1", 1_000_000) + b"}"), 30, 0),
        "4 MB of escapes": (body("/v1/completions", lm + b'"prompt":"' + b"\\n" * 2_000_000 + b'"}'), 30, 0),
        "1,000 texts, leaves": (body("/v1/predict", {"model": tagger, "inputs": [SENTENCES[1]] * 1000}), 1, 0),
        "1,000 texts": (body("/v1/predict", {"model": tagger, "inputs": [SENTENCES[1]] * 1000}), 30, 0),
        "inspects 16,000 characters": (body("/v1/inspect", {"model": run, "inputs": [long * 440]}), 30, 0),
        "128 choices": (body("/v1/completions", hog), 30, 0),
        "a prompt of 60,000 tokens": (body("/v1/completions", {"model": run, "prompt": long * 1666}), 30, 0),
        "reads no answer": (answer, 30, 30),
        "reads no stream": (endless, 30, 30),
        "reads slowly": (endless, 30, 1),
        "leaves a stream": (endless, 0.2, 0),
        "sends too much": (head + b" " * 65536, 30, 0),
        "sends half": (endless[: len(endless) // 2], 15, 0),
        "two hosts": (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 30, 0),
    }
    counts, end = dict.fromkeys(ways, 0), time.perf_counter() + seconds

    async def client(way: str) -> None:
        sent, leaves, waits = ways[way]
        while time.perf_counter() < end:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(leaves):
                    await visit(sent, waits)
            counts[way] += 1
            await asyncio.sleep(0.5)

    async def visit(sent: bytes, waits: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port), limit=4096)
        try:
            writer.write(sent)
            await writer.drain()
            while await asyncio.sleep(waits, True) and (part := await reader.read(1 << 16)):
                if b"\r\n\r\n" in part and b"HTTP/1.1 200" not in part:
                    return
        finally:
            writer.transport.abort()

    await asyncio.gather(*map(client, ways))
    print(counts)


if __name__ == "__main__":
    commands = {"streams": streams, "load": load, "tagger": tagger, "soak": soak, "hostile": hostile}
    name, *arguments = sys.argv[1:]
    values: list[Any] = [float(one) if one.replace(".", "").isdigit() else one for one in arguments]
    asyncio.run(commands[name](*values))
