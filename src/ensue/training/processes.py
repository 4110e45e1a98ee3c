"""A process group over the processes that torchrun has started.

torchrun sets environment variables with the rank, the size of the group and the address of a key-value store. Tensors
are reduced by gloo, or by NCCL on NVIDIA GPUs. Only the first failing rank reports its error: it writes the key
"failed" to the store, and the other ranks exit silently.

A message between ranks is the length of a JSON text (8 bytes, little-endian), the JSON text, and its tensors as
safetensors, so that reading a message never runs code. In the JSON text a list, tuple, dict, tensor or array is an
object whose only key names the type. Numbers, strings, booleans and None are JSON values.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor, nn

from ensue.errors import EnsueError, ReportedError, TrainingError
from ensue.ranks import ProcessGroup, is_sharded, local_shard, process_group, use_process_group


def pack_message(value: Any) -> bytes:
    """Return a value as bytes. Raises TypeError for types without a representation, such as named tuples."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_to_tree(value, tensors)).encode()
    return len(tree).to_bytes(8, "little") + tree + save(tensors)


def unpack_message(message: bytes) -> Any:
    """Return the value of a message. Raises TrainingError for other bytes."""
    try:
        end = 8 + int.from_bytes(message[:8], "little")
        return _from_tree(json.loads(message[8:end]), load(message[end:]))
    except Exception as error:  # safetensors has its own exceptions
        raise TrainingError(f"invalid message from another process ({type(error).__name__})") from None


def _to_tree(value: Any, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Tensor):
        tensors[name := str(len(tensors))] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        return {"array": _to_tree(torch.from_numpy(value.copy()), tensors)["tensor"]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_to_tree(item, tensors) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _to_tree(item, tensors) for key, item in value.items()}}
    raise TypeError(f"unsupported type in a message between processes: {type(value).__name__}")


