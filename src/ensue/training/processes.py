"""The processes that torchrun has started, as the `Ranks` of a run.

torchrun says in environment variables which process this is and where they meet. They share a store there, which knows
who failed, and add up numbers through gloo, or NCCL on GPUs of NVIDIA. What goes wrong is said once: the first process
that fails claims the word in the store, and the others end in silence.

A message between them is bytes that cannot run code: the length of the JSON (8 bytes, little-endian), the JSON, and the
tensors as safetensors. In the JSON a list, a tuple, a dict, a tensor or an array is an object with one key that says
so; numbers, texts, booleans and None are themselves.
"""

from __future__ import annotations

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

from ensue.errors import EnsueError, SilentError, TrainingError
from ensue.ranks import Ranks, is_in_parts, local_part, ranks, together


def packed(value: Any) -> bytes:
    """A value as bytes. Raises TypeError for what is none of the kinds above, subclasses of tuple among them."""
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_tree(value, tensors)).encode()
    return len(tree).to_bytes(8, "little") + tree + save(tensors)


def unpacked(message: bytes) -> Any:
    """The value. Raises TrainingError for bytes that are no message."""
    try:
        end = 8 + int.from_bytes(message[:8], "little")
        return _value(json.loads(message[8:end]), load(message[end:]))
    except Exception as error:  # safetensors raises errors of its own
        raise TrainingError(f"another process sent what is no message of this ensue ({type(error).__name__})") from None


def _tree(value: Any, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Tensor):
        tensors[name := str(len(tensors))] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        return {"array": _tree(torch.from_numpy(value.copy()), tensors)["tensor"]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_tree(each, tensors) for each in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _tree(each, tensors) for key, each in value.items()}}
    raise TypeError(f"{type(value).__name__} is nothing that processes send to each other")


