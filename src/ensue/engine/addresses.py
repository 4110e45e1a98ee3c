"""The addresses that are handed to C, each of a tensor that is what the code there takes it for.

C checks nothing and what a layer holds may be changed at any time, so the last moment before a call is the one at which
to look. What does not fit is a `ValueError` or, of another type or device, a `TypeError`, with the name of the array.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def address(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> int:
    """Of a tensor of these sizes without gaps."""
    _check(name, tensor, dtype, sizes, tuple(tensor.shape) == tuple(sizes))
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is expected without gaps, found strides {tensor.stride()}")
    return tensor.data_ptr()


def address_of_matrix(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> int:
    """Of a matrix of these sizes and of any strides."""
    _check(name, tensor, dtype, sizes, tuple(tensor.shape) == tuple(sizes))
    return tensor.data_ptr()


def address_of_rows(name: str, tensor: Tensor, dtype: torch.dtype, rows: int, width: int) -> int:
    """Of (rows or more, width) numbers, those of a row side by side."""
    shape = tensor.shape
    _check(name, tensor, dtype, (rows, width), len(shape) == 2 and shape[0] >= rows and shape[1] == width)
    if width > 1 and tensor.stride(1) != 1:
        raise ValueError(f"{name} is expected with features side by side, found strides {tensor.stride()}")
    return tensor.data_ptr()


def _check(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int], has_sizes: bool) -> None:
    if not has_sizes:
        raise ValueError(f"{name} is expected as {tuple(sizes)}, found {tuple(tensor.shape)}")
    if tensor.dtype is not dtype or not tensor.is_cpu or tensor.is_neg():
        found = f"{tensor.dtype} on {tensor.device}{' with its sign to be turned' * tensor.is_neg()}"
        raise TypeError(f"{name} is expected in {dtype} on cpu, found {found}")
