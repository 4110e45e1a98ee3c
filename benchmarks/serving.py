"""The server against `generate`, under open-loop load, and a tagger against spaCy in a FastAPI app.

    python benchmarks/serving.py streams RUN            tokens/s of 64 streams, and of 64 samples in a process
    python benchmarks/serving.py load RUN               a table for 1 to 4096 clients, Poisson arrivals
    python benchmarks/serving.py tagger RUN [PYTHON]    requests/s; PYTHON has spacy, fastapi and uvicorn
    python benchmarks/serving.py soak RUN [SECONDS]     clients that leave, read slowly, send too much or are killed

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


def ensue_server(run: str, *options: str) -> Server:
    return Server([sys.executable, "-m", "ensue", "serve", run, "--port", "0", *options])


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


async def soak(run: str, seconds: float = 60) -> None:
    """What the server holds at the end of a time in which clients misbehave; each right answer is compared."""
    server, name = ensue_server(run), Path(run).resolve().name
    await server.ready()
    some = [{"model": name, "prompt": "The king", "max_tokens": 40, "seed": seed, "top_p": 0.9} for seed in range(8)]
    answers = [json.loads((await exchange(server.port, "/v1/completions", one))[1])["choices"][0] for one in some]
    choose, counts = random.Random(0), dict.fromkeys(("right", "streamed", "left", "slow", "oversized", "torn"), 0)

    async def client() -> None:
        while time.perf_counter() < end:
            what, number = choose.choice(list(counts)), choose.randrange(len(some))
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await visit(server.port, what, some[number], answers[number]["text"])
                counts[what] += 1

    parts = max(4, round(seconds / 180))
    for part in range(parts):
        end = time.perf_counter() + seconds / parts
        await asyncio.gather(*(client() for _ in range(16)))
        await asyncio.sleep(2)
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) // 1024
        files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        numbers = (await exchange(server.port, "/metrics", None))[1].decode()
        held = [line.split()[1] for line in numbers.splitlines() if line.startswith("ensue_held{")]
        print(f"part {part + 1}: {counts}, {resident} MiB, {files} descriptors, held {held}", flush=True)
    server.end()


async def visit(port: int, what: str, wishes: dict[str, Any], expected: str) -> None:
    """One client: it wants an answer, which has to be the expected one, or it does something that clients do."""
    if what == "right":
        status, body = await exchange(port, "/v1/completions", wishes)
        assert status == 429 or json.loads(body)["choices"][0]["text"] == expected, body
        return
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if what == "oversized":
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n" + b" " * 65536
            )
            await reader.read(4096)
            return
        sent = request(
            "/v1/completions", {**wishes, "stream": True, **({} if what == "streamed" else {"max_tokens": 3000})}
        )
        writer.write(sent[: len(sent) // 2] if what == "torn" else sent)
        await writer.drain()
        if what == "streamed":
            whole = await reader.readuntil(b"data: [DONE]")
            events = [json.loads(line[6:]) for line in whole.split(b"\n") if line.startswith(b"data: {")]
            assert "".join(event["choices"][0]["text"] for event in events) == expected, whole
            return
        for _ in range(3 if what == "slow" else 1):
            await asyncio.sleep(0.3 if what == "slow" else 0.02)
            if what != "torn":
                await reader.read(512)
    finally:
        writer.transport.abort()


if __name__ == "__main__":
    commands = {"streams": streams, "load": load, "tagger": tagger, "soak": soak}
    name, *arguments = sys.argv[1:]
    values: list[Any] = [float(one) if one.replace(".", "").isdigit() else one for one in arguments]
    asyncio.run(commands[name](*values))
