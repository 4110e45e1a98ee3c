"""Messages between processes, as bytes that cannot run code: JSON, and tensors as safetensors.

A message is the length of the JSON (8 bytes, little-endian), the JSON, and the tensors. In the JSON a list, a tuple, a
dict, a tensor or an array is an object with one key that says so; numbers, texts, booleans and None are themselves.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from ensue.errors import TrainingError


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
