"""The loop of VPG, TRPO and PPO: collect a rollout with the current policy, learn from it, throw it away."""

import time
from typing import Any

import numpy as np

from spinup.training.agent import OnPolicyAgent
from spinup.training.buffers import Rollout
from spinup.training.envs import action_shape
from spinup.training.errors import UserError
from spinup.training.loop import Loop, MakeAgent
from spinup.utils.mpi_tools import num_procs


class OnPolicyLoop(Loop[OnPolicyAgent]):
    continuous_only = False
    first_epoch = 0

    def __init__(
        self,
        arguments: dict[str, Any],
        make_agent: MakeAgent[OnPolicyAgent],
        columns: list[str],
        *,
        flatten_boxes: bool = True,
    ):
        self.columns = columns  # what the algorithm logs besides what is common to all
        super().__init__(arguments, make_agent, flatten_boxes)

    def check_schedule(self) -> None:
        steps, procs = self.config["steps_per_epoch"], num_procs()
        if steps < procs:
            raise UserError(f"steps_per_epoch={steps} is less than the number of processes, {procs}: give each a step")
        local_steps = steps // procs
        if local_steps % self.n:
            raise UserError(
                f"num_envs={self.n} does not divide the {local_steps} steps per epoch of each process:"
                f" choose steps_per_epoch as a multiple of {self.n * procs}"
            )
        self.T = local_steps // self.n
        self.steps_per_epoch = local_steps * procs  # what is really taken: a remainder is left out, not claimed

    def prepare(self) -> None:
        self.rollout = Rollout(self.T, self.n, self.envs.obs_shape, action_shape(self.envs.action_space))

    def train_epochs(self) -> None:
        self.logger.register("EpRet", "EpLen")
        while self.epoch < self.epochs:
            self.collect()
            self.learn()
            self.save()
            self.log()
            self.epoch += 1

    def collect(self) -> None:
        """T steps of every environment. Episodes carry on from one epoch to the next."""
        rollout, policy, envs, rng = self.rollout, self.agent.policy, self.envs, self.rngs.noise
        rollout.clear()
        for t in range(self.T):
            a = policy.sample(self.obs, rng)  # (n, *act_shape)
            rollout.obs[t], rollout.act[t] = self.obs, a
            self.obs, r, terminated, truncated = envs.step(a)
            rollout.rew[t] = r
            done = self.count_step(r, terminated, truncated)
            if np.count_nonzero(done):
                self.end_paths(t, done, terminated)
                self.finish_episodes(done)
        self.end_paths(self.T - 1, ~done, np.zeros(self.n, dtype=bool))

    def end_paths(self, t: int, ended: np.ndarray, terminated: np.ndarray) -> None:
        """Only a terminal state is worth nothing: wherever else a path is cut, V of its last state stands in."""
        for i in np.flatnonzero(ended).tolist():
            self.rollout.end_path(t, i, None if terminated[i] else self.obs[i])

    def learn(self) -> None:
        self.logger.store(**self.agent.update(self.evaluate_rollout()))

    def evaluate_rollout(self) -> dict[str, np.ndarray]:
        """Values and log-probabilities of the whole rollout in one go: the parameters have not moved meanwhile."""
        rollout = self.rollout
        val, logp = self.agent.value_and_logp(*rollout.flat())  # (T n,) both
        cut_val = self.agent.value(np.stack(rollout.cut_obs)) if rollout.cut_obs else np.zeros(0)
        self.logger.store(VVals=val)
        return rollout.finish(val, cut_val, logp, self.config["gamma"], self.config["lam"])

    def log(self) -> None:
        log = self.logger.log_tabular
        log("Epoch", self.epoch + self.first_epoch)
        log("EpRet", with_min_and_max=True)
        log("EpLen", average_only=True)
        log("VVals", with_min_and_max=True)
        log("TotalEnvInteracts", (self.epoch + 1) * self.steps_per_epoch)
        for column in self.columns:
            log(column, average_only=True)
        log("Time", time.time() - self.start_time)
        self.logger.dump_tabular()
