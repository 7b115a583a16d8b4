"""What the agent remembers: the current rollout (on-policy) or the last million transitions (off-policy)."""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import psutil

from spinup.training.errors import UserError
from spinup.utils.mpi_tools import mpi_statistics_scalar

Shape = int | tuple[int, ...] | None


def combined_shape(length: int, shape: Shape = None) -> tuple[int, ...]:
    """The shape of `length` items of the given shape: (length,), (length, d) or (length, *shape)."""
    if shape is None:
        return (length,)
    return (length, shape) if np.isscalar(shape) else (length, *shape)  # type: ignore[misc,return-value]


def discount_cumsum(x: Any, discount: float) -> np.ndarray:
    """Discounted sums of the rest of a vector: y_t = x_t + discount * y_{t+1}, in double precision."""
    backwards = np.asarray(x, dtype=np.float64)[::-1].tolist()
    return np.array(list(accumulate(backwards, lambda y, x_t: x_t + discount * y)))[::-1]


def gae(rew: np.ndarray, val: np.ndarray, last_val: float, gamma: float, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantage estimates and rewards-to-go of one path of T steps.

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)
    adv_t   = sum_k (gamma lam)^k delta_{t+k}
    ret_t   = sum_k gamma^k r_{t+k} + gamma^{T-t} V(s_T)

    `last_val` is V(s_T): 0 if the path ended in a terminal state, else the value of the state it stopped in.
    """
    rew, val = np.append(rew, last_val), np.append(val, last_val)  # (T + 1,) both, float64
    deltas = rew[:-1] + gamma * val[1:] - val[:-1]
    return discount_cumsum(deltas, gamma * lam), discount_cumsum(rew, gamma)[:-1]


def normalize_advantages(adv: np.ndarray) -> np.ndarray:
    """(adv - mean) / std over all processes. The floor keeps constant advantages at zero instead of NaN."""
    mean, std = mpi_statistics_scalar(adv)[:2]
    return ((adv - mean) / (std + 1e-8)).astype(np.float32)


def check_memory(argument: str, value: int, numbers: int) -> None:
    """UserError if so many numbers in single precision are more than this machine holds."""
    needed, total = 4 * numbers, psutil.virtual_memory().total
    if needed > total:
        raise UserError(
            f"{argument}={value} needs {needed / 2**30:.1f} GiB, this machine has {total / 2**30:.1f} GiB:"
            f" choose a smaller {argument}"
        )


class GAEBuffer:
    """One rollout, filled a step at a time: the interface of the original's buffers.

    Training itself uses `Rollout` below, which holds n environments and is evaluated in one go when it is full.
    """

    def __init__(
        self,
        obs_dim: Shape,
        act_dim: Shape,
        size: int,
        info_shapes: Mapping[str, Shape] | None = None,
        gamma: float = 0.99,
        lam: float = 0.95,
    ):
        self.obs_buf = np.zeros(combined_shape(size, obs_dim), dtype=np.float32)
        self.act_buf = np.zeros(combined_shape(size, act_dim), dtype=np.float32)
        self.adv_buf = np.zeros(size, dtype=np.float32)
        self.rew_buf = np.zeros(size, dtype=np.float32)
        self.ret_buf = np.zeros(size, dtype=np.float32)
        self.val_buf = np.zeros(size, dtype=np.float32)
        self.logp_buf = np.zeros(size, dtype=np.float32)
        self.info_bufs = {
            key: np.zeros(combined_shape(size, shape), dtype=np.float32) for key, shape in (info_shapes or {}).items()
        }
        self.sorted_info_keys = sorted(self.info_bufs)
        self.gamma, self.lam = gamma, lam
        self.ptr, self.path_start_idx, self.max_size = 0, 0, size

    def store(self, obs: Any, act: Any, rew: Any, val: Any, logp: Any, info: Any = ()) -> None:
        """Add one step. `info` follows the alphabetical order of the keys."""
        assert self.ptr < self.max_size, f"the buffer is full: it holds {self.max_size} steps"
        self.obs_buf[self.ptr] = obs
        self.act_buf[self.ptr] = act
        self.rew_buf[self.ptr] = rew
        self.val_buf[self.ptr] = val
        self.logp_buf[self.ptr] = logp
        for key, value in zip(self.sorted_info_keys, info, strict=True):
            self.info_bufs[key][self.ptr] = value
        self.ptr += 1

    def finish_path(self, last_val: Any = 0) -> None:
        """Call at the end of an episode, or where one is cut off: `last_val` is 0 if it terminated, else V(s_T)."""
        path = slice(self.path_start_idx, self.ptr)
        last = float(np.squeeze(last_val))
        self.adv_buf[path], self.ret_buf[path] = gae(self.rew_buf[path], self.val_buf[path], last, self.gamma, self.lam)
        self.path_start_idx = self.ptr

    def get(self) -> Any:
        """Everything stored, advantages normalised over all processes; the buffer is empty again afterwards."""
        assert self.ptr == self.max_size, f"the buffer holds {self.ptr} of {self.max_size} steps: fill it first"
        self.ptr, self.path_start_idx = 0, 0
        self.adv_buf = normalize_advantages(self.adv_buf)
        return dict(
            obs=self.obs_buf,
            act=self.act_buf,
            ret=self.ret_buf,
            adv=self.adv_buf,
            logp=self.logp_buf,
            **{key: self.info_bufs[key] for key in self.sorted_info_keys},
        )


class OnPolicyBuffer(GAEBuffer):
    """The same without room for statistics: the buffer of VPG and PPO."""

    def __init__(self, obs_dim: Shape, act_dim: Shape, size: int, gamma: float = 0.99, lam: float = 0.95):
        super().__init__(obs_dim, act_dim, size, gamma=gamma, lam=lam)


class Rollout:
    """T steps of n environments. Values and log-probabilities are added when it is full, all at once."""

    def __init__(self, T: int, n: int, obs_shape: tuple[int, ...], act_shape: tuple[int, ...]):
        self.T, self.n = T, n
        check_memory("steps_per_epoch", T * n, T * n * (math.prod(obs_shape) + math.prod(act_shape) + 1))
        self.obs = np.zeros((T, n, *obs_shape), dtype=np.float32)
        self.act = np.zeros((T, n, *act_shape), dtype=np.float32)
        self.rew = np.zeros((T, n), dtype=np.float32)
        self.path_ends: list[list[int]] = []  # per environment: the step after the last of each finished path
        self.cut_at: list[tuple[int, int]] = []  # (environment, path end) of every path that did not terminate
        self.cut_obs: list[np.ndarray] = []  # the state each of those stopped in
        self.clear()

    def clear(self) -> None:
        self.path_ends = [[] for _ in range(self.n)]
        self.cut_at, self.cut_obs = [], []

    def end_path(self, t: int, env: int, final_obs: np.ndarray | None) -> None:
        """Step t was the last of a path. `final_obs` is the state it stopped in, None if that is terminal."""
        self.path_ends[env].append(t + 1)
        if final_obs is not None:
            self.cut_at.append((env, t + 1))
            self.cut_obs.append(final_obs.copy())

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Observations and actions of all steps, (T n, ...)."""
        return self.obs.reshape(self.T * self.n, *self.obs.shape[2:]), self.act.reshape(
            self.T * self.n, *self.act.shape[2:]
        )

    def finish(
        self, val: np.ndarray, cut_val: np.ndarray, logp: np.ndarray, gamma: float, lam: float
    ) -> dict[str, np.ndarray]:
        """The batch an update works on, given V of all steps (T n,) and of the states in `cut_obs`."""
        val, last_vals = val.reshape(self.T, self.n), dict(zip(self.cut_at, cut_val.tolist(), strict=True))
        adv, ret = np.empty((self.T, self.n)), np.empty((self.T, self.n), dtype=np.float32)
        for env, ends in enumerate(self.path_ends):
            start = 0
            for end in ends:
                last_val = last_vals.get((env, end), 0.0)
                adv[start:end, env], ret[start:end, env] = gae(
                    self.rew[start:end, env], val[start:end, env], last_val, gamma, lam
                )
                start = end
        obs, act = self.flat()
        return dict(obs=obs, act=act, ret=ret.ravel(), adv=normalize_advantages(adv.ravel()), logp=logp)


