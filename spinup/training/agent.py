"""What the loops need of an algorithm. Each back end's `learn.py` fulfils these two protocols, once for all algorithms.

The loops deal in NumPy arrays; whatever a framework needs besides (devices, compilation, keys) stays behind these
methods.
"""

from typing import Any, Protocol

import numpy as np

from spinup.training.acting import Policy

Stats = dict[str, Any]  # column of progress.txt -> number, or an array of one value per update or sample


class Agent(Protocol):
    policy: Policy  # kept up to date with the parameters by `update`

    def start(self) -> None:
        """Set what the run needs in the process: thread counts and the like."""

    def parameter_counts(self) -> dict[str, int]:
        """Part of the network -> number of parameters."""

    def check_finite(self) -> None:
        """NonFiniteError if any parameter is NaN or infinite."""

    def setup_saver(self, logger: Any) -> None:
        """Tell the logger what `save_state` saves."""

    def close(self) -> None:
        """Undo what `start` did."""


class OnPolicyAgent(Agent, Protocol):
    def value(self, obs: np.ndarray) -> np.ndarray:
        """V(s), (B,)."""

    def value_and_logp(self, obs: np.ndarray, act: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """V(s) and log pi(a|s), (B,) both."""

    def update(self, data: dict[str, np.ndarray]) -> Stats:
        """Everything the algorithm learns from one rollout: obs act ret adv logp, (B, ...) each."""


class OffPolicyAgent(Agent, Protocol):
    def update_many(self, batches: dict[str, np.ndarray]) -> Stats:
        """k gradient steps on k minibatches: obs act rew obs2 done, (k, B, ...) each."""
