"""What the loops need of an algorithm. Each back end's `learn.py` fulfils these two protocols, once for all algorithms.

The loops deal in NumPy arrays; whatever a framework needs besides (devices, compilation, keys) stays behind these
methods.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from spinup.training.acting import Policy
from spinup.training.errors import UserError, one_line

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


# -- A user's own networks: a mistake shall be found before the run, not in its middle ------------------------------

BATCH = "a batch of 3"  # what `check_shape` is told of the observations that back ends try


def build_actor_critic(
    actor_critic: Callable[..., Any],
    observation_space: spaces.Space,
    action_space: spaces.Space,
    ac_kwargs: dict[str, Any],
    **of_back_end: Any,
) -> Any:
    """The networks of a run; what they are called with is checked against their signature first."""
    if not callable(actor_critic):
        raise UserError(f"actor_critic={one_line(repr(actor_critic))}: must be a class, or a function that makes one")
    if not isinstance(ac_kwargs, dict):
        raise UserError(f"ac_kwargs={one_line(repr(ac_kwargs))}: must be a dict, such as dict(hidden_sizes=(64, 64))")
    try:
        inspect.signature(actor_critic).bind(observation_space, action_space, **ac_kwargs, **of_back_end)
    except TypeError as error:
        name = getattr(actor_critic, "__name__", "actor_critic")
        raise UserError(f"ac_kwargs={one_line(ac_kwargs)}: {name} {error}") from None
    try:
        return actor_critic(observation_space, action_space, **ac_kwargs, **of_back_end)
    except Exception as error:
        if not getattr(actor_critic, "__module__", "").startswith("spinup.algos."):
            raise  # a user's own code: its traceback says more
        message = f"ac_kwargs={one_line(ac_kwargs)}: no network can be made of that ({one_line(error)})"
        raise UserError(message) from None


def wants_vectors(actor_critic: Any, standard: tuple[type, ...]) -> bool:
    """Our own networks want vectors; a user's own sees an observation in the shape of its Box."""
    return isinstance(actor_critic, type) and issubclass(actor_critic, standard)


def check_parts(ac: Any, parts: Sequence[str]) -> None:
    for part in parts:
        if not hasattr(ac, part):
            raise UserError(f"actor_critic: it has no `{part}`; the docstring of the algorithm says what it needs")


def check_shape(what: str, output: Any, expected: tuple[int, ...], given: str) -> None:
    """The mistake behind most silent failures of own networks: (B, 1) instead of (B,)."""
    if tuple(np.shape(output)) != tuple(expected):
        raise UserError(
            f"actor_critic: {what} has the shape {tuple(np.shape(output))}, it must have {tuple(expected)} for {given}"
        )
