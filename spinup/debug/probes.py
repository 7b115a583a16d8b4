"""Probe environments: games so small that the right answer is known and learned in seconds.

Each probe needs one more part of an algorithm than those before it, so the first that fails says where to look:

    probe               learns to                               if it is the first to fail, suspect
    constant            predict 1, whatever happens             the loss of the value function, its optimiser
    observation         tell two observations apart             observations on their way into network and buffer
    delayed             predict a reward one step ahead         the discount, bootstrapping, the order of the steps
    action              find the one best action                the sign of the policy's loss, log-probabilities
    observation_action  find the best action for what it sees   observations and actions that do not belong together

With `endless=True` the same game never ends: an episode is only cut off after `TIME_LIMIT` steps. Where every step
earns r, the value is then r / (1 - gamma); an algorithm that takes truncation for termination falls short of it.

    env = PROBES["action"](continuous=False)
    env.expected(gamma=0.8)                     # the right answers
    mistakes(env, gamma, value_fn, action_fn)   # how the answers of an algorithm differ from them
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

TIME_LIMIT = 4  # steps after which an endless episode is cut off
NUM_ACTIONS = 3  # of the discrete variants

# An answer is right if it is as close as this: policies keep exploring and bootstrapped values lag behind.
VALUE_TOLERANCE = 0.1  # times max(1, |value|)
ACTION_TOLERANCE = 0.2


class Answer(NamedTuple):
    """What a correct algorithm has learned about one observation."""

    obs: np.ndarray  # (1,)
    value: float  # the return, discounted, of always taking the best action
    action: float | None  # the best action; None if all are equally good


class Probe(gym.Env):
    """The frame of all probes: one number to see, one action to take, a reward r(obs, act).

    Args:
        continuous: Actions are numbers in [-1, 1] (`Box`); otherwise 0, 1 or 2 (`Discrete`).
        endless: The game never ends, but each episode is truncated after `TIME_LIMIT` steps.
    """

    starts: tuple[float, ...] = (0.0,)  # an episode begins with one of these
    depends_on_action = False

    def __init__(self, continuous: bool = True, endless: bool = False):
        self.continuous, self.endless = continuous, endless
        self.observation_space = Box(-1, 1, (1,), np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32) if continuous else Discrete(NUM_ACTIONS)

    # -- The game ---------------------------------------------------------------------------------------------------

    def reward(self, obs: float, act: float) -> float:
        raise NotImplementedError

    def next(self, obs: float) -> float:
        """What is seen after `obs`."""
        return obs

    def is_last(self, obs: float) -> bool:
        """Whether the step taken from `obs` ends the game."""
        return True

    def best_action(self, obs: float) -> float:
        return 0.0

    # -- The answer -------------------------------------------------------------------------------------------------

    def value(self, obs: float, gamma: float) -> float:
        """sum_t gamma^t r_t from `obs` on, with the best actions."""
        if self.endless and gamma >= 1:
            raise ValueError(f"gamma={gamma}: an endless game has a value only for gamma < 1")
        value, discount = 0.0, 1.0
        while discount > 1e-9:
            value += discount * self.reward(obs, self.best_action(obs))
            if self.is_last(obs) and not self.endless:
                break
            obs, discount = self.next(obs), gamma * discount
        return value

    def expected(self, gamma: float) -> list[Answer]:
        """One answer for every observation of the game."""
        observations = sorted({*self.starts, *map(self.next, self.starts)})
        return [
            Answer(
                np.array([obs], dtype=np.float32),
                self.value(obs, gamma),
                self.best_action(obs) if self.depends_on_action else None,
            )
            for obs in observations
        ]

    # -- Gymnasium --------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.obs, self.t = float(self.np_random.choice(self.starts)), 0
        return np.array([self.obs], dtype=np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = self.reward(self.obs, np.asarray(action).item())
        terminated = self.is_last(self.obs) and not self.endless
        self.obs, self.t = self.next(self.obs), self.t + 1
        truncated = self.endless and self.t >= TIME_LIMIT
        return np.array([self.obs], dtype=np.float32), reward, terminated, truncated, {}


class ConstantReward(Probe):
    """One step, reward 1."""

    def reward(self, obs: float, act: float) -> float:
        return 1.0


class ObservationReward(Probe):
    """One step, reward equal to the observation, -1 or +1."""

    starts = (-1.0, 1.0)

    def reward(self, obs: float, act: float) -> float:
        return obs


class DelayedReward(Probe):
    """Two steps, -1 is seen before the first and +1 before the second, which alone earns a reward of 1."""

    starts = (-1.0,)

    def reward(self, obs: float, act: float) -> float:
        return float(obs > 0)

    def next(self, obs: float) -> float:
        return -obs

    def is_last(self, obs: float) -> bool:
        return obs > 0


class ActionReward(Probe):
    """One step, reward 1 - (act - best)^2, with the same best action always."""

    depends_on_action = True

    def reward(self, obs: float, act: float) -> float:
        return 1.0 - (act - self.best_action(obs)) ** 2

    def best_action(self, obs: float) -> float:
        return 0.5 if self.continuous else 2.0


class ObservationActionReward(ActionReward):
    """The same, but which action is best depends on the observation, -1 or +1."""

    starts = (-1.0, 1.0)

    def best_action(self, obs: float) -> float:
        return 0.5 * obs if self.continuous else 1.0 + obs


PROBES: dict[str, type[Probe]] = {
    "constant": ConstantReward,
    "observation": ObservationReward,
    "delayed": DelayedReward,
    "action": ActionReward,
    "observation_action": ObservationActionReward,
}


def mistakes(
    probe: Probe,
    gamma: float,
    value_fn: Callable[[np.ndarray], Any],
    action_fn: Callable[[np.ndarray], Any],
) -> list[str]:
    """Every wrong answer in words; an empty list if the probe is solved.

    Args:
        value_fn: Observations (1, 1) to V(s), or to Q(s, a) of the best action for algorithms that learn Q.
        action_fn: Observations (1, 1) to the most likely action.
    """
    wrong = []
    for obs, value, action in probe.expected(gamma):
        actual = np.asarray(value_fn(obs[None])).item()
        if not abs(actual - value) <= VALUE_TOLERANCE * max(1, abs(value)):
            wrong.append(f"the value of {obs.item():g} is {actual:.3g} instead of {value:.3g}")
        if action is not None:
            actual = np.asarray(action_fn(obs[None])).item()
            if not abs(actual - action) <= ACTION_TOLERANCE:
                wrong.append(f"the action for {obs.item():g} is {actual:.3g} instead of {action:.3g}")
    return wrong
