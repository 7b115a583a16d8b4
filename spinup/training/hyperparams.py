"""Every argument of every algorithm, documented once.

Docstrings, `--help` and the documentation read the texts; `check` reads the rules. An argument means the same
wherever it appears.
"""

import inspect
import math
import reprlib
import textwrap
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

import numpy as np

from spinup.training.errors import UserError, one_line

F = TypeVar("F", bound=Callable[..., Any])


class Hyperparameter(NamedTuple):
    kind: str  # "int", "float", or a word for what else it takes
    text: str
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False  # `low` itself is not allowed
    also: tuple[Any, ...] = ()  # values allowed besides numbers in the range

    def problem(self, value: Any) -> str | None:
        """What is wrong with the value, None if nothing is."""
        if any(value is other or (isinstance(value, str) and value == other) for other in self.also):
            return None
        return None if self._is_number_in_range(value) else f"must be {self.allowed()}"

    def _is_number_in_range(self, value: Any) -> bool:
        if self.kind == "choice" or isinstance(value, (bool, np.bool_, str)) or np.ndim(value) != 0:
            return False
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            return False
        if not math.isfinite(number) or (self.kind == "int" and number != int(number)):
            return False
        return (number > self.low if self.open_low else number >= self.low) and number <= self.high

    def allowed(self) -> str:
        words = [] if self.kind == "choice" else [self._range()]
        separator = ", or " if words else " or "
        return separator.join([*words, *(repr(value) for value in self.also)])

    def _range(self) -> str:
        noun = "a whole number" if self.kind == "int" else "a number"
        if math.isinf(self.low):
            return noun
        low = f"{noun} above {self.low:g}" if self.open_low else f"{noun}, at least {self.low:g}"
        if math.isinf(self.high):
            return low
        return (
            f"{noun} above {self.low:g} and at most {self.high:g}"
            if self.open_low
            else (f"{noun} between {self.low:.16g} and {self.high:.16g}")
        )


def _int(text: str, low: float = 0, also: tuple[Any, ...] = (), high: float = math.inf) -> Hyperparameter:
    return Hyperparameter("int", text, low=low, also=also, high=high)


def _positive(text: str, also: tuple[Any, ...] = ()) -> Hyperparameter:
    return Hyperparameter("float", text, low=0, open_low=True, also=also)


def _nonnegative(text: str, also: tuple[Any, ...] = ()) -> Hyperparameter:
    return Hyperparameter("float", text, low=0, also=also)


def _unit(text: str) -> Hyperparameter:
    return Hyperparameter("float", text, low=0, high=1)


def _choice(text: str, *values: Any) -> Hyperparameter:
    return Hyperparameter("choice", text, also=values)


# Arguments that are not numbers are checked where they are used: `env_fn` by the environments, and so on.
NOT_NUMBERS = {
    "env_fn": "A function without arguments that makes one new environment.",
    "actor_critic": "The class that builds the networks; called as actor_critic(observation_space, action_space,"
    " **ac_kwargs).",
    "ac_kwargs": "More arguments for actor_critic, such as hidden_sizes and activation.",
    "logger_kwargs": "Arguments for EpochLogger: output_dir, output_fname, exp_name.",
    "device": "Where the networks are trained: 'cpu', 'cuda', 'mps'. Networks this small are fastest on the CPU.",
}

