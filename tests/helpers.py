"""What several test files share: back ends, short runs and what they wrote, and environments that follow a script."""

import csv
import importlib
import itertools
import math
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import spinup
from spinup.training.errors import UserError
from spinup.training.models import Model, read_model

BACKENDS = ["pytorch", "jax"]
ON_POLICY = ["vpg", "trpo", "ppo"]
OFF_POLICY = ["ddpg", "td3", "sac"]
ALGOS = [*ON_POLICY, *OFF_POLICY]


def each(*algos, backends=BACKENDS):
    """Run a test for every back end and each of these algorithms."""
    return pytest.mark.parametrize("backend, algo", list(itertools.product(backends, algos)))


each_algorithm = each(*ALGOS)
each_on_policy = each(*ON_POLICY)
each_off_policy = each(*OFF_POLICY)
each_in_pytorch = each(*ALGOS, backends=["pytorch"])  # what is PyTorch's alone, such as its modules and threads
each_family = each("ppo", "sac")  # one of each family stands for all where the family's loop does the work
each_algorithm_slowly = pytest.mark.parametrize(
    "backend, algo",
    [
        pytest.param(backend, algo, marks=() if algo in ("ppo", "sac") else pytest.mark.slow)
        for backend, algo in itertools.product(BACKENDS, ALGOS)
    ],
)


# -- The public interface ----------------------------------------------------------------------------------------


def function(backend, algo):
    return getattr(spinup, f"{algo}_{backend}")


def page(backend, algo):
    """The module of an algorithm."""
    return importlib.import_module(f"spinup.algos.{backend}.{algo}.{algo}")


def core(backend, algo):
    return importlib.import_module(f"spinup.algos.{backend}.{algo}.core")


# -- Short runs ------------------------------------------------------------------------------------------------------


def short(algo, /, **changes):
    """Arguments of a run that takes about a tenth of a second."""
    arguments = dict(ac_kwargs=dict(hidden_sizes=(8,)), steps_per_epoch=40, epochs=2, max_ep_len=15, threads=1)
    if algo in OFF_POLICY:
        arguments |= dict(
            start_steps=12, update_after=12, update_every=4, batch_size=8, replay_size=100, num_test_episodes=1
        )
    else:
        arguments |= dict(train_v_iters=3, save_freq=1)
    if algo == "ppo":
        arguments |= dict(train_pi_iters=3)
    return arguments | changes


def train(backend, algo, env_fn, output_dir, /, **changes):
    """A short run of the public function; returns its output directory."""
    logger_kwargs = dict(output_dir=str(output_dir), quiet=True)
    function(backend, algo)(env_fn, **short(algo, logger_kwargs=logger_kwargs, **changes))
    return Path(output_dir)


def table(output_dir):
    """progress.txt as rows of text, header first."""
    with open(Path(output_dir) / "progress.txt", newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t"))


def header(output_dir):
    return table(output_dir)[0]


def column(output_dir, name):
    """The numbers in one column of progress.txt."""
    head, *rows = table(output_dir)
    return [float(row[head.index(name)]) for row in rows]


def without(output_dir, *patterns):
    """progress.txt without the columns that match one of the patterns, and always without Time."""
    rows = table(output_dir)
    keep = [i for i, name in enumerate(rows[0]) if not any(re.fullmatch(p, name) for p in ("Time", *patterns))]
    return [[row[i] for i in keep] for row in rows]


def saved_model(backend, output_dir):
    """The model as it was saved: in PyTorch a module, in JAX a `Model`, which has arrays and a description."""
    if backend == "jax":
        return read_model(Path(output_dir) / "jax_save" / "model.safetensors")
    import torch

    return torch.load(Path(output_dir) / "pyt_save" / "model.pt", weights_only=False)


def parameters(backend, model):
    """Name -> array of every parameter of a model."""
    if isinstance(model, Model):
        return model.arrays
    if backend == "jax":
        from spinup.algos.jax.learn import named_parameters

        return named_parameters(model)
    return {name: p.detach().numpy().copy() for name, p in model.named_parameters()}


def same(xs, ys):
    """Equal numbers, where NaN equals NaN."""
    return len(xs) == len(ys) and all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(xs, ys, strict=True))


class remembered:
    """A function that keeps all it returned: as an env_fn, the environments; as an actor_critic, the networks."""

    def __init__(self, make):
        self.make, self.made = make, []

    def __call__(self, *args, **kwargs):
        self.made.append(self.make(*args, **kwargs))
        return self.made[-1]


def importable(cls):
    """Decorates a class that is defined inside a test: pickle finds it as if it were defined here."""
    cls.__module__, cls.__qualname__ = __name__, cls.__name__
    globals()[cls.__name__] = cls
    return cls


# -- Bad input -------------------------------------------------------------------------------------------------------


def refused(run, output_dir, *words):
    """`run()` is refused in one line with these words in it, and leaves nothing behind. Returns the message."""
    with pytest.raises(UserError) as caught:
        run()
    message = str(caught.value)
    assert not Path(output_dir).exists(), "a refused run must not leave files"
    for word in words:
        assert str(word) in message
    assert "\n" not in message and message.strip()
    return message


# -- Environments ----------------------------------------------------------------------------------------------------


class Scripted(gym.Env):
    """Episodes of given lengths and ends, over and over: Scripted((7, "terminated"), (3, "truncated")).

    An observation is (number of the episode, steps taken in it). Without a script, the first episode never ends.
    Everything the environment is given is kept: `seeds` (one entry per reset) and `actions`.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,))

    def __init__(self, *script, reward=lambda episode, t: 1.0, action_space=None):
        self.action_space = action_space or spaces.Box(-1, 1, (1,))
        self.script, self.reward = itertools.cycle(script or [(math.inf, "")]), reward
        self.episode, self.seeds, self.actions = -1, [], []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.episode += 1
        self.length, self.end = next(self.script)
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        assert self.t < self.length, "stepped after the end of an episode"
        self.actions.append(action)
        self.t += 1
        over = self.t == self.length
        reward = self.reward(self.episode, self.t)
        return self._obs(), reward, over and "term" in self.end, over and "trunc" in self.end, {}

    def _obs(self):
        return np.array([self.episode, self.t], dtype=np.float32)


class Walk(gym.Env):
    """A random walk, for tests of randomness: where it starts, how it moves and when it ends follow from the seed."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))

    def __init__(self, action_space=None):
        self.action_space = action_space or spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=2)
        return self.x.copy(), {}

    def step(self, action):
        push = np.mean(action) if isinstance(self.action_space, spaces.Box) else 0.1 * float(action)
        self.x = 0.9 * self.x + push + 0.1 * self.np_random.normal(size=2)
        return self.x.copy(), float(-np.abs(self.x).sum()), bool(self.np_random.random() < 0.1), False, {}


class Matrix(Walk):
    """Observations are matrices of shape (1, 2), which networks of ours see flattened and others do not."""

    observation_space = spaces.Box(-np.inf, np.inf, (1, 2))

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0][None], {}

    def step(self, action):
        obs, *rest = super().step(action)
        return obs[None], *rest
