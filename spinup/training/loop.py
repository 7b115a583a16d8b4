"""What the on-policy and the off-policy loop share: setting up a run, keeping count of episodes, ending it well."""

import inspect
import os
import random
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from spinup.training import hyperparams
from spinup.training.agent import Agent
from spinup.training.envs import Envs
from spinup.training.errors import NonFiniteError, UserError, one_line
from spinup.training.seeding import RANK_OFFSET, generators
from spinup.utils.logx import EpochLogger, Logger
from spinup.utils.mpi_tools import num_procs, proc_id

MAX_DEFAULT_THREADS = 2  # with more, matrices this small are multiplied more slowly

A = TypeVar("A", bound=Agent)
MakeAgent = Callable[..., A]  # make_agent(config, observation_space, action_space)


def default_threads() -> int:
    """Threads for the mathematics of one process: OMP_NUM_THREADS if that is set, else two at most."""
    chosen = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if chosen.isdecimal():
        return max(1, int(chosen))
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return max(1, min(MAX_DEFAULT_THREADS, cores // num_procs()))


def check_logger_kwargs(logger_kwargs: Any) -> None:
    try:
        inspect.signature(Logger).bind(**logger_kwargs)
    except TypeError as error:
        raise UserError(f"logger_kwargs={one_line(repr(logger_kwargs))}: {error}") from None


class Loop(Generic[A]):
    """One training run. `run()` takes it from the first reset to the last epoch.

    Everything that can be wrong with the arguments, the environment or the networks is found in the constructor,
    before the logger creates anything on disk.
    """

    continuous_only: bool  # whether the family needs actions that are real numbers
    first_epoch: int  # as `progress.txt` counts them

    def __init__(self, arguments: dict[str, Any], make_agent: MakeAgent[A], flatten_boxes: bool):
        self.flatten_boxes = flatten_boxes
        self.config = config = hyperparams.check(arguments)
        if config["threads"] is None:
            config["threads"] = default_threads()
        self.epochs, self.max_ep_len, self.n = config["epochs"], config["max_ep_len"], config["num_envs"]
        self.check_schedule()
        check_logger_kwargs(config["logger_kwargs"])
        self.rngs = generators(config["seed"], proc_id())
        # Our own code draws from `rngs` alone; environments and networks of the user may use the global generators.
        global_seed = config["seed"] + RANK_OFFSET * proc_id()
        random.seed(global_seed)
        np.random.seed(global_seed % 2**32)
        self.envs = self.make_envs(self.n, self.rngs.env)
        self.agent = make_agent(config, self.envs.observation_space, self.envs.action_space)
        self.obs = self.envs.reset()  # (n, *obs_shape), what to act on next
        self.ep_ret = np.zeros(self.n)
        self.ep_len = np.zeros(self.n, dtype=np.int64)
        self.epoch, self.steps = 0, 0  # finished so far; steps of all environments of this process

    def check_schedule(self) -> None:
        """Refuse a schedule that does not come out even."""

    def make_envs(self, n: int, rng: np.random.Generator) -> Envs:
        return Envs(
            self.config["env_fn"],
            n,
            rng,
            flatten_boxes=self.flatten_boxes,
            continuous_only=self.continuous_only,
        )

    def prepare(self) -> None:
        """Make what the family needs besides: buffers, a test environment."""

    def train_epochs(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.prepare()
            self.agent.start()
            self.logger = EpochLogger(**self.config["logger_kwargs"])
            self.logger.save_config(self.config)
            counts = ", \t".join(f"{name}: {count}" for name, count in self.agent.parameter_counts().items())
            self.logger.log(f"\nNumber of parameters: \t{counts}\n")
            self.agent.setup_saver(self.logger)
            self.start_time = time.time()
            with threadpool_limits(1, user_api="blas"):  # NumPy's products are tiny here
                self.train_epochs()
        except NonFiniteError as error:
            epoch = self.epoch + self.first_epoch
            raise NonFiniteError(f"stopped in epoch {epoch} after {self.steps} steps: {error}") from None
        finally:
            self.agent.close()
            if hasattr(self, "logger"):
                self.logger.close()

    def count_step(self, rew: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> np.ndarray:
        """Add one step to the running episodes; which of them are over, (n,) bool."""
        self.steps += self.n
        self.ep_ret += rew
        self.ep_len += 1
        done = terminated | truncated
        done |= self.ep_len >= self.max_ep_len
        return done

    def finish_episodes(self, done: np.ndarray) -> None:
        """Log the episodes that are over and begin new ones."""
        for i in np.flatnonzero(done):
            self.logger.store(EpRet=self.ep_ret[i], EpLen=self.ep_len[i])
        self.ep_ret[done], self.ep_len[done] = 0, 0
        self.obs = self.envs.restart(done)

    def save(self) -> None:
        """Save the model if it is due. Parameters that are not finite never replace good ones."""
        self.agent.check_finite()
        number = self.epoch + self.first_epoch
        if number % self.config["save_freq"] == 0 or self.epoch == self.epochs - 1:
            self.logger.save_state({"env": self.envs.envs[0]}, None)
