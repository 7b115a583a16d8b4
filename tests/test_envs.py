"""Any environment behind one small interface: Gymnasium, the old interface, EnvPool; spaces; seeds; errors."""

import math
import sys
import traceback
from functools import partial

import backends
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers import (
    Scripted,
    Walk,
    column,
    each_algorithm_slowly,
    each_off_policy,
    each_on_policy,
    remembered,
    train,
)

from spinup.training.envs import Envs, env_fn_from_name
from spinup.training.errors import NonFiniteError, UserError

# -- The same two-dimensional task in every generation of the interface ----------------------------------------------


class Old:
    """The interface of the old `gym`: `reset` gives an observation, `step` four values. No seeds."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, *script):
        self.inner = Scripted(*script)

    def reset(self):
        return self.inner.reset()[0].astype(np.float64)

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.inner.step(action)
        info = {"TimeLimit.truncated": True} if truncated else {}
        return obs.astype(np.float64), np.array([reward]), terminated or truncated, info


class OldSeeded(Old):
    """And seeds are given by a method of their own."""

    def seed(self, seed=None):
        self.given_seed = seed
        return [seed]


class OldWrapper:
    """How wrappers of the old `gym` look: arguments of `reset` are passed on, whether the inside takes them or not."""

    def __init__(self, env):
        self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)

    def step(self, action):
        return self.env.step(action)

    def seed(self, seed=None):
        return self.env.seed(seed)


def wrapped_old(*script):
    return OldWrapper(OldSeeded(*script))


GENERATIONS = [Scripted, Old, OldSeeded, wrapped_old]
each_generation = pytest.mark.parametrize("make", GENERATIONS)


def make_envs(env_fn, n=1, seed=0, **options):
    return Envs(env_fn, n, np.random.default_rng(seed), **options)


def one_each(*envs):
    """An env_fn that returns these, one per call."""
    return partial(next, iter(envs))


def flags(*values):
    return np.array(values, dtype=bool)


# -- Steps, ends, restarts -------------------------------------------------------------------------------------------


@each_generation
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_A04_A05_the_two_ways_to_end_and_the_true_final_observation(make, end):
    envs = make_envs(lambda: make((2, end)))
    assert envs.reset().tolist() == [[0, 0]]
    steps = []
    for _ in range(2):
        obs, rew, terminated, truncated = envs.step(np.zeros((1, 1)))
        steps.append((obs.tolist(), rew.tolist(), terminated.tolist(), truncated.tolist()))
    assert steps == [
        ([[0, 1]], [1.0], [False], [False]),
        ([[0, 2]], [1.0], [end == "terminated"], [end == "truncated"]),  # (0, 2), not (1, 0) of the next episode
    ]
    assert envs.restart(flags(True)).tolist() == [[1, 0]]


def test_ended_both_ways_counts_as_both():
    envs = make_envs(lambda: Scripted((1, "terminated, truncated")))
    envs.reset()
    _, _, terminated, truncated = envs.step(np.zeros((1, 1)))
    assert terminated.tolist() == [True] and truncated.tolist() == [True]


@pytest.mark.parametrize(
    "done, note, ends",
    [
        (True, {}, (True, False)),
        (True, {"TimeLimit.truncated": False}, (True, False)),
        (True, {"TimeLimit.truncated": True}, (False, True)),
        (False, {"TimeLimit.truncated": True}, (False, False)),
    ],
)
def test_A05_what_an_old_done_means(done, note, ends):
    class Noted(Old):
        def step(self, action):
            return np.zeros(2), 0.0, done, note

    envs = make_envs(Noted)
    envs.reset()
    *_, terminated, truncated = envs.step(np.zeros((1, 1)))
    assert (bool(terminated[0]), bool(truncated[0])) == ends


@each_generation
def test_only_the_environments_that_are_done_restart(make):
    envs = make_envs(one_each(make((2, "terminated")), make((3, "truncated")), make((9, "terminated"))), n=3)
    envs.reset()
    envs.step(np.zeros((3, 1)))
    obs, _, terminated, truncated = envs.step(np.zeros((3, 1)))
    assert (terminated | truncated).tolist() == [True, False, False]
    assert envs.restart(terminated | truncated).tolist() == [[1, 0], [0, 2], [0, 2]]
    obs, _, terminated, truncated = envs.step(np.zeros((3, 1)))
    assert obs.tolist() == [[1, 1], [0, 3], [0, 3]]
    assert (terminated.tolist(), truncated.tolist()) == ([False] * 3, [False, True, False])
    assert envs.restart(terminated | truncated).tolist() == [[1, 1], [1, 0], [0, 3]]


def test_observations_stay_as_they_are_while_they_are_needed():
    """Those of a step are valid during the next one, and the final ones after a restart, for whoever stores them."""

    class InPlace(Scripted):  # gives the same array each time, as many environments do
        def _obs(self):
            self.array = getattr(self, "array", np.zeros(2, dtype=np.float32))
            self.array[:] = self.episode, self.t
            return self.array

    envs = make_envs(lambda: InPlace((2, "terminated")))
    first = envs.reset()
    second, *_ = envs.step(np.zeros((1, 1)))
    assert (first.tolist(), second.tolist()) == ([[0, 0]], [[0, 1]])
    third, *_ = envs.step(np.zeros((1, 1)))
    fourth = envs.restart(flags(True))
    assert (second.tolist(), third.tolist(), fourth.tolist()) == ([[0, 1]], [[0, 2]], [[1, 0]])


def test_observations_are_float32_whatever_the_environment_gives():
    envs = make_envs(lambda: Old())
    assert envs.reset().dtype == np.float32
    assert envs.step(np.zeros((1, 1)))[0].dtype == np.float32


@pytest.mark.parametrize(
    "reward", [0.25, np.float32(0.25), np.array([0.25]), np.array(0.25)], ids=["float", "float32", "1-element", "0-d"]
)
def test_rewards_of_any_form(reward):
    envs = make_envs(lambda: Scripted(reward=lambda episode, t: reward))
    envs.reset()
    assert envs.step(np.zeros((1, 1)))[1].tolist() == [0.25]


# -- Seeds -----------------------------------------------------------------------------------------------------------


def first_observations(seed, n=1, env_fn=Walk):
    return make_envs(env_fn, n, seed).reset().tolist()


def test_A13_the_seed_decides_where_environments_start():
    assert first_observations(0) == first_observations(0) != first_observations(1)


def test_A13_environments_of_one_vector_differ():
    starts = first_observations(0, n=3)
    assert len({tuple(start) for start in starts}) == 3


def test_A13_only_the_first_episode_is_seeded_so_that_episodes_differ():
    made = remembered(lambda: Scripted((1, "terminated")))
    envs = make_envs(made)
    envs.reset()
    envs.step(np.zeros((1, 1)))
    envs.restart(flags(True))
    first, second = made.made[0].seeds
    assert isinstance(first, int) and 0 <= first < 2**31 and second is None
    assert envs.seeds == [first]


@pytest.mark.parametrize("make", [OldSeeded, wrapped_old])
def test_A13_old_environments_are_seeded_by_their_method(make):
    env = make()
    envs = make_envs(lambda: env)
    envs.reset()
    inner = env.env if make is wrapped_old else env
    assert inner.given_seed == envs.seeds[0]


def test_A13_action_spaces_are_seeded_too():
    def samples(seed):
        made = remembered(Scripted)
        make_envs(made, seed=seed).reset()
        return made.made[0].action_space.sample().tolist()

    assert samples(0) == samples(0) != samples(1)


def test_A13_seeds_can_be_given_to_a_reset():
    made = remembered(Scripted)
    envs = make_envs(made)
    envs.reset([7])
    assert made.made[0].seeds == [7] and envs.seeds == [7]


# -- Observation spaces ----------------------------------------------------------------------------------------------


class Fixed(gym.Env):
    """Always the same observation; nothing else happens."""

    def __init__(self, observation_space, obs, action_space=None):
        self.observation_space, self.obs = observation_space, obs
        self.action_space = action_space or spaces.Discrete(2)
        self.actions = []

    def reset(self, *, seed=None, options=None):
        return self.obs, {}

    def step(self, action):
        self.actions.append(action)
        return self.obs, 0.0, False, False, {}


IMAGE = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
OBSERVATIONS = {  # space, an observation, what a network that takes vectors sees
    "vector": (spaces.Box(-9, 9, (3,)), np.array([1.0, 2, 3]), [1, 2, 3]),
    "vector of integers": (spaces.Box(0, 9, (2,), np.int64), np.array([4, 5]), [4, 5]),
    "list": (spaces.Box(-9, 9, (3,)), [1.0, 2, 3], [1, 2, 3]),
    "0-d": (spaces.Box(-9, 9, ()), np.float64(7), [7]),
    "image": (spaces.Box(0, 255, (2, 2, 3), np.uint8), IMAGE, list(range(12))),
    "Discrete": (spaces.Discrete(4), 2, [0, 0, 1, 0]),
    "Discrete from 5": (spaces.Discrete(3, start=5), np.int64(7), [0, 0, 1]),
    "MultiDiscrete": (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
    "MultiBinary": (spaces.MultiBinary(3), np.array([1, 0, 1], dtype=np.int8), [1, 0, 1]),
    "Dict": (
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-9, 9, (2, 1))),
        {"b": np.array([[3.0], [4.0]]), "a": 1},
        [0, 1, 3, 4],
    ),
    "Tuple": (spaces.Tuple([spaces.Box(-9, 9, (1,)), spaces.Discrete(2)]), (np.array([5.0]), 0), [5, 1, 0]),
    "Tuple of 2 with a Dict": (
        spaces.Tuple([spaces.Discrete(2), spaces.Dict(a=spaces.Discrete(2))]),
        (0, {"a": 1}),
        [1, 0, 0, 1],
    ),
}


@pytest.mark.parametrize("space, obs, expected", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_A37_observations_as_vectors(space, obs, expected):
    envs = make_envs(lambda: Fixed(space, obs), n=2)
    assert envs.observation_space.shape == envs.obs_shape == (len(expected),)
    assert envs.reset().tolist() == [expected] * 2
    assert envs.step(np.zeros(2, dtype=int))[0].tolist() == [expected] * 2


@pytest.mark.parametrize("name", ["0-d", "image", "vector"])
def test_A37_a_users_own_network_sees_a_box_in_its_shape(name):
    space, obs, _ = OBSERVATIONS[name]
    envs = make_envs(lambda: Fixed(space, obs), flatten_boxes=False)
    assert envs.observation_space == space
    assert envs.reset().tolist() == [np.asarray(obs).tolist()]


@pytest.mark.parametrize("name", ["Discrete", "Dict", "Tuple"])
def test_A37_other_spaces_are_flattened_for_every_network(name):
    space, obs, expected = OBSERVATIONS[name]
    envs = make_envs(lambda: Fixed(space, obs), flatten_boxes=False)
    assert envs.reset().tolist() == [expected]


@each_algorithm_slowly
@pytest.mark.parametrize("name", ["0-d", "image", "Discrete", "Dict", "Tuple"])
def test_A37_every_algorithm_trains_on_every_observation_space(backend, algo, name, tmp_path):
    space, obs, _ = OBSERVATIONS[name]
    box = spaces.Box(-1, 1, (2,))
    directory = train(backend, algo, lambda: Fixed(space, obs, box), tmp_path / "run", steps_per_epoch=20, epochs=1)
    assert all(map(math.isfinite, column(directory, "LossPi")))


@pytest.mark.parametrize(
    "space",
    [spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Box(0, 1, (2,)), None)],
    ids=["Sequence", "Graph"],
)
def test_A37_observations_without_a_fixed_size_are_refused(space):
    with pytest.raises(UserError, match=r"observation space .* has no fixed size: wrap"):
        make_envs(lambda: Fixed(space, None))


def test_observations_of_a_wrong_shape_are_told_apart_from_those_that_broadcast():
    envs = make_envs(lambda: Fixed(spaces.Box(-9, 9, (3,)), np.zeros((1,))), n=1)
    with pytest.raises(UserError, match=r"environment 0 gave an observation of shape \(1,\).*promises \(3,\)"):
        envs.reset()


@pytest.mark.parametrize(
    "space, obs",
    [
        (spaces.Discrete(4), 7),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2)), {"a": 1}),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), (1, 2)),
        (spaces.Box(-9, 9, (3,)), None),
        (spaces.Box(-9, 9, (3,)), ["a", "b", "c"]),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (2, 2))), {"b": np.eye(2)}),
    ],
    ids=["Discrete", "Dict without a key", "Tuple", "None", "text", "Dict with a matrix"],
)
def test_observations_outside_of_their_space_name_the_environment(space, obs):
    with pytest.raises(Exception) as caught:
        make_envs(lambda: Fixed(space, obs)).reset()
    message = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "environment 0" in message
    assert not isinstance(caught.value, UserError) or "\n" not in message


# -- Old-style spaces: other classes with the same fields -------------------------------------------------------------


class OldSpaces:
    class Box:
        def __init__(self, low, high, dtype=np.float32):
            self.low, self.high, self.dtype, self.shape = np.array(low), np.array(high), np.dtype(dtype), np.shape(low)

    class Discrete:
        def __init__(self, n):
            self.n, self.shape = n, ()

    class MultiDiscrete:
        def __init__(self, nvec):
            self.nvec = np.array(nvec)

    class MultiBinary:
        def __init__(self, n):
            self.n = n

    class Dict:
        def __init__(self, spaces):
            self.spaces = spaces

    class Tuple(Dict):
        pass


old_vector = OldSpaces.Box([-1.0, -2.0], [1.0, 2.0])


@pytest.mark.parametrize(
    "old, low, high",
    [
        (old_vector, [-1, -2], [1, 2]),
        (OldSpaces.Discrete(3), [0, 0, 0], [1, 1, 1]),
        (OldSpaces.MultiDiscrete([2, 2]), [0] * 4, [1] * 4),
        (OldSpaces.MultiBinary(3), [0, 0, 0], [1, 1, 1]),
        (OldSpaces.Dict({"a": OldSpaces.Discrete(2), "b": old_vector}), [0, 0, -1, -2], [1, 1, 1, 2]),
        (OldSpaces.Tuple([OldSpaces.Discrete(2), old_vector]), [0, 0, -1, -2], [1, 1, 1, 2]),
    ],
    ids=["Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple"],
)
def test_observation_spaces_of_the_old_gym(old, low, high):
    class OldSpaced(Old):
        observation_space = old

    space = make_envs(OldSpaced).observation_space
    assert (space.low.tolist(), space.high.tolist()) == (low, high)


@pytest.mark.parametrize(
    "old, policy_action, env_action",
    [
        (old_vector, [0.5, -3.0], [0.5, -2.0]),
        (OldSpaces.Discrete(3), 2, 2),
        (OldSpaces.MultiDiscrete([2, 3]), [1, 2], [1, 2]),
    ],
    ids=["Box", "Discrete", "MultiDiscrete"],
)
def test_action_spaces_of_the_old_gym(old, policy_action, env_action):
    class OldSpaced(Old):
        action_space = old

    env = OldSpaced()
    envs = make_envs(lambda: env)
    envs.reset()
    envs.step(np.array([policy_action]))
    assert np.asarray(env.inner.actions[0]).tolist() == env_action


def test_something_that_is_no_space_is_refused():
    class NoSpace(Old):
        observation_space = "three numbers"

    with pytest.raises(UserError, match=r"observation space: 'three numbers' is not a space of Gymnasium; give"):
        make_envs(NoSpace)


# -- Action spaces ---------------------------------------------------------------------------------------------------


def given(space, *actions):
    """What an environment with this action space gets for these actions of the policy."""
    env = Fixed(spaces.Box(-1, 1, (1,)), [0.0], space)
    envs = make_envs(lambda: env)
    envs.reset()
    for action in actions:
        envs.step(np.array([action]))
    return env.actions


ASYMMETRIC = spaces.Box(np.float32([-1, 0]), np.float32([2, 0.5]))


def test_A20_box_actions_are_clipped_in_each_dimension():
    actions = given(ASYMMETRIC, [-5.0, -5.0], [5.0, 5.0], [0.25, 0.25])
    assert [a.tolist() for a in actions] == [[-1, 0], [2, 0.5], [0.25, 0.25]]
    assert all(a.dtype == np.float32 for a in actions)


def test_A20_clipping_leaves_the_policys_own_actions_alone():
    policy_action = np.array([[5.0, 5.0]], dtype=np.float32)
    env = Fixed(spaces.Box(-1, 1, (1,)), [0.0], ASYMMETRIC)
    envs = make_envs(lambda: env)
    envs.reset()
    envs.step(policy_action)
    assert policy_action.tolist() == [[5, 5]] and env.actions[0].tolist() == [2, 0.5]


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_box_actions_have_the_type_of_their_space_and_lie_in_it(dtype):
    space = spaces.Box(np.array([0], dtype), np.array([3], dtype), dtype=dtype)
    (action,) = given(space, [1.0])
    assert action.tolist() == [1] and action.dtype == dtype and space.contains(action)


def test_A20_actions_are_clipped_before_they_become_integers():
    """-3 as an unsigned integer of 8 bits is 253."""
    space = spaces.Box(0, 200, (1,), np.uint8)
    actions = given(space, [-3.0], [100.0], [300.0], [1e12])
    assert [a.tolist() for a in actions] == [[0], [100], [200], [200]]
    assert all(space.contains(a) for a in actions)


def test_A20_actions_of_a_double_precision_box_lie_in_it_at_the_bounds():
    """0.1 is smaller than its nearest single-precision number: clipping to that would leave the space."""
    space = spaces.Box(np.array([-0.1]), np.array([0.1]), dtype=np.float64)
    for action in given(space, [-5.0], [5.0]):
        assert space.contains(action)


@pytest.mark.parametrize("start, expected", [(0, [0, 2]), (5, [5, 7]), (-1, [-1, 1])])
def test_A19_discrete_actions_are_python_ints_counted_from_the_start_of_the_space(start, expected):
    actions = given(spaces.Discrete(3, start=start), 0, 2)
    assert actions == expected and all(type(a) is int for a in actions)


def test_multi_discrete_actions():
    (plain,) = given(spaces.MultiDiscrete([2, 3]), [1, 2])
    space = spaces.MultiDiscrete([2, 3], start=[10, 20])
    (shifted,) = given(space, [1, 2])
    assert plain.tolist() == [1, 2] and shifted.tolist() == [11, 22] and space.contains(shifted)


@each_on_policy
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2,)),
        spaces.Box(-np.inf, np.inf, (1,)),
        spaces.Discrete(3, start=4),
        spaces.MultiDiscrete([2, 3]),
    ],
    ids=["Box", "unbounded Box", "Discrete", "MultiDiscrete"],
)
def test_on_policy_algorithms_act_in_the_space(backend, algo, space, tmp_path):
    env = Fixed(spaces.Box(-1, 1, (1,)), [0.0], space)
    train(backend, algo, lambda: env, tmp_path / "run", steps_per_epoch=20, epochs=2)
    assert len(env.actions) == 40
    if isinstance(space, spaces.Discrete):
        assert all(type(a) is int for a in env.actions) and set(env.actions) == {4, 5, 6}
    else:
        assert all(space.contains(a) for a in env.actions)
        assert len({tuple(a.tolist()) for a in env.actions}) > 3


@each_off_policy
def test_A28_off_policy_actions_use_the_whole_range_of_each_dimension(backend, algo, tmp_path):
    """Random phase and policy alike: a symmetric bound, or that of the first dimension, would show."""
    low, high = np.float32([-3, 10]), np.float32([1, 10.5])
    env = Fixed(spaces.Box(-1, 1, (1,)), [0.0], spaces.Box(low, high))
    start = 100
    changes = dict(start_steps=start, steps_per_epoch=200, epochs=1, update_after=10**6, num_test_episodes=0)
    if algo != "sac":
        changes |= dict(act_noise=3.0)
    train(backend, algo, lambda: env, tmp_path / "run", **changes)
    actions = np.array(env.actions)
    assert (actions >= low).all() and (actions <= high).all()
    at_random = actions[:start]
    assert (at_random.min(0) < low + 0.1 * (high - low)).all() and (at_random.max(0) > high - 0.1 * (high - low)).all()
    center = actions[start:].mean(0)  # of an untrained policy, with noise: near the middle
    assert np.abs(center - (low + high) / 2).max() < 0.25 * (high - low).max() and low[1] < center[1] < high[1]


@each_off_policy
def test_A28_the_policy_of_an_untrained_network_is_scaled_to_the_bounds(backend, algo, tmp_path):
    """mode = center + limit * tanh(...): scaled by hand from the same network for the bounds -1, 1."""
    low, high = np.float32([-3, 10]), np.float32([1, 10.5])
    obs = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)

    def mode(space):
        return backends.get(backend).make(algo, spaces.Box(-1, 1, (4,)), space).agent.policy.mode(obs)

    unit = mode(spaces.Box(-1, 1, (2,)))
    assert np.abs(unit).max() > 0.01
    assert mode(spaces.Box(low, high)) == pytest.approx(np.array([-1, 10.25]) + np.array([2, 0.25]) * unit, abs=1e-5)


@each_off_policy
def test_A28_bounds_in_double_precision(backend, algo, tmp_path):
    """Networks compute in single precision whatever the type of the space."""
    env = Walk(spaces.Box(np.array([-0.1]), np.array([0.7]), dtype=np.float64))
    directory = train(backend, algo, lambda: env, tmp_path / "run")
    assert np.isfinite(column(directory, "LossPi")).all()


# -- Ways to make environments ---------------------------------------------------------------------------------------


def make_walk():
    return Walk()


ENV_FNS = {
    "class": Walk,
    "function": make_walk,
    "partial": partial(Walk, action_space=spaces.Box(-2, 2, (1,))),
    "lambda": lambda: Walk(),
    "name": env_fn_from_name("Pendulum-v1"),
    "partial of gym.make": partial(gym.make, "Pendulum-v1"),
}


@each_algorithm_slowly
@pytest.mark.parametrize("env_fn", ENV_FNS.values(), ids=ENV_FNS)
def test_forms_of_env_fn(backend, algo, env_fn, tmp_path):
    directory = train(backend, algo, env_fn, tmp_path / "run", epochs=1, num_envs=2)
    assert column(directory, "TotalEnvInteracts") == [40]


def test_env_fn_is_called_once_per_environment():
    made = remembered(Walk)
    make_envs(made, n=3)
    assert len(made.made) == 3


def test_one_environment_for_all_is_refused():
    env = Walk()
    with pytest.raises(UserError, match=r"num_envs=2: env_fn returned the same environment twice; let it make"):
        make_envs(lambda: env, n=2)


def test_one_environment_inside_several_wrappers_is_refused():
    env = Walk()
    with pytest.raises(UserError, match=r"num_envs=2: env_fn returned the same environment twice; let it make"):
        make_envs(lambda: gym.wrappers.TimeLimit(env, 5), n=2)


def test_environment_by_name_with_arguments():
    env = env_fn_from_name("Pendulum-v1", g=3.5)()
    assert env.unwrapped.g == 3.5


@pytest.fixture
def module_with_env(tmp_path, monkeypatch):
    (tmp_path / "module_with_env.py").write_text(
        "import gymnasium as gym\nfrom helpers import Walk\ngym.register('TestWalk-v0', Walk, max_episode_steps=4)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "module_with_env"
    sys.modules.pop("module_with_env", None)
    gym.registry.pop("TestWalk-v0", None)


def test_environment_of_a_module(module_with_env):
    envs = make_envs(env_fn_from_name("module_with_env:TestWalk-v0"), n=2)
    assert envs.reset().shape == (2, 2)


@pytest.mark.parametrize(
    "name, words",
    [
        ("CartPol-v1", ["unknown environment 'CartPol-v1'", "did you mean 'CartPole-v1'?"]),
        ("nothing like it", ["unknown environment", "gymnasium.pprint_registry()"]),
        ("CartPole-v99", ["CartPole-v99", "CartPole-v1"]),
        ("NoSuchPlace/CartPole-v1", ["unknown environment", "did you mean 'CartPole-v1'?"]),
        ("no_such_module:CartPole-v1", ["cannot import 'no_such_module'"]),
        ("json:NoSuch-v0", ["unknown environment 'json:NoSuch-v0'"]),
        ("", ["environment ''"]),
    ],
)
def test_unknown_environments_are_refused_with_the_nearest_name(name, words):
    with pytest.raises(UserError) as caught:
        env_fn_from_name(name)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


# -- EnvPool ---------------------------------------------------------------------------------------------------------

FALLEN = 0.2095  # CartPole ends when the pole leans more than this, or the cart is more than 2.4 away


@pytest.fixture
def envpool():
    return pytest.importorskip("envpool")


def pool_by_name(n, seed=0):
    return make_envs(env_fn_from_name("envpool:CartPole-v1"), n, seed)


def test_A04_envpool_gives_true_final_observations_and_restarts_only_what_is_done(envpool):
    envs = pool_by_name(3)
    obs = envs.reset()
    assert obs.shape == (3, 4) and obs.dtype == np.float32 and np.abs(obs).max() <= 0.05
    ended = 0
    for _ in range(40):  # pushing to one side lets every pole fall within 12 steps
        obs, rew, terminated, truncated = (x.copy() for x in envs.step(np.ones(3, dtype=int)))
        assert rew.tolist() == [1, 1, 1] and not truncated.any()
        assert ((np.abs(obs[:, 2]) > FALLEN) | (np.abs(obs[:, 0]) > 2.4)).tolist() == terminated.tolist()
        if terminated.any():
            ended += terminated.sum()
            after = envs.restart(terminated)
            assert np.abs(after[terminated]).max() <= 0.05
            assert (after[~terminated] == obs[~terminated]).all()
    assert ended >= 9


def test_A05_envpool_time_limits_are_no_terminal_states(envpool):
    envs = make_envs(env_fn_from_name("envpool:Pendulum-v1", max_episode_steps=3), n=2)
    envs.reset()
    ends = []
    for _ in range(3):
        _, _, terminated, truncated = envs.step(np.zeros((2, 1), dtype=np.float32))
        ends.append((terminated.tolist(), truncated.tolist()))
    assert ends == [([False] * 2, [False] * 2)] * 2 + [([False] * 2, [True] * 2)]


def test_A13_envpool_is_seeded(envpool):
    starts = [pool_by_name(3, seed).reset().tolist() for seed in (0, 0, 1)]
    assert starts[0] == starts[1] != starts[2]
    assert len({tuple(start) for start in starts[0]}) == 3


def test_envpool_made_by_an_env_fn(envpool):
    envs = make_envs(lambda: envpool.make_gymnasium("Pendulum-v1", num_envs=2), n=2)
    assert envs.reset().shape == (2, 3)
    assert envs.step(np.full((2, 1), 5.0, dtype=np.float32))[0].shape == (2, 3)


def test_envpool_of_another_size_is_refused(envpool):
    with pytest.raises(UserError, match=r"num_envs=3, but env_fn made an EnvPool of 2: make the two equal"):
        make_envs(lambda: envpool.make_gymnasium("Pendulum-v1", num_envs=2), n=3)


@each_algorithm_slowly
@pytest.mark.parametrize("by", ["name", "env_fn"])
def test_every_algorithm_trains_on_envpool(envpool, backend, algo, by, tmp_path):
    env_fn = {
        "name": env_fn_from_name("envpool:Pendulum-v1"),
        "env_fn": lambda: envpool.make_gymnasium("Pendulum-v1", num_envs=2),
    }[by]
    directory = train(backend, algo, env_fn, tmp_path / "run", num_envs=2)
    assert column(directory, "TotalEnvInteracts") == [40, 80]
    assert column(directory, "EpLen")[-1] == 15  # max_ep_len


def test_unknown_envpool_environments_are_refused_with_the_nearest_name(envpool):
    with pytest.raises(UserError, match=r"unknown EnvPool environment 'Pendulm-v1': did you mean 'Pendulum-v1'\?"):
        env_fn_from_name("envpool:Pendulm-v1")


def test_without_envpool_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(UserError, match=r"'envpool:Pendulum-v1' needs EnvPool: pip install 'spinup\[envpool\]'"):
        env_fn_from_name("envpool:Pendulum-v1")


# -- Errors ----------------------------------------------------------------------------------------------------------


class Faulty(Scripted):
    """Does something wrong at one moment: in reset number `at_reset`, or in step number `at_step` of its life."""

    def __init__(self, *script, at_reset=None, at_step=None, obs=None, reward=None):
        super().__init__(*script)
        self.at_reset, self.at_step, self.bad_obs, self.bad_reward = at_reset, at_step, obs, reward

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        if len(self.seeds) == self.at_reset:
            return self._wrong(obs, 0.0)[0], info
        return obs, info

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if len(self.actions) == self.at_step:
            obs, reward = self._wrong(obs, reward)
        return obs, reward, *rest

    def _wrong(self, obs, reward):
        if self.bad_obs is None and self.bad_reward is None:
            raise RuntimeError("boom")
        return (
            obs if self.bad_obs is None else np.array([0, self.bad_obs]),
            reward if self.bad_reward is None else self.bad_reward,
        )


def run_until_error(*envs):
    """Steps that restart what is done, until something is raised. Returns the error and the Envs."""
    n = len(envs)
    vector = make_envs(one_each(*envs), n)
    try:
        vector.reset()
        for _ in range(10):
            _, _, terminated, truncated = vector.step(np.zeros((n, 1)))
            if (terminated | truncated).any():
                vector.restart(terminated | truncated)
    except Exception as error:
        return error, vector
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "when, method", [(dict(at_step=3), "step"), (dict(at_reset=1), "reset"), (dict(at_reset=2), "reset")]
)
def test_an_environment_that_raises_keeps_its_traceback_and_is_named(when, method):
    error, vector = run_until_error(Scripted(), Faulty((2, "terminated"), **when), Scripted())
    assert type(error) is RuntimeError and error.args == ("boom",)
    frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].name == "_wrong" and frames[-1].filename == __file__
    (note,) = error.__notes__
    assert f"{method}()" in note and "environment 1" in note and f"seed {vector.seeds[1]}" in note


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "when, what",
    [
        (lambda bad: dict(at_step=3, reward=bad), "reward"),
        (lambda bad: dict(at_step=3, obs=bad), "observation"),
        (lambda bad: dict(at_reset=1, obs=bad), "observation"),
        (lambda bad: dict(at_reset=2, obs=bad), "observation"),
    ],
    ids=["reward", "observation", "first reset", "later reset"],
)
def test_numbers_that_are_not_finite_are_not_let_through(when, what, bad):
    error, vector = run_until_error(Scripted(), Faulty((2, "terminated"), **when(bad)))
    assert type(error) is NonFiniteError
    message = str(error)
    assert (
        message.startswith(f"environment 1 (seed {vector.seeds[1]}) gave ") and what in message and str(bad) in message
    )
    assert "\n" not in message


def test_infinities_that_cancel_are_found():
    envs = make_envs(one_each(Faulty(at_step=1, obs=math.inf), Faulty(at_step=1, obs=-math.inf)), n=2)
    envs.reset()
    with pytest.raises(NonFiniteError, match=r"environment 0 .* observation with inf"):
        envs.step(np.zeros((2, 1)))


@pytest.mark.filterwarnings("ignore:overflow")
def test_finite_numbers_whose_sum_overflows_are_let_through():
    envs = make_envs(lambda: Fixed(spaces.Box(-np.inf, np.inf, (2,)), np.float32([3e38, 3e38])))
    envs.reset()
    assert np.isfinite(envs.step(np.zeros(1, dtype=int))[0]).all()