def _value(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "array":
            return tensors[content].numpy()
        case "dict":
            return {key: _value(each, tensors) for key, each in content.items()}
    return {"list": list, "tuple": tuple}[kind](_value(each, tensors) for each in content)


Result = TypeVar("Result")
TIMEOUT = 600
"""Seconds after which a process that does not answer ends the run."""
MEETING = 300
"""Seconds in which all processes have to appear."""
PAUSE = 0.05
"""Seconds between two looks at the store."""
LAST_WORDS = 3
"""Seconds in which a process that failed can say so, after the others have lost it."""


class LostError(TrainingError):
    """Another process has ended or does not answer."""


class Processes(Ranks):
    """The processes of a run, met over `store`."""

    def __init__(self, store: Any, rank: int, size: int, *, timeout: float) -> None:
        self.rank, self.size = rank, size
        self.local_rank, self.local_size = _number("LOCAL_RANK", 0), _number("LOCAL_WORLD_SIZE", 1)
        self.store, self.timeout, self._talks, self._turn = store, timeout, count(), ""

    def add(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, in place; of an exact run as a binary tree."""
        with self.answered():
            if not self.exact:
                dist.all_reduce(numbers)
                return numbers
            distance, other = 1, torch.empty_like(numbers)
            while distance < self.size:
                peer = self.rank ^ distance
                both = [dist.P2POp(dist.isend, numbers, peer), dist.P2POp(dist.irecv, other, peer)]
                for work in dist.batch_isend_irecv(both):
                    work.wait()
                numbers += other
                distance *= 2
        return numbers

    def whole(self, tensor: Tensor) -> Tensor:
        if not is_in_parts(tensor):
            return tensor
        with self.answered():
            return tensor.full_tensor()  # type: ignore[attr-defined, no-any-return]

    def take(self, tensor: Tensor, whole: Tensor) -> None:
        if is_in_parts(tensor):
            most = -(-len(whole) // self.size)  # rows of a process; the last ones have fewer, or none
            whole = whole[self.rank * most : (self.rank + 1) * most]
        local_part(tensor).copy_(whole)

    def gathered(self, found: Any) -> list[Any]:
        message = torch.frombuffer(bytearray(packed(found)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self.answered():
            dist.all_gather(sizes, torch.tensor([len(message)]))
            longest = max(map(int, sizes))
            all_found = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(all_found, nn.functional.pad(message, (0, longest - len(message))))
        return [unpacked(part[: int(size)].numpy().tobytes()) for part, size in zip(all_found, sizes, strict=True)]

    def first_to_others(self, found: Any) -> Any:
        """The value of the first process, for which the others wait as long as it takes."""
        key = self._next_key()
        if self.is_first:
            self.store.set(key, packed(found))
            return found
        self._wait(key)
        return unpacked(self.store.get(key))

    def in_turn(self, function: Callable[[], Result]) -> Result:
        self._turn = f"{self._next_key()} of {self.rank - self.local_rank}"
        if self.local_rank:
            self._wait(self._turn)
        result = function()
        self.end_turn()
        return result

    def end_turn(self) -> None:
        if self._turn and not self.local_rank:
            self.store.set(self._turn, b"done")
        self._turn = ""

    def _next_key(self) -> str:
        return f"talk {next(self._talks)}"

    def _wait(self, key: str) -> None:
        while not self._is_there(key):
            if self._is_there("failed"):
                raise SilentError
            time.sleep(PAUSE)

    def _is_there(self, key: str) -> bool:
        try:
            return bool(self.store.check([key]))
        except RuntimeError:
            raise LostError(f"process {self.rank}: the others are gone") from None

    @contextmanager
    def answered(self, told_by: Callable[[RuntimeError], bool] = lambda error: True) -> Iterator[None]:
        """Tells in one line that others have ended or do not answer, if that is what an error says."""
        begun = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            if not told_by(error):
                raise
            raise LostError(self._loss(time.monotonic() - begun)) from None

    @contextmanager
    def present(self) -> Iterator[None]:
        """Answers for the duration of a `with` block when another process asks who is there, whatever this one does."""
        over = threading.Event()

        def answer() -> None:
            with suppress(RuntimeError, LostError):
                while not over.wait(LAST_WORDS / 6):
                    if self._is_there("who is there"):
                        self.store.set(f"alive/{self.rank}", b"yes")
                        return

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _loss(self, waited: float) -> str:
        """The message when the others cannot be reached: who does not answer, if it can be found out."""
        with suppress(RuntimeError):
            self.store.set("who is there", b"?")
            self.store.set(f"alive/{self.rank}", b"yes")
            until = time.monotonic() + LAST_WORDS
            while time.monotonic() < until and not self._is_there("failed"):
                time.sleep(PAUSE)
            missing = [rank for rank in range(self.size) if not self._is_there(f"alive/{rank}")]
            if missing:
                names, has = ", ".join(map(str, missing)), "has" if len(missing) == 1 else "have"
                how = "ended" if waited < self.timeout else f"not answered for {self.timeout:g} seconds"
                return f"process{'es' * (len(missing) > 1)} {names} of {self.size} {has} {how}"
        return "the other processes of this run have ended"

    def leave(self) -> None:
        """Ends in peace: the first process, which may hold the store, leaves last."""
        with suppress(RuntimeError):
            self.store.set(f"left/{self.rank}", b"yes")
            until = time.monotonic() + LAST_WORDS
            keys = [f"left/{rank}" for rank in range(self.size)]
            while self.is_first and time.monotonic() < until and not all(map(self._is_there, keys)):
                time.sleep(PAUSE)

    def speaks(self) -> bool:
        """Whether this process is the one that tells of the failure; the first that asks."""
        with suppress(RuntimeError):
            return bool(self.store.compare_set("failed", "", str(self.rank)).decode() == str(self.rank))
        return self.is_first


@contextmanager
def joined(*, timeout: float = TIMEOUT) -> Iterator[Ranks]:
    """Meets the processes that torchrun started. Raises one's error there, and SilentError in the others."""
    if ranks().size > 1 or _number("WORLD_SIZE", 1) == 1:
        yield ranks()
        return
    processes = _met(timeout)
    try:
        with processes.present(), together(processes):
            yield processes
        processes.leave()
    except Exception:
        if not processes.speaks():
            raise SilentError from None
        raise
    finally:
        dist.destroy_process_group()


def _met(timeout: float) -> Processes:
    """The processes, once all are there."""
    rank, size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    place = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    try:
        shared, _, _ = next(dist.rendezvous("env://", rank, size, timeout=timedelta(seconds=MEETING)))
        # torchrun's store outlives a restart, and has the addresses of processes that are gone
        store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), shared)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        if "EADDRINUSE" in str(error):
            raise EnsueError(f"{place}: the port is in use; choose another MASTER_PORT") from None
        first, *_ = str(error).splitlines()
        raise EnsueError(f"process {rank} of {size} cannot meet the others at {place}: {first}") from None
    return Processes(store, rank, size, timeout=timeout)


def _number(name: str, default: int) -> int:
    """A whole number that torchrun has set."""
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise EnsueError(f"the variable {name} is {value!r}; torchrun sets it to a whole number")
    return int(value)
