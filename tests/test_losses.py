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


def assert_close(actual, expected, **tolerance):
    """Dicts of arrays with equal keys."""
    assert sorted(actual) == sorted(expected)
    for key in expected:
        assert_allclose(actual[key], expected[key], **TOLERANCE | tolerance, err_msg=key)


def assert_columns(subject, reference_columns):
    """The columns of several updates, one dict of the reference each. Some columns are not the page's to report."""
    assert set(subject) <= {key for columns in reference_columns for key in columns}
    for key, values in subject.items():
        expected = [np.ravel(columns[key]) for columns in reference_columns if key in columns]
        assert_allclose(values, np.concatenate(expected), **TOLERANCE, err_msg=key)


# -- Losses and their gradients -------------------------------------------------------------------------------------


@on_policy
@box_and_discrete
def test_on_policy_losses_and_gradients(make, algo, space):
    subject = make(algo, space)
    expected, data = oracle(algo, subject), rollout(subject, space)
    for which, loss in (
        ("loss_pi", lambda p: expected.loss_pi(p, data)),
        ("loss_v", lambda p: reference.loss_v(p, data)),
    ):
        value, gradient = subject.loss(which, data)
        assert_allclose(value, loss(expected.p), **TOLERANCE)
        assert_allclose(gradient, reference.grad_of(loss, expected.p, which[5:] + "."), **TOLERANCE)


@off_policy
def test_off_policy_losses_and_gradients(make, algo):
    subject = make(algo)
    expected, data, noise = oracle(algo, subject), transitions(), noises(algo)
    y = expected.backup(data, *noise[:1])
    for which, prefix, loss, noise in (
        ("loss_q", "q", lambda p: reference.squared_errors(p, expected.critics, data, y), noise[:1]),
        ("loss_pi", "pi.", lambda p: expected.loss_pi(p, data, *noise[1:]), noise[1:]),
    ):
        value, gradient = subject.loss(which, data, noise)
        assert_allclose(value, loss(expected.p), **TOLERANCE)
        assert_allclose(gradient, reference.grad_of(loss, expected.p, prefix), **TOLERANCE)
