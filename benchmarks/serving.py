"""The speed of the server beside `samples`, under open-loop load, beside spaCy in FastAPI, and with hostile clients.

    python benchmarks/serving.py streams RUN            tokens/s of 64 streams, and of `samples` in a process
    python benchmarks/serving.py load RUN               a table for 1 to 4096 clients, Poisson arrivals
    python benchmarks/serving.py tagger RUN [PYTHON]    requests/s; PYTHON has spacy, fastapi and uvicorn
    python benchmarks/serving.py soak RUN TAGGER [SECONDS]    ten good clients, alone and with hostile clients

Each server is a separate process; the clients run in this process. Compared programs are measured in turns.
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

from machine import describe_machine

NUM_STREAMS, MAX_TOKENS = 64, 200
STREAM_TURNS, TAGGER_TURNS = 15, 3
NUM_GOOD_CLIENTS = 10
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
    return {"outputs": [[(word.text, word.ent_iob_, word.ent_type_) for word in document] for document in documents]}
"""


class Server:
    """The process of a server, and its address."""

    def __init__(self, command: list[str], url: str | None = None) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = url or self.process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2])

    async def wait_until_ready(self, path: str = "/ready") -> None:
        """Wait until the server answers."""
        for _ in range(600):
            with suppress(OSError):
                if (await exchange(self.port, path, None))[0] in (200, 404):
                    return
            await asyncio.sleep(0.2)
        raise SystemExit("the server did not start within 2 minutes")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def start_ensue(*arguments: str) -> Server:
    return Server([sys.executable, "-m", "ensue", "serve", *arguments, "--port", "0"])