NUMBERS = {
    # Of every algorithm
    "seed": Hyperparameter(
        "int", "Fixes every random number of the run. Process r of several uses seed + 10000 r.", 0, 2**53
    ),
    "steps_per_epoch": _int("Environment steps per epoch, over all environments and processes.", low=1),
    "epochs": _int("Number of epochs.", low=1),
    "gamma": _unit("Discount factor."),
    "max_ep_len": _int("Longest episode; a longer one is cut off, which is not a terminal state.", low=1),
    "save_freq": _int("Epochs between two saved models; the last epoch is always saved.", low=1),
    "num_envs": _int("Environments stepped in turn by this process. steps_per_epoch counts the steps of all.", low=1),
    "threads": _int(
        "Processor threads for the mathematics. None: OMP_NUM_THREADS, or two at most (more are slower for small"
        " networks). Choose 1 if other programs run beside. JAX keeps the number of the first run in a process.",
        low=1,
        also=(None,),
        high=1024,  # far more than helps; with very many, the process dies
    ),
    # On-policy
    "lam": _unit("Lambda of generalised advantage estimation: 0 trusts the value function, 1 the returns."),
    "pi_lr": _nonnegative("Step size of the policy's Adam."),
    "vf_lr": _nonnegative("Step size of the value function's Adam."),
    "train_pi_iters": _int("At most this many policy steps per epoch; fewer if the KL divergence grows too large."),
    "train_v_iters": _int("Value-function steps per epoch."),
    "clip_ratio": _positive("How far the new policy may profit from moving away from the old one, 0.1 to 0.3."),
    "target_kl": _positive(
        "Policy steps end when the KL divergence exceeds 1.5 times this, usually 0.01 to 0.05. None: never.",
        also=(None,),
    ),
    "normalize_obs": _choice(
        "Scale observations by their running mean and standard deviation, which become part of the model.",
        False,
        True,
    ),
    # TRPO
    "delta": _positive("Size of the trust region: largest mean KL divergence of a step, usually 0.01 to 0.05."),
    "damping_coeff": _nonnegative("Multiple of the identity added to the Hessian: (H + c I) v."),
    "cg_iters": _int("Conjugate-gradient iterations to solve H x = g.", low=1),
    "backtrack_iters": _int("At most this many trials of the line search."),
    "backtrack_coeff": Hyperparameter("float", "Each trial is this much shorter than the last.", 0, 1, True),
    "algo": _choice("'trpo', or 'npg' for the natural policy gradient: the full step, no line search.", "trpo", "npg"),
    # Off-policy
    "replay_size": _int("Transitions the replay buffer holds.", low=1),
    "polyak": _unit("How slowly targets follow: targ <- polyak targ + (1 - polyak) main."),
    "lr": _nonnegative("Step size of every Adam (policy, critics, temperature)."),
    "q_lr": _nonnegative("Step size of the critics' Adam."),
    "alpha": _nonnegative(
        "Weight of the entropy bonus, the temperature. 'auto' learns it, towards an entropy of -dim(A).",
        also=("auto",),
    ),
    "batch_size": _int("Transitions per gradient step.", low=1),
    "start_steps": _int("Steps of uniformly random actions before the policy acts."),
    "update_after": _int("Steps to collect before the first gradient step."),
    "update_every": _int("Steps between two blocks of gradient steps; a block has one gradient step per step.", low=1),
    "act_noise": _nonnegative("Standard deviation of the exploration noise, in the action's own units."),
    "target_noise": _nonnegative("Standard deviation of the noise on the target action, in the action's own units."),
    "noise_clip": _nonnegative("Largest absolute value of that noise."),
    "policy_delay": _int("Critic steps per policy step, counted over the whole run.", low=1),
    "num_test_episodes": _int("Episodes of the evaluation after each epoch, with deterministic actions."),
}


def text(name: str) -> str:
    return NOT_NUMBERS.get(name) or NUMBERS[name].text


def check(config: dict[str, Any]) -> dict[str, Any]:
    """The config with plain numbers, whole ones as ints; UserError on the first value that is out of range."""
    checked = dict(config)
    for name, value in config.items():
        if name not in NUMBERS:
            continue
        if problem := NUMBERS[name].problem(value):
            raise UserError(f"{name}={one_line(reprlib.repr(value))}: {problem}")
        if NUMBERS[name].kind == "int" and value is not None:
            checked[name] = int(value)
        elif isinstance(value, np.ndarray):
            checked[name] = value.item()
    return checked


def nearest(name: str, function: Callable[..., Any]) -> str | None:
    """The argument of the function that `name` was probably meant to be."""
    matches = get_close_matches(name, inspect.signature(function).parameters, n=1, cutoff=0.5)
    return matches[0] if matches else None


def explained(function: Callable[..., Any], prefix: str = "", without: Sequence[str] = ()) -> str:
    """The arguments of an algorithm, with texts and defaults."""
    lines = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in without:
            continue
        default = parameter.default
        shown = "" if default is parameter.empty else f" Default: {getattr(default, '__name__', repr(default))}."
        lines += textwrap.wrap(
            f"{prefix}{name}: {text(name)}{shown}", width=110, initial_indent=" " * 4, subsequent_indent=" " * 8
        )
    return "\n".join(lines) + "\n"


def documented(function: F) -> F:
    """Add an `Args:` section to the docstring of an algorithm, from its signature and the texts above."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nArgs:\n{explained(function)}"
    return function