def _from_tree(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "array":
            return tensors[content].numpy()
        case "dict":
            return {key: _from_tree(item, tensors) for key, item in content.items()}
    return {"list": list, "tuple": tuple}[kind](_from_tree(item, tensors) for item in content)


Result = TypeVar("Result")
DEFAULT_TIMEOUT_SECONDS = 600
"""The run ends after this time without an answer from a rank."""
RENDEZVOUS_SECONDS = 300
"""The time limit for all ranks to connect to the store."""
POLL_SECONDS = 0.05
"""The interval between two requests to the store."""
LIVENESS_SECONDS = 3
"""How long a rank that lost its connection waits for another rank's error, or for answers to a liveness check."""


class LostError(TrainingError):
    """Another rank has ended or does not answer."""


class DistributedGroup(ProcessGroup):
    """The process group of `torch.distributed`, whose ranks also share the key-value store `store`."""

    def __init__(self, store: Any, rank: int, size: int, *, timeout: float) -> None:
        self.rank, self.size, self.is_first = rank, size, rank == 0
        self.local_rank, self.local_size = _read_number("LOCAL_RANK", 0), _read_number("LOCAL_WORLD_SIZE", 1)
        self.store, self.timeout, self._numbers, self._first_key = store, timeout, count(), ""

    def all_reduce(self, numbers: Tensor) -> Tensor:
        """Return the sum over all ranks, in place; in exact runs the additions form a binary tree."""
        with self.detect_lost_ranks():
            if not self.exact:
                dist.all_reduce(numbers)
                return numbers
            distance, received = 1, torch.empty_like(numbers)
            while distance < self.size:
                peer = self.rank ^ distance
                exchange = [dist.P2POp(dist.isend, numbers, peer), dist.P2POp(dist.irecv, received, peer)]
                for work in dist.batch_isend_irecv(exchange):
                    work.wait()
                numbers += received
                distance *= 2
        return numbers

    def full_tensor(self, tensor: Tensor) -> Tensor:
        if not is_sharded(tensor):
            return tensor
        with self.detect_lost_ranks():
            return tensor.full_tensor()  # type: ignore[attr-defined]

    def copy_shard(self, tensor: Tensor, full: Tensor) -> None:
        if is_sharded(tensor):
            num_rows = -(-len(full) // self.size)  # the last shards have fewer rows, or none
            full = full[self.rank * num_rows : (self.rank + 1) * num_rows]
        local_shard(tensor).copy_(full)

    def all_gather(self, value: Any) -> list[Any]:
        message = torch.frombuffer(bytearray(pack_message(value)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self.detect_lost_ranks():
            dist.all_gather(sizes, torch.tensor([len(message)]))
            max_size = max(map(int, sizes))
            padded = [torch.empty(max_size, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(padded, nn.functional.pad(message, (0, max_size - len(message))))
        return [unpack_message(row[: int(size)].numpy().tobytes()) for row, size in zip(padded, sizes, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """Return the value of rank 0. The other ranks wait for this value without a timeout."""
        key = self._next_key()
        if self.is_first:
            self.store.set(key, pack_message(value))
            return value
        self._wait(key)
        return unpack_message(self.store.get(key))

    def first_locally(self, function: Callable[[], Result]) -> Result:
        self._first_key = f"{self._next_key()} of {self.rank - self.local_rank}"
        if self.local_rank:
            self._wait(self._first_key)
        result = function()
        self.release_local_ranks()
        return result

    def release_local_ranks(self) -> None:
        if self._first_key and not self.local_rank:
            self.store.set(self._first_key, b"done")
        self._first_key = ""

    def _next_key(self) -> str:
        return f"message {next(self._numbers)}"

    def _wait(self, key: str) -> None:
        while not self._has(key):
            if self._has("failed"):
                raise ReportedError
            time.sleep(POLL_SECONDS)

    def _has(self, key: str) -> bool:
        try:
            return bool(self.store.check([key]))
        except RuntimeError:
            raise LostError(f"process {self.rank}: no connection to the other processes") from None

    @contextmanager
    def detect_lost_ranks(self, is_lost: Callable[[RuntimeError], bool] = lambda error: True) -> Iterator[None]:
        """Raise a LostError that names the lost ranks in place of a RuntimeError for which `is_lost` returns True."""
        start = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            if not is_lost(error):
                raise
            raise LostError(self._name_lost_ranks(time.monotonic() - start)) from None

    @contextmanager
    def answer_liveness_checks(self) -> Iterator[None]:
        """Answer the liveness checks of other ranks from a thread during a `with` block."""
        stopped = threading.Event()

        def answer() -> None:
            with suppress(RuntimeError, LostError):
                while not stopped.wait(LIVENESS_SECONDS / 6):
                    if self._has("liveness check"):
                        self.store.set(f"alive/{self.rank}", b"yes")
                        return

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _name_lost_ranks(self, waited_seconds: float) -> str:
        """Return an error message that names the ranks without an answer to a liveness check."""
        with suppress(RuntimeError):
            self.store.set("liveness check", b"?")
            self.store.set(f"alive/{self.rank}", b"yes")
            deadline = time.monotonic() + LIVENESS_SECONDS
            while time.monotonic() < deadline and not self._has("failed"):
                time.sleep(POLL_SECONDS)
            missing = [rank for rank in range(self.size) if not self._has(f"alive/{rank}")]
            if missing:
                names, has = ", ".join(map(str, missing)), "has" if len(missing) == 1 else "have"
                ended = "ended" if waited_seconds < self.timeout else f"not answered for {self.timeout:g} seconds"
                return f"process{'es' * (len(missing) > 1)} {names} of {self.size} {has} {ended}"
        return "the other processes of this run have ended"

    def leave(self) -> None:
        """Leave the group. Rank 0 leaves last, since its process may be the server of the store."""
        with suppress(RuntimeError):
            self.store.set(f"left/{self.rank}", b"yes")
            deadline = time.monotonic() + LIVENESS_SECONDS
            keys = [f"left/{rank}" for rank in range(self.size)]
            while self.is_first and time.monotonic() < deadline and not all(map(self._has, keys)):
                time.sleep(POLL_SECONDS)

    def is_first_to_fail(self) -> bool:
        """Return whether this rank failed first. The first failing rank reports its error."""
        with suppress(RuntimeError):
            return bool(self.store.compare_set("failed", "", str(self.rank)).decode() == str(self.rank))
        return self.is_first


@contextmanager
def join_process_group(*, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> Iterator[ProcessGroup]:
    """Use the group of torchrun's processes during a `with` block.

    The first failing rank raises its error, and all other ranks raise ReportedError.
    """
    if process_group().size > 1 or _read_number("WORLD_SIZE", 1) == 1:
        yield process_group()
        return
    group = _connect(timeout)
    try:
        with group.answer_liveness_checks(), use_process_group(group):
            yield group
        group.leave()
    except Exception:
        if not group.is_first_to_fail():
            raise ReportedError from None
        raise
    finally:
        dist.destroy_process_group()


def _connect(timeout: float) -> DistributedGroup:
    rank, size = _read_number("RANK", 0), _read_number("WORLD_SIZE", 1)
    address = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    try:
        shared, _, _ = next(dist.rendezvous("env://", rank, size, timeout=timedelta(seconds=RENDEZVOUS_SECONDS)))
        # after a restart torchrun's store still has the addresses of ended processes, hence the prefix
        store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), shared)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        if "EADDRINUSE" in str(error):
            raise EnsueError(f"{address}: the port is in use; choose another MASTER_PORT") from None
        first, *_ = str(error).splitlines()
        raise EnsueError(f"process {rank} of {size} cannot connect to the store at {address}: {first}") from None
    return DistributedGroup(store, rank, size, timeout=timeout)


def _read_number(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise EnsueError(f"the environment variable {name} is {value!r}; expected an integer, as torchrun sets it")
    return int(value)
