"""Every algorithm learns something real: one seed each, a bar that a broken algorithm does not reach."""

from functools import partial

import backends
import gymnasium as gym
import numpy as np
import pytest

pytestmark = pytest.mark.slow

ON_POLICY = dict(steps_per_epoch=2000, gamma=0.98, lam=0.95, vf_lr=5e-3, train_v_iters=20, save_freq=1000)
ON_POLICY |= dict(ac_kwargs=dict(hidden_sizes=(32, 32)))
OFF_POLICY = dict(steps_per_epoch=1000, epochs=5, start_steps=1000, update_after=500, batch_size=64, gamma=0.98)
OFF_POLICY |= dict(polyak=0.98, replay_size=5000, num_test_episodes=10, ac_kwargs=dict(hidden_sizes=(64, 64)))

ALGORITHMS = dict(
    vpg=ON_POLICY | dict(pi_lr=1e-2),
    ppo=ON_POLICY | dict(pi_lr=3e-3, train_pi_iters=30, target_kl=0.02),
    trpo=ON_POLICY | dict(delta=0.02),
    npg=ON_POLICY | dict(delta=0.02, algo="npg"),
    ddpg=OFF_POLICY,
    td3=OFF_POLICY,
    sac=OFF_POLICY | dict(lr=2e-3),
    sac_auto=OFF_POLICY | dict(lr=2e-3, alpha="auto"),
)
# Epochs, and the return to be reached: random play earns 22, 6 and -1200.
CART_POLE = "CartPole-v1", dict(epochs=20), 200
INVERTED_PENDULUM = "InvertedPendulum-v5", dict(epochs=40), 500
PENDULUM = "Pendulum-v1", {}, -300

CASES = [(name, *CART_POLE) for name in ("vpg", "ppo", "trpo")]  # where npg takes the very same steps as trpo
CASES += [(name, *INVERTED_PENDULUM) for name in ("vpg", "ppo", "trpo", "npg")]
CASES += [(name, *PENDULUM) for name in ("ddpg", "td3", "sac", "sac_auto")]


@pytest.mark.parametrize("backend", backends.NAMES)
@pytest.mark.parametrize("name, env, length, bar", CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_learns(tmp_path, backend, name, env, length, bar):
    algo = dict(npg="trpo", sac_auto="sac").get(name, name)
    arguments = ALGORITHMS[name] | length | dict(threads=1, logger_kwargs=dict(output_dir=tmp_path))
    backends.get(backend).train(algo, partial(gym.make, env), **arguments)
    assert score(tmp_path) > bar


def score(folder):
    """On-policy: the best mean over five epochs in a row. Off-policy: the mean of the last two evaluations."""
    progress = np.genfromtxt(folder / "progress.txt", names=True, delimiter="\t")
    if "AverageTestEpRet" in progress.dtype.names:
        return progress["AverageTestEpRet"][-2:].mean()
    return np.convolve(np.nan_to_num(progress["AverageEpRet"]), np.ones(5) / 5, "valid").max()
