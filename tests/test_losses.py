"""The pages compute what the reference computes: losses, gradients, parameters after updates, every column.

Names of tests carry the tags of the register of the original's defects (A-01 and so on) that must not come back.
"""

import inspect
from types import SimpleNamespace

import backends
import numpy as np
import pytest
import reference
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

from spinup.training import acting
from spinup.training.buffers import GAEBuffer, Rollout
from spinup.training.on_policy import OnPolicyLoop

OBS = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = {
    "box": Box(np.float32([-1, 0]), np.float32([1, 3])),  # bounds that differ, and are not symmetric
    "discrete": Discrete(4),
    "multi_discrete": MultiDiscrete([2, 3]),
}
HYPER = dict(
    vpg=dict(pi_lr=1e-2, vf_lr=1e-2, train_v_iters=3),
    ppo=dict(pi_lr=1e-2, vf_lr=1e-2, train_pi_iters=6, train_v_iters=3, clip_ratio=0.2, target_kl=0.01),
    trpo=dict(vf_lr=1e-2, train_v_iters=3, delta=0.01, damping_coeff=0.1, backtrack_iters=10, backtrack_coeff=0.8)
    | dict(cg_iters=60, algo="trpo"),
    ddpg=dict(gamma=0.9, polyak=0.9, pi_lr=1e-2, q_lr=1e-2),
    td3=dict(gamma=0.9, polyak=0.9, pi_lr=1e-2, q_lr=1e-2, target_noise=0.4, noise_clip=0.5, policy_delay=2),
    sac=dict(gamma=0.9, polyak=0.9, lr=1e-2, alpha=0.2),
)
BATCH = 24
TOLERANCE = dict(rtol=1e-5, atol=1e-5)

on_policy = pytest.mark.parametrize("algo", backends.ON_POLICY)
off_policy = pytest.mark.parametrize("algo", backends.OFF_POLICY)
box_and_discrete = pytest.mark.parametrize("space", ["box", "discrete"])


@pytest.fixture(params=backends.NAMES)
def backend(request):
    return backends.get(request.param)


@pytest.fixture
def make(backend):
    """make(algo, space, **hyperparameters): an algorithm with small networks, random in every parameter."""
    made = []

    def make(algo, space="box", ac_kwargs=dict(hidden_sizes=(4, 3)), **changes):
        subject = backend.make(algo, OBS, ACTIONS[space], ac_kwargs=ac_kwargs, **HYPER[algo] | changes)
        made.append(subject)
        rng = np.random.default_rng(1)
        subject.load({name: 0.5 * rng.standard_normal(p.shape) for name, p in subject.params().items()})
        return subject

    yield make
    for subject in made:
        subject.close()


def oracle(algo, subject, **changes):
    """The reference with the same parameters and hyperparameters."""
    hyper = HYPER[algo] | changes
    if algo in backends.OFF_POLICY:
        hyper |= dict(low=ACTIONS["box"].low.astype(float), high=ACTIONS["box"].high.astype(float))
        reference_p = reference.ALGORITHMS[algo](subject.params(), **hyper)
        reference_p.targ = subject.targets()
        return reference_p
    return reference.ALGORITHMS[algo](subject.params(), **hyper)


def rollout(subject, space="box", seed=0):
    """A batch whose old policy differs from the present one, so that some ratios leave the clipping range."""
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((BATCH, 3))
    act = rng.standard_normal((BATCH, 2)) if space == "box" else rng.integers(4, size=BATCH).astype(float)
    data = dict(obs=obs, act=act, adv=rng.standard_normal(BATCH), ret=rng.standard_normal(BATCH))
    logp = reference.policy(subject.params(), obs).logp(act) + 0.2 * rng.standard_normal(BATCH)
    return {key: backends.float32(x).astype(float) for key, x in (data | dict(logp=logp)).items()}


def transitions(seed=0):
    rng = np.random.default_rng(seed)
    data = dict(obs=rng.standard_normal((BATCH, 3)), obs2=rng.standard_normal((BATCH, 3)))
    data |= dict(act=rng.uniform([-1, 0], [1, 3], (BATCH, 2)), rew=rng.standard_normal(BATCH))
    data |= dict(done=rng.integers(2, size=BATCH))
    return {key: backends.float32(x).astype(float) for key, x in data.items()}