class ReplayBuffer:
    """First in, first out: the last `size` transitions (s, a, r, s', done) as float32 arrays."""

    def __init__(self, obs_dim: Shape, act_dim: Shape, size: int):
        numbers = 2 * int(np.prod(combined_shape(1, obs_dim))) + int(np.prod(combined_shape(1, act_dim))) + 2
        check_memory("replay_size", size, size * numbers)
        self.obs_buf = np.zeros(combined_shape(size, obs_dim), dtype=np.float32)
        self.obs2_buf = np.zeros(combined_shape(size, obs_dim), dtype=np.float32)
        self.act_buf = np.zeros(combined_shape(size, act_dim), dtype=np.float32)
        self.rew_buf = np.zeros(size, dtype=np.float32)
        self.done_buf = np.zeros(size, dtype=np.float32)
        self.ptr, self.size, self.max_size = 0, 0, size

    def store(self, obs: Any, act: Any, rew: Any, next_obs: Any, done: Any) -> None:
        """Add one transition, in place of the oldest one if the buffer is full."""
        self.obs_buf[self.ptr] = obs
        self.obs2_buf[self.ptr] = next_obs
        self.act_buf[self.ptr] = act
        self.rew_buf[self.ptr] = rew
        self.done_buf[self.ptr] = done
        self.ptr = (self.ptr + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def at(self, idxs: np.ndarray) -> dict[str, np.ndarray]:
        """The transitions with the given indices (any shape): arrays (*idxs.shape, ...)."""
        return dict(
            obs=self.obs_buf.take(idxs, axis=0),
            act=self.act_buf.take(idxs, axis=0),
            rew=self.rew_buf.take(idxs, axis=0),
            obs2=self.obs2_buf.take(idxs, axis=0),
            done=self.done_buf.take(idxs, axis=0),
        )

    def sample(self, rng: np.random.Generator, k: int, batch_size: int) -> dict[str, np.ndarray]:
        """k minibatches at once, drawn uniformly with replacement: arrays (k, batch_size, ...)."""
        return self.at(rng.integers(self.size, size=(k, batch_size)))

    def sample_batch(self, batch_size: int = 32) -> Any:
        """One minibatch, drawn with NumPy's global generator as the original did."""
        return self.at(np.random.randint(0, self.size, size=batch_size))