def load_average() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def thread_seconds(server: Server) -> dict[str, float]:
    """Return the processor time of each thread of a server in seconds."""
    seconds = {}
    for file in Path(f"/proc/{server.process.pid}/task").glob("*/stat"):
        fields = file.read_text().rpartition(")")[2].split()
        seconds[file.parent.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def request(path: str, content: Any) -> bytes:
    """Return a POST request with bytes or a JSON object as its body, or a GET request if `content` is None."""
    body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
    method = b"GET" if content is None else b"POST"
    head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (method, path.encode(), len(body)) + body


async def exchange(port: int, path: str, content: Any) -> tuple[int, bytes]:
    """Send a request on a new connection. Return the status and the body of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request(path, content))
        return await read_response(reader)
    finally:
        writer.close()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the body of a response, for a stream up to its last event."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    if "content-length:" not in head:
        return int(head.split()[1]), await reader.readuntil(b"data: [DONE]")
    size = int(head.partition("content-length:")[2].split("\r")[0])
    return int(head.split()[1]), await reader.readexactly(size)


class Times(NamedTuple):
    """The seconds of a stream to the first token, between tokens and in total; its tokens; the HTTP status."""

    first: float
    between: float
    total: float
    tokens: int
    status: int


async def stream(port: int, parameters: dict[str, Any]) -> Times:
    """Request a completion as a stream, and read it."""
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    writer.write(request("/v1/completions", {**parameters, **options}))
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
    """Measure 64 concurrent streams, in turns with `samples` in a separate process."""
    server, name = start_ensue(run), Path(run).resolve().name
    await server.wait_until_ready()
    program = (
        "import sys, time, torch, ensue; torch.set_num_threads(1); lm = ensue.load(sys.argv[1], device='cpu')\n"
        "lm.samples('The', 64, max_tokens=20)\n"
        "for line in sys.stdin:\n"
        "    start, processor = time.perf_counter(), time.process_time()\n"
        f"    lm.samples('The', {NUM_STREAMS}, max_tokens={MAX_TOKENS}, seed=1)\n"
        "    print(time.perf_counter() - start, time.process_time() - processor, flush=True)\n"
    )
    sampler = subprocess.Popen(
        [sys.executable, "-c", program, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert sampler.stdin is not None
    assert sampler.stdout is not None
    requests_sent = [{"model": name, "prompt": "The", "max_tokens": MAX_TOKENS, "seed": n} for n in range(NUM_STREAMS)]
    await asyncio.gather(*(stream(server.port, parameters) for parameters in requests_sent[:8]))
    ratios, count = [], NUM_STREAMS * MAX_TOKENS
    for _ in range(STREAM_TURNS):
        sampler.stdin.write("\n")
        sampler.stdin.flush()
        wall, processor = map(float, (await asyncio.to_thread(sampler.stdout.readline)).split())
        start, before = time.perf_counter(), thread_seconds(server)
        times = await asyncio.gather(*(stream(server.port, parameters) for parameters in requests_sent))
        seconds = time.perf_counter() - start
        threads = sorted(after - before.get(thread, 0) for thread, after in thread_seconds(server).items())
        assert sum(stream_times.tokens for stream_times in times) == count
        ratios.append((wall / seconds, processor / threads[-1], processor / sum(threads)))
        print(
            f"tokens/s: samples {count / wall:7,.0f}, server {count / seconds:7,.0f}; by processor time: samples "
            f"{count / processor:7,.0f}, busiest thread of the server {count / threads[-1]:7,.0f}, all threads "
            f"{count / sum(threads):7,.0f}",
            flush=True,
        )
    wall, busiest, total = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(
        f"median ratios: {wall:.2f} by wall-clock time, {busiest:.2f} (busiest thread) and {total:.2f} (all threads) "
        f"by processor time; {load_average()}"
    )
    sampler.stdin.close()
    server.stop()


async def load(run: str, seconds: float = 15) -> None:
    """Measure Poisson arrivals: each client sends a request every four seconds on average, in an open loop."""
    name = Path(run).resolve().name
    print("clients  requests/s  tokens/s  first token p50, p99  between p50, p99  total p50, p99  refused")
    for clients in CLIENTS:
        server = start_ensue(run, "--places", "256")
        await server.wait_until_ready()
        generator, start, arrival = random.Random(clients), time.perf_counter(), 0.0
        tasks: list[asyncio.Task[Times]] = []
        while (arrival := arrival + generator.expovariate(clients / 4)) < seconds:
            await asyncio.sleep(max(0.0, start + arrival - time.perf_counter()))
            parameters = {"model": name, "prompt": "The king", "max_tokens": 100, "seed": len(tasks)}
            tasks.append(asyncio.create_task(stream(server.port, parameters)))
        times = await asyncio.gather(*tasks)
        duration = time.perf_counter() - start
        done = [stream_times for stream_times in times if stream_times.status == 200]
        columns = "  ".join(
            f"{1000 * percentile(values, 50):9.1f} {1000 * percentile(values, 99):8.1f}"
            for values in (
                [getattr(stream_times, name) for stream_times in done] for name in ("first", "between", "total")
            )
        )
        tokens = sum(stream_times.tokens for stream_times in done) / duration
        print(
            f"{clients:7}  {len(done) / duration:10.1f}  {tokens:8,.0f}  {columns}  {len(times) - len(done):7}",
            flush=True,
        )
        server.stop()
    print(f"milliseconds; {load_average()}")


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else float("nan")


async def measure_requests(server: Server, content: Any, clients: int, seconds: float) -> tuple[float, float]:
    """Measure a closed loop: each client sends a request when it has the response to the last one, on one connection.

    Returns:
        The requests per second, and the processor seconds of the server for one request.
    """
    start, before = time.perf_counter(), sum(thread_seconds(server).values())
    end, counts = start + seconds, [0] * clients

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while time.perf_counter() < end:
            sentence = SENTENCES[counts[number] % len(SENTENCES)]
            writer.write(request("/v1/predict", {**content, "inputs": [sentence]}))
            status, _ = await read_response(reader)
            assert status == 200, status
            counts[number] += 1
        writer.close()

    await asyncio.gather(*map(client, range(clients)))
    processor = sum(thread_seconds(server).values()) - before
    return sum(counts) / (time.perf_counter() - start), processor / sum(counts)


async def tagger(run: str, python: str | None = None, model: str = "en_core_web_sm") -> None:
    """Measure a tagger with one sentence per request and 8 connections."""
    ours, theirs = start_ensue(run), None
    await ours.wait_until_ready()
    if python:
        folder = tempfile.mkdtemp()
        (Path(folder) / "peer.py").write_text(SPACY.replace("MODEL", repr(model)))
        arguments = ["-m", "uvicorn", "peer:app", "--app-dir", folder, "--port", "8765", "--log-level", "warning"]
        theirs = Server([python, *arguments], "http://127.0.0.1:8765")
        await theirs.wait_until_ready("/docs")
    name = Path(run).resolve().name
    ratios = []
    for server, parameters in ((ours, {"model": name}), (theirs, {})):
        if server:
            await measure_requests(server, parameters, 8, 1)
    for _ in range(TAGGER_TURNS):
        rate, seconds = await measure_requests(ours, {"model": name}, 8, 4)
        peer_rate, peer_seconds = await measure_requests(theirs, {}, 8, 4) if theirs else (float("nan"), float("nan"))
        ratios.append((rate / peer_rate, peer_seconds / seconds))
        print(
            f"requests/s: ensue {rate:7.1f}, spaCy {peer_rate:7.1f}; processor ms per request: "
            f"ensue {1000 * seconds:.2f}, spaCy {1000 * peer_seconds:.2f}",
            flush=True,
        )
    wall, processor = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"median ratios: {wall:.2f} by wall-clock time, {processor:.2f} by processor time; {load_average()}")
    for server in filter(None, (ours, theirs)):
        server.stop()


async def soak(run: str, tagger: str, seconds: float = 60) -> None:
    """Measure ten good clients, first alone and then with one hostile client of each kind in a separate process.

    Each answer is compared with the first answer of its kind. The state of the server is printed for ten moments of the
    load, and for the end.
    """
    server = start_ensue(run, tagger, "--request-seconds", "20")
    await server.wait_until_ready()
    names = [Path(path).resolve().name for path in (run, tagger)]
    parameters = {"model": names[0], "prompt": "The king", "max_tokens": 40, "seed": 7, "top_p": 0.9}
    kinds = {
        "completion": ("/v1/completions", parameters),
        "stream": ("/v1/completions", {**parameters, "stream": True}),
        "predict": ("/v1/predict", {"model": names[1], "inputs": [SENTENCES[1]]}),
    }
    expected = {kind: answer_text(*await exchange(server.port, *content)) for kind, content in kinds.items()}
    alone, _ = await good_clients(server, kinds, expected, max(20.0, seconds / 10), 1)
    command = [sys.executable, __file__, "hostile", str(server.port), *names, str(seconds)]
    hostile = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    beside, states = await good_clients(server, kinds, expected, seconds, 10)
    assert hostile.stdout is not None
    print("hostile:", hostile.stdout.read().strip())
    await asyncio.sleep(25)
    states.append(server_state(server, (await exchange(server.port, "/metrics", None))[1].decode()))
    print("good clients: kind, answers, p50 and p99 in ms alone, with hostile clients, ratio of p99")
    for kind in (*kinds, "all"):
        pairs = [[seconds for name, seconds in times if kind in (name, "all")] for times in (alone, beside)]
        (p50, p99), (p50_beside, p99_beside) = ([1000 * percentile(values, n) for n in (50, 99)] for values in pairs)
        print(
            f"{kind:10} {len(pairs[0])} + {len(pairs[1])}: {p50:.1f} {p99:.1f}, {p50_beside:.1f} {p99_beside:.1f}, "
            f"{p99_beside / p99:.2f}"
        )
    print("MiB, file descriptors and reserved resources, ten times and at the end:", *states, sep="\n  ")
    print(load_average())
    server.stop()


def answer_text(status: int, body: bytes) -> str:
    """Return the text or the labels of a response."""
    assert status == 200, (status, body[:300])
    if body.endswith(b"data: [DONE]"):
        events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
        return "".join(event["choices"][0]["text"] for event in events)
    content = json.loads(body)
    return str(content["choices"][0]["text"] if "choices" in content else content["outputs"])


def server_state(server: Server, metrics: str) -> str:
    """Return the memory, the number of file descriptors and the reserved resources of a server."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    reserved = [line.split()[1] for line in metrics.splitlines() if line.startswith("ensue_held{")]
    return f"{int(status.partition('VmRSS:')[2].split()[0]) // 1024} MiB, {files}, {reserved}"


async def good_clients(
    server: Server, kinds: dict[str, Any], expected: dict[str, str], seconds: float, num_states: int
) -> tuple[list[tuple[str, float]], list[str]]:
    """Return the kind and the seconds of each answer, and the state of the server at `num_states` equal intervals."""
    times: list[tuple[str, float]] = []
    states: list[str] = []
    begin = time.perf_counter()

    async def client(number: int) -> None:
        generator = random.Random(number)
        while time.perf_counter() < begin + seconds:
            kind = generator.choice(list(kinds))
            start = time.perf_counter()
            text = answer_text(*await exchange(server.port, *kinds[kind]))
            times.append((kind, time.perf_counter() - start))
            assert text == expected[kind], (kind, text)
            await asyncio.sleep(generator.expovariate(5))

    async def observe() -> None:
        for number in range(num_states):
            await asyncio.sleep(max(0.0, begin + (number + 0.99) * seconds / num_states - time.perf_counter()))
            states.append(server_state(server, (await exchange(server.port, "/metrics", None))[1].decode()))

    await asyncio.gather(observe(), *map(client, range(NUM_GOOD_CLIENTS)))
    return times, states


async def hostile(port: float, run: str, tagger: str, seconds: float) -> None:
    """Run one hostile client of each kind, which repeats its request."""

    def repeat(item: bytes, count: int) -> bytes:
        return b"[" + b",".join([item] * count) + b"]"

    lm, tags = f'{{"model":"{run}",'.encode(), f'{{"model":"{tagger}",'.encode()
    long = "The sea was calm, and nobody spoke. "
    many_choices = {"model": run, "n": 128, "max_tokens": 2000, "logprobs": 5}
    endless = request("/v1/completions", {"model": run, "max_tokens": 60000, "stream": True})
    long_answer = request("/v1/score", {"model": run, "inputs": [long * 400]})
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
    clients: dict[str, tuple[bytes, float, float]] = {  # request, seconds to disconnection, seconds before each read
        "130,000 items": (request("/v1/predict", tags + b'"inputs":' + repeat(b"{}", 130_000) + b"}"), 30, 0),
        "4 MB of items": (request("/v1/predict", tags + b'"inputs":' + repeat(b"{}", 1_390_000) + b"}"), 30, 0),
        "500,000 lists": (request("/v1/predict", tags + b'"inputs":' + repeat(b"[]", 500_000) + b"}"), 30, 0),
        "1,000,000 ids": (request("/v1/completions", lm + b'"prompt":' + repeat(b"1", 1_000_000) + b"}"), 30, 0),
        "4 MB of escapes": (request("/v1/completions", lm + b'"prompt":"' + b"\\n" * 2_000_000 + b'"}'), 30, 0),
        "1,000 texts, leaves": (request("/v1/predict", {"model": tagger, "inputs": [SENTENCES[1]] * 1000}), 1, 0),
        "1,000 texts": (request("/v1/predict", {"model": tagger, "inputs": [SENTENCES[1]] * 1000}), 30, 0),
        "inspects 16,000 characters": (request("/v1/inspect", {"model": run, "inputs": [long * 440]}), 30, 0),
        "128 choices": (request("/v1/completions", many_choices), 30, 0),
        "a prompt of 60,000 tokens": (request("/v1/completions", {"model": run, "prompt": long * 1666}), 30, 0),
        "reads no answer": (long_answer, 30, 30),
        "reads no stream": (endless, 30, 30),
        "reads slowly": (endless, 30, 1),
        "leaves a stream": (endless, 0.2, 0),
        "sends too much": (head + b" " * 65536, 30, 0),
        "sends half": (endless[: len(endless) // 2], 15, 0),
        "two hosts": (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 30, 0),
    }
    counts, end = dict.fromkeys(clients, 0), time.perf_counter() + seconds

    async def client(name: str) -> None:
        content, timeout, delay = clients[name]
        while time.perf_counter() < end:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(timeout):
                    await send(content, delay)
            counts[name] += 1
            await asyncio.sleep(0.5)

    async def send(content: bytes, delay: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port), limit=4096)
        try:
            writer.write(content)
            await writer.drain()
            while await asyncio.sleep(delay, True) and (part := await reader.read(1 << 16)):
                if b"\r\n\r\n" in part and b"HTTP/1.1 200" not in part:
                    return
        finally:
            writer.transport.abort()

    await asyncio.gather(*map(client, clients))
    print(counts)


if __name__ == "__main__":
    commands: dict[str, Any] = {
        "streams": streams, "load": load, "tagger": tagger, "soak": soak, "hostile": hostile,
    }  # fmt: skip
    name, *arguments = sys.argv[1:] or ["--help"]
    if name not in commands:
        raise SystemExit(__doc__)
    if name != "hostile":
        print(describe_machine(seed=0))
    values: list[Any] = [float(value) if value.replace(".", "").isdigit() else value for value in arguments]
    asyncio.run(commands[name](*values))