def noises(algo, seed=0):
    """The noise of one update, in the order in which it is used."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((BATCH, 2)) for _ in range(dict(ddpg=0, td3=1, sac=2)[algo])]


def assert_close(actual, expected):
    """Dicts of arrays with the same keys."""
    assert sorted(actual) == sorted(expected)
    for key in expected:
        assert_allclose(actual[key], expected[key], **TOLERANCE, err_msg=key)


def assert_loss(value_and_gradient, loss, p, prefix):
    value, gradient = value_and_gradient
    assert_allclose(value, loss(p), **TOLERANCE)
    assert_allclose(gradient, reference.grad_of(loss, p, prefix), **TOLERANCE)


def assert_updates(subject, expected, batches, noise=None):
    """The same parameters, targets and columns after one update for each batch."""
    noise = noise or [[] for _ in batches]
    columns = subject.update(batches, [sample for samples in noise for sample in samples])
    expected_columns = [expected.update(data, *samples) for data, samples in zip(batches, noise, strict=True)]
    for key, values in columns.items():
        one_by_one = [np.ravel(update[key]) for update in expected_columns if key in update]
        assert_allclose(values, np.concatenate(one_by_one), **TOLERANCE, err_msg=key)
    assert_close(subject.params(), expected.p)
    if hasattr(expected, "targ"):
        assert_close(subject.targets(), expected.targ)
    return columns


# -- Losses and their gradients -------------------------------------------------------------------------------------


@on_policy
@box_and_discrete
def test_on_policy_losses_and_gradients(make, algo, space):
    subject = make(algo, space)
    expected, data = oracle(algo, subject), rollout(subject, space)
    assert_loss(subject.loss("loss_pi", data), lambda p: expected.loss_pi(p, data), expected.p, "pi.")
    assert_loss(subject.loss("loss_v", data), lambda p: reference.loss_v(p, data), expected.p, "v.")


@off_policy
def test_off_policy_losses_and_gradients(make, algo):
    subject = make(algo)
    expected, data, noise = oracle(algo, subject), transitions(), noises(algo)
    y = expected.backup(data, *noise[:1])
    loss_q, loss_pi = subject.loss("loss_q", data, noise[:1]), subject.loss("loss_pi", data, noise[1:])
    assert_loss(loss_q, lambda p: reference.squared_errors(p, expected.critics, data, y), expected.p, "q")
    assert_loss(loss_pi, lambda p: expected.loss_pi(p, data, *noise[1:]), expected.p, "pi.")


# -- Whole updates --------------------------------------------------------------------------------------------------

COLUMNS = dict(  # of progress.txt, as far as the page reports them
    vpg={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL"},
    ppo={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL", "ClipFrac", "StopIter"},
    trpo={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "KL", "BacktrackIters"},
    npg={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "KL"},
    ddpg={"QVals", "LossPi", "LossQ"},
    td3={"Q1Vals", "Q2Vals", "LossPi", "LossQ"},
    sac={"Q1Vals", "Q2Vals", "LogPi", "LossPi", "LossQ"},
)


@pytest.mark.parametrize("algo", [*backends.ON_POLICY, "npg"])
@box_and_discrete
def test_three_on_policy_updates(make, algo, space):
    """A-01 A-02 A-03 A-16: parameters and every column; the deltas and the KL from after the last step."""
    page, changes = ("trpo", dict(algo="npg")) if algo == "npg" else (algo, {})
    subject = make(page, space, **changes)
    batches = [rollout(subject, space, seed) for seed in range(3)]
    columns = assert_updates(subject, oracle(page, subject, **changes), batches)
    assert set(columns) == COLUMNS[algo]
    assert np.abs(columns["KL"]).min() > 1e-4 and np.abs(columns["DeltaLossV"]).min() > 1e-4


@off_policy
def test_three_off_policy_updates(make, algo):
    """A-21 A-32: critics, policy, targets, in this order."""
    subject = make(algo)
    batches, noise = [transitions(seed) for seed in range(3)], [noises(algo, seed) for seed in range(3)]
    assert set(assert_updates(subject, oracle(algo, subject), batches, noise)) == COLUMNS[algo]


def test_three_sac_updates_with_learned_temperature(make):
    subject = make("sac", alpha="auto")
    batches, noise = [transitions(seed) for seed in range(3)], [noises("sac", seed) for seed in range(3)]
    columns = assert_updates(subject, oracle("sac", subject, alpha="auto"), batches, noise)
    assert set(columns) == COLUMNS["sac"] | {"Alpha"}
    assert len(set(columns["Alpha"])) == 3


@pytest.mark.parametrize("mean_entropy, direction", [(-3.0, +1), (-1.0, -1)])
def test_temperature_grows_while_entropy_is_below_target(make, mean_entropy, direction):
    """The target is -dim(A) = -2."""
    expected = oracle("sac", make("sac"), alpha="auto")
    log_alpha = expected.alpha_optimizer.step(expected.log_alpha, -(-mean_entropy - 2))
    assert np.sign(log_alpha) == direction


# -- On-policy, piece by piece --------------------------------------------------------------------------------------


def test_A03_entropy_adds_up_over_action_dimensions(make):
    subject = make("ppo")
    log_std = subject.params()["pi.log_std"]
    columns = subject.update([rollout(subject)])
    assert_allclose(columns["Entropy"], log_std.sum() + 2 * 0.5 * np.log(2 * np.pi * np.e), **TOLERANCE)


@pytest.mark.parametrize("target_kl, steps", [(1e-6, [0]), (0.01, range(1, 6)), (1e6, [6]), (None, [6])])
def test_A08_stop_iter_counts_steps(make, target_kl, steps):
    subject = make("ppo", target_kl=target_kl)
    data = rollout(subject) | dict(logp=reference.policy(subject.params(), rollout(subject)["obs"]).logp(rollout(subject)["act"]) + 1e-5)
