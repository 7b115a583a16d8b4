"""Averages and statistics over parallel processes (MPI), and the call that starts those processes.

MPI is optional. A process that no MPI launcher has started is a world of its own: rank 0 of 1, where a sum
over all ranks is the value itself. ``mpi4py`` is then neither needed nor imported.

Every function marked *collective* waits for the other ranks: all of them must call it, in the same order.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

# Each launcher sets at least one of these in the processes that it starts: Open MPI the first, MPICH and its
# relatives the next two, `srun` PMI_SIZE or PMIX_RANK. Slurm's own SLURM_PROCID is of no use: it is also set
# where no MPI runs. IN_MPI is set by `mpi_fork`, or by hand for a launcher that is not recognised.
LAUNCHER_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK", "IN_MPI")

INSTALL_HINT = 'pip install "spinup[mpi]"'


def __getattr__(name: str) -> Any:
    """``mpi_tools.MPI`` is the module ``mpi4py.MPI``, imported only by those who ask for it."""
    if name == "MPI":
        from mpi4py import MPI

        return MPI
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _world() -> Any:
    """The world communicator, or None for a single process that never asked for MPI."""
    if "mpi4py.MPI" in sys.modules or any(name in os.environ for name in LAUNCHER_VARIABLES):
        return _load_world()
    return None


@functools.cache
def _load_world() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # a RuntimeError if there is mpi4py but no MPI library
        if "1" in (os.environ.get("OMPI_COMM_WORLD_SIZE"), os.environ.get("PMI_SIZE")):
            return None  # there is nobody to talk to
        raise RuntimeError(
            f"an MPI launcher started this process, but mpi4py cannot be imported: {INSTALL_HINT}"
        ) from error
    if MPI.COMM_WORLD.Get_size() > 1:
        _abort_all_ranks_on_error(MPI.COMM_WORLD)
    return MPI.COMM_WORLD


def _abort_all_ranks_on_error(world: Any) -> None:
    """Make an uncaught exception on one rank stop the job: the others would wait for that rank for ever."""
    report = sys.excepthook

    def stop(*exception: Any) -> None:
        report(*exception)
        rank, size = world.Get_rank(), world.Get_size()
        print(f"MPI rank {rank} of {size} failed; stopping all ranks.", file=sys.stderr, flush=True)
        world.Abort(1)

    sys.excepthook = stop


def stop_all_ranks(status: int) -> None:
    """End the whole job, if there is one: before a process leaves that others may be waiting for."""
    if num_procs() > 1:
        _world().Abort(status)


def _op(name: str) -> Any:
    """The MPI operation of that name. One process alone needs none."""
    if _world() is None:
        return None
    from mpi4py import MPI

    return getattr(MPI, name)


def mpi_fork(n: int, bind_to_core: bool = False, *, mpirun_args: Sequence[str] = ()) -> None:
    """Run the current program again in ``n`` parallel processes, and exit when they are done.

    The code after this call runs in the workers only, and the code before it runs in the workers once more:
    keep that cheap. Inside a world of several ranks (as under ``mpirun`` or ``srun``) the call does nothing.

    Args:
        n: Number of processes. Nothing happens for ``n <= 1``.
        bind_to_core: Tie each process to one core.
        mpirun_args: More arguments for the launcher. For more processes than cores, Open MPI wants
            ``["--oversubscribe"]``.

    Raises:
        subprocess.CalledProcessError: If a worker failed.
    """
    if n <= 1 or "IN_MPI" in os.environ or num_procs() > 1:
        return
    # A virtual environment that was not activated is not on PATH, so look beside the interpreter first.
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    launcher = shutil.which("mpirun", path=places) or shutil.which("mpiexec", path=places)
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        missing = "mpirun" if launcher is None else "mpi4py"
        raise RuntimeError(f"{n} processes were asked for, but {missing} is missing: {INSTALL_HINT}")

    # One thread per process: the processes share the cores already.
    env = {**os.environ, "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "IN_MPI": "1"}
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in containers, where Open MPI would refuse
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    binding = ["--bind-to", "core"] if bind_to_core else []
    sys.stdout.flush()
    subprocess.check_call([launcher, "-np", str(n), *binding, *mpirun_args, *_own_command()], env=env)
    sys.exit()


def _own_command() -> list[str]:
    """The command that starts this program again: a script, ``python -m module`` or ``python -c code``."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name != "__main__":  # a directory or zip file that is run is named __main__
        return [sys.executable, "-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]]
    if sys.argv[0] == "-c":
        return [sys.executable, *sys.orig_argv[1:]]
    return [sys.executable, *sys.argv]


def msg(m: Any, string: str = "") -> None:
    """Print a message with the rank of the process that says it."""
    print(f"Message from {proc_id()}: {string}\t{m}", flush=True)


def proc_id() -> int:
    """Rank of this process: 0 for the first."""
    world = _world()
    return 0 if world is None else world.Get_rank()


def num_procs() -> int:
    """Number of processes."""
    world = _world()
    return 1 if world is None else world.Get_size()


def allreduce(*args: Any, **kwargs: Any) -> None:
    """Collective: ``Allreduce(sendbuf, recvbuf, op=SUM)`` of the world communicator, on NumPy arrays."""
    world = _world()
    if world is None:
        _allreduce_alone(*args, **kwargs)
    else:
        world.Allreduce(*args, **kwargs)


def _allreduce_alone(sendbuf: Any, recvbuf: np.ndarray, op: Any = None) -> None:
    np.copyto(recvbuf, np.reshape(sendbuf, recvbuf.shape))


def broadcast(x: np.ndarray, root: int = 0) -> None:
    """Collective: overwrite the contiguous array ``x`` with that of rank ``root``, in place."""
    world = _world()
    if world is not None:
        world.Bcast(x, root=root)


def as_numpy(x: Any) -> np.ndarray:
    """Any number, array or tensor as a NumPy array."""
    if hasattr(x, "detach"):  # a PyTorch tensor, which may need a gradient or live on a GPU
        x = x.detach().cpu()
    return np.asarray(x)


def mpi_op(x: Any, op: Any) -> Any:
    """Collective: combine the ``x`` of all ranks with an MPI operation, element by element.

    Single precision stays single; all other numbers are combined in double precision. A scalar or a tensor
    without axes gives a NumPy scalar, anything else a new NumPy array of the same shape.
    """
    array = as_numpy(x)
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    sendbuf = np.ascontiguousarray(array, dtype=dtype)  # has at least one axis
    recvbuf = np.empty_like(sendbuf)
    allreduce(sendbuf, recvbuf, op=op)
    return recvbuf if array.ndim else recvbuf[0]


def mpi_sum(x: Any) -> Any:
    """Collective: sum over all ranks."""
    return mpi_op(x, _op("SUM"))


def mpi_avg(x: Any) -> Any:
    """Collective: average over all ranks."""
    total = mpi_sum(x)
    return total / total.dtype.type(num_procs())


def mpi_statistics_scalar(x: Any, with_min_and_max: bool = False) -> tuple[float, ...]:
    """Collective: mean and standard deviation (optionally minimum and maximum) over the numbers of all ranks.

    Args:
        x: Samples of this rank, of any shape. Ranks may have different numbers of samples, or none.
        with_min_and_max: Also return the extremes.

    Returns:
        ``(mean, std)`` or ``(mean, std, min, max)`` as Python numbers, so that single-precision arrays stay
        single when normalised with them. ``std`` divides by the number of samples. All are NaN if no rank has
        any sample.
    """
    x = as_numpy(x).astype(np.float64)
    # The number of samples is the same on all ranks, so they all take the same branches.
    total, count = mpi_sum([x.sum(), x.size]).tolist()
    mean = total / count if count else np.nan
    squares = float(mpi_sum(np.square(x - mean).sum()))
    std = float(np.sqrt(squares / count)) if count else np.nan
    if not with_min_and_max:
        return mean, std
    low = float(mpi_op(x.min(initial=np.inf), _op("MIN")))
    high = float(mpi_op(x.max(initial=-np.inf), _op("MAX")))
    return (mean, std, low, high) if count else (mean, std, np.nan, np.nan)
