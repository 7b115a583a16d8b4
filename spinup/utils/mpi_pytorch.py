"""Data-parallel PyTorch over MPI: same weights everywhere, gradients averaged. CPU arithmetic between ranks.

Usage::

    setup_pytorch_for_mpi()     # share the cores
    ac = MLPActorCritic(...)
    sync_params(ac)             # start from the weights of rank 0

    optimizer.zero_grad()       # then, in each step:
    loss.backward()
    mpi_avg_grads(ac)           # the average gradient of all ranks
    optimizer.step()

With one process none of these does anything.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from spinup.utils.mpi_tools import allreduce, broadcast, num_procs

_fair_share: int | None = None  # the number of threads that setup_pytorch_for_mpi has set


def setup_pytorch_for_mpi() -> None:
    """Divide PyTorch's threads among the processes, so that they do not fight over the cores.

    Calling it again changes nothing.
    """
    global _fair_share
    threads = torch.get_num_threads()
    if num_procs() == 1 or threads in (1, _fair_share):
        return
    _fair_share = max(threads // num_procs(), 1)
    torch.set_num_threads(_fair_share)


def mpi_avg_grads(module: torch.nn.Module | Iterable[torch.nn.Parameter]) -> None:
    """Collective: replace every gradient by its average over all ranks, in place, with a single reduction.

    Takes a module or its parameters.

    A gradient that is missing on some ranks counts as zero there. One that is missing on all stays missing.
    """
    if num_procs() == 1:
        return
    params = list(module.parameters() if isinstance(module, torch.nn.Module) else module)
    if not params:
        return
    dtype = torch.float64 if any(p.dtype == torch.float64 for p in params) else torch.float32
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    # The last entries count, for each parameter, the ranks that have a gradient.
    present = torch.tensor([p.grad is not None for p in params])
    flat = torch.cat([g.detach().reshape(-1).to("cpu", dtype) for g in [*grads, present]]).numpy()
    total = np.empty_like(flat)
    allreduce(flat, total)

    sums = torch.from_numpy(total)
    average = sums[: -len(params)] / num_procs()
    ranks_with_grad = sums[-len(params) :].tolist()
    pieces = average.split([p.numel() for p in params])
    for p, grad, piece, ranks in zip(params, grads, pieces, ranks_with_grad, strict=True):
        if ranks > 0:
            grad.detach().copy_(piece.view_as(p))
            p.grad = grad


def sync_params(module: torch.nn.Module) -> None:
    """Collective: overwrite parameters and buffers (such as running statistics) with those of rank 0.

    One broadcast for each data type.
    """
    if num_procs() == 1:
        return
    by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in [*module.parameters(), *module.buffers()]:
        by_dtype.setdefault(tensor.dtype, []).append(tensor.detach())  # shares its memory with the original
    for tensors in by_dtype.values():
        flat = torch.cat([t.reshape(-1).cpu() for t in tensors])
        broadcast(flat.view(torch.uint8).numpy())  # as bytes, since NumPy and MPI lack some types of PyTorch
        for t, piece in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.copy_(piece.view_as(t))
