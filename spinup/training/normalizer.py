"""Running statistics of observations, over all processes."""

import numpy as np

from spinup.training.acting import Normalizer
from spinup.utils.mpi_tools import mpi_sum

CLIP = 10.0  # normalised observations stay within +- CLIP


def merge(count: float, mean: np.ndarray, std: np.ndarray, obs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Count, mean and standard deviation of `count` earlier observations together with `obs` of all processes."""
    obs = obs.astype(np.float64)
    n = float(mpi_sum(len(obs)))
    new_mean = mpi_sum(obs.sum(0)) / n
    new_var = mpi_sum(((obs - new_mean) ** 2).sum(0)) / n
    if count == 0:
        return n, new_mean, _std(new_var)
    total, delta, mean = count + n, new_mean - mean, mean.astype(np.float64)
    var = (std.astype(np.float64) ** 2 * count + new_var * n + delta**2 * count * n / total) / total
    return total, mean + delta * n / total, _std(var)


def _std(var: np.ndarray) -> np.ndarray:
    return np.sqrt(var).clip(min=1e-4)  # where an observation never changes


class RunningNormalizer(Normalizer):
    """(obs - mean) / std within +- clip, that learns mean and std from what it is shown."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__(np.zeros(shape, np.float32), np.ones(shape, np.float32), CLIP)
        self.count = 0.0

    def update(self, obs: np.ndarray) -> None:
        self.count, self.mean[...], self.std[...] = merge(self.count, self.mean, self.std, obs)
