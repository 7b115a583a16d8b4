"""The loop of DDPG, TD3 and SAC: act, store, and every `update_every` steps learn from what is stored."""

import random
import time
from typing import Any

import numpy as np

from spinup.training.agent import OffPolicyAgent
from spinup.training.buffers import ReplayBuffer
from spinup.training.envs import Envs
from spinup.training.errors import NonFiniteError, UserError
from spinup.training.loop import Loop, MakeAgent
from spinup.training.seeding import draw_seed
from spinup.utils.mpi_tools import num_procs

UPDATES_PER_CALL = 50  # minibatches gathered at once, so that a large block does not need a large copy of the buffer


class OffPolicyLoop(Loop[OffPolicyAgent]):
    continuous_only = True
    first_epoch = 1

    def __init__(
        self,
        arguments: dict[str, Any],
        make_agent: MakeAgent[OffPolicyAgent],
        value_columns: list[str],
        loss_columns: list[str],
        *,
        flatten_boxes: bool = True,
    ):
        self.value_columns, self.loss_columns = value_columns, loss_columns
        super().__init__(arguments, make_agent, flatten_boxes)

    def check_schedule(self) -> None:
        if num_procs() > 1:
            raise UserError(
                f"DDPG, TD3 and SAC run in one process, this is one of {num_procs()}: use num_envs, or start one run"
                " per seed"
            )
        self.steps_per_epoch = self.config["steps_per_epoch"]
        if self.config["batch_size"] > self.config["replay_size"]:
            raise UserError(
                f"batch_size={self.config['batch_size']} is more than the replay buffer holds,"
                f" {self.config['replay_size']}: choose a smaller batch_size, or a larger replay_size"
            )
        if self.steps_per_epoch % self.n:
            raise UserError(
                f"num_envs={self.n} does not divide steps_per_epoch={self.steps_per_epoch}:"
                f" choose a multiple of {self.n}"
            )

    def prepare(self) -> None:
        space, config = self.envs.action_space, self.config
        self.act_low = space.low.astype(np.float32)  # type: ignore[attr-defined]
        self.act_high = space.high.astype(np.float32)  # type: ignore[attr-defined]
        self.buffer = ReplayBuffer(self.envs.obs_shape, space.shape, config["replay_size"])
        self.test_envs = self.make_envs(self.n if self.envs.is_pool else 1, self.rngs.evaluation)
        # An env_fn may return one and the same object each time. Then an evaluation ends the training episode.
        self.env_is_shared = self.test_envs.shares_with(self.envs)

    def train_epochs(self) -> None:
        self.logger.register("EpRet", "EpLen", "TestEpRet", "TestEpLen", *self.value_columns, *self.loss_columns)
        while self.epoch < self.epochs:
            t = self.steps  # index of the step about to be taken, in the first environment
            a = self.act(t)  # (n, act_dim)
            o = self.obs
            self.obs, r, terminated, truncated = self.envs.step(a)
            for i in range(self.n):
                self.buffer.store(o[i], a[i], r[i], self.obs[i], terminated[i])
            done = self.count_step(r, terminated, truncated)
            if np.count_nonzero(done):
                self.finish_episodes(done)
            for _ in range(self.blocks_due(t)):
                self.update()
            if self.steps % self.steps_per_epoch == 0:
                self.save()
                self.test_agent()
                self.log()
                self.epoch += 1

    def act(self, t: int) -> np.ndarray:
        """Uniformly random at first, then the policy: SAC's own samples, or the mode plus noise for DDPG and TD3."""
        if t < self.config["start_steps"]:
            shape = (self.n, *self.act_low.shape)
            return self.rngs.random_actions.uniform(self.act_low, self.act_high, shape).astype(np.float32)
        policy, rng = self.agent.policy, self.rngs.noise
        if "act_noise" not in self.config:
            return policy.sample(self.obs, rng)
        a = policy.mode(self.obs)
        a = a + self.config["act_noise"] * rng.standard_normal(a.shape, dtype=np.float32)
        return np.minimum(np.maximum(a, self.act_low), self.act_high)

    def blocks_due(self, t: int) -> int:
        """How many of the steps t .. t + n - 1 are multiples of `update_every`, from `update_after` on.

        A block makes `update_every` updates, so there is one update per step in the long run, whatever n is.
        """
        every, first = self.config["update_every"], max(t, self.config["update_after"])
        return max(0, (t + self.n - 1) // every - (first - 1) // every)

    def update(self) -> None:
        """`update_every` gradient steps."""
        left = self.config["update_every"]
        while left > 0:
            k = min(left, UPDATES_PER_CALL)
            batches = self.buffer.sample(self.rngs.replay, k, self.config["batch_size"])
            self.logger.store(**self.agent.update_many(batches))
            left -= k

    def test_agent(self) -> None:
        """Episodes with deterministic actions in an environment, and from seeds, that training never uses."""
        if self.config["num_test_episodes"] == 0:
            return
        envs, left = self.test_envs, self.config["num_test_episodes"]
        global_states = random.getstate(), np.random.get_state()  # an environment may draw from these
        try:
            while left > 0:  # as many episodes at once as there are environments: one, but for EnvPool
                returns, lengths = self.test_episodes(envs)
                for ep_ret, ep_len in zip(returns[:left], lengths[:left], strict=True):
                    self.logger.store(TestEpRet=ep_ret, TestEpLen=ep_len)
                left -= envs.n
        except NonFiniteError as error:
            raise NonFiniteError(f"in the evaluation, {error}") from None
        finally:
            random.setstate(global_states[0])
            np.random.set_state(global_states[1])
        if self.env_is_shared:
            self.ep_ret[:], self.ep_len[:] = 0, 0
            self.obs = self.envs.restart(np.ones(self.n, dtype=bool))

    def test_episodes(self, envs: Envs) -> tuple[np.ndarray, np.ndarray]:
        """Return and length of one episode in each environment."""
        ep_ret, ep_len = np.zeros(envs.n), np.zeros(envs.n, dtype=np.int64)
        running = np.ones(envs.n, dtype=bool)
        o = envs.reset([draw_seed(self.rngs.evaluation) for _ in range(envs.n)])
        while True:
            o, r, terminated, truncated = envs.step(self.agent.policy.mode(o))
            ep_ret[running] += r[running]
            ep_len[running] += 1
            running &= ~(terminated | truncated | (ep_len >= self.max_ep_len))
            if not running.any():
                return ep_ret, ep_len

    def log(self) -> None:
        log = self.logger.log_tabular
        log("Epoch", self.epoch + self.first_epoch)
        log("EpRet", with_min_and_max=True)
        log("TestEpRet", with_min_and_max=True)
        log("EpLen", average_only=True)
        log("TestEpLen", average_only=True)
        log("TotalEnvInteracts", self.steps)
        for column in self.value_columns:
            log(column, with_min_and_max=True)
        for column in self.loss_columns:
            log(column, average_only=True)
        log("Time", time.time() - self.start_time)
        self.logger.dump_tabular()
