"""Every algorithm solves the probe environments, with discrete and continuous actions, ending and endless."""

from functools import partial
from itertools import product

import backends
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from spinup.debug.probes import PROBES, TIME_LIMIT, mistakes

GAMMA = 0.8
ON_POLICY = dict(
    steps_per_epoch=200, epochs=15, lam=0.9, vf_lr=3e-2, train_v_iters=12, ac_kwargs=dict(hidden_sizes=(16,))
)
OFF_POLICY = dict(steps_per_epoch=600, epochs=1, start_steps=200, update_after=50, update_every=10, batch_size=32)
OFF_POLICY |= dict(polyak=0.9, num_test_episodes=0, ac_kwargs=dict(hidden_sizes=(32,)))
ALGORITHMS = dict(
    vpg=ON_POLICY | dict(epochs=40, pi_lr=3e-2),
    ppo=ON_POLICY | dict(pi_lr=1e-2, train_pi_iters=15, target_kl=0.05),
    trpo=ON_POLICY | dict(delta=0.05),
    npg=ON_POLICY | dict(delta=0.05, algo="npg"),
    ddpg=OFF_POLICY | dict(pi_lr=3e-3, q_lr=1e-2),
    td3=OFF_POLICY | dict(pi_lr=3e-3, q_lr=1e-2),
    sac=OFF_POLICY | dict(steps_per_epoch=500, lr=1e-2, alpha=0.01),
)


def case(algo, name, continuous, endless):
    """The combinations that add least are slow."""
    if algo in backends.OFF_POLICY:
        fast = not endless or name in ("observation", "observation_action")
    else:
        fast = continuous == endless and algo != "npg"
    space = "box" if continuous else "discrete"
    id = "-".join([algo, name, space, *(["endless"] if endless else [])])
    return pytest.param(algo, name, continuous, endless, id=id, marks=[] if fast else pytest.mark.slow)


# Everything that an algorithm can solve: DDPG, TD3 and SAC have no discrete actions.
CASES = [
    case(algo, name, continuous, endless)
    for algo, name, continuous, endless in product(ALGORITHMS, PROBES, (False, True), (False, True))
    if continuous or algo not in backends.OFF_POLICY
]


@pytest.mark.parametrize("backend", backends.NAMES)
@pytest.mark.parametrize("algo, name, continuous, endless", CASES)
def test_probe_is_solved(tmp_path, backend, algo, name, continuous, endless):
    env_fn = partial(PROBES[name], continuous=continuous, endless=endless)
    trained = backends.get(backend).train(
        "trpo" if algo == "npg" else algo,
        env_fn,
        gamma=GAMMA,
        threads=1,
        logger_kwargs=dict(output_dir=tmp_path),
        **ALGORITHMS[algo],
    )
    assert mistakes(env_fn(), GAMMA, trained.value, trained.agent.policy.mode) == []


# -- The probes themselves ------------------------------------------------------------------------------------------

probes = pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)


@probes
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("endless", [False, True])
def test_probe_keeps_its_promises(probe, continuous, endless):
    """The value of each observation is the discounted return of the best actions, as played."""
    env = probe(continuous, endless)
    check_env(env, skip_render_check=True)
    expected = {answer.obs.item(): answer for answer in env.expected(GAMMA)}
    for seed in range(4):
        (obs, _), rewards, over = env.reset(seed=seed), [], False
        start = obs.item()
        while not over:
            action = expected[obs.item()].action or 0
            obs, reward, terminated, truncated, _ = env.step(np.array([action]) if continuous else int(action))
            rewards.append(reward)
            over = terminated or truncated
        value = sum(GAMMA**t * r for t, r in enumerate(rewards))
        if endless:  # what comes after the time limit is worth as much as ever
            assert truncated and not terminated and len(rewards) == TIME_LIMIT
            value += GAMMA**TIME_LIMIT * expected[obs.item()].value
        assert value == pytest.approx(expected[start].value)


@pytest.mark.parametrize("name", ["constant", "observation", "action", "observation_action"])
def test_endless_value_is_r_over_one_minus_gamma(name):
    for once, forever in zip(PROBES[name]().expected(GAMMA), PROBES[name](endless=True).expected(GAMMA), strict=True):
        assert forever.value == pytest.approx(once.value / (1 - GAMMA))


def test_mistakes_are_told():
    env = PROBES["action"]()
    assert mistakes(env, GAMMA, lambda obs: 1.05, lambda obs: [[0.6]]) == []
    assert mistakes(env, GAMMA, lambda obs: 1.2, lambda obs: [[-0.5]]) == [
        "the value of 0 is 1.2 instead of 1",
        "the action for 0 is -0.5 instead of 0.5",
    ]
    assert len(mistakes(env, GAMMA, lambda obs: np.nan, lambda obs: np.nan)) == 2
    with pytest.raises(ValueError, match="gamma < 1"):
        PROBES["constant"](endless=True).expected(1.0)
