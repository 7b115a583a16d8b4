"""The reference itself, against numbers worked out by hand."""

import numpy as np
import pytest
import reference
from numpy.testing import assert_allclose


def test_discounted_sum():
    assert_allclose(reference.discounted_sum([1, 2, 3], 0.5), [2.75, 3.5, 3.0])


@pytest.mark.parametrize(
    "last_val, adv, ret",
    [
        (0, [2.35880667, 1.55535, 0.7], [2.9701, 1.99, 1.0]),
        (0.2, [2.53394564, 1.741569, 0.898], [3.1641598, 2.18602, 1.198]),
    ],
)
def test_gae(last_val, adv, ret):
    assert_allclose(reference.gae([1, 1, 1], [0.5, 0.4, 0.3], last_val, 0.99, 0.95), (adv, ret), rtol=1e-7)


@pytest.mark.parametrize("lam", [0, 1])
def test_gae_at_both_ends(lam):
    """lam = 0 is the one-step error, lam = 1 the return minus the value."""
    rew, val, last_val, gamma = np.array([1.0, -2.0, 0.5]), np.array([0.5, 0.4, 0.3]), 2.0, 0.9
    adv, ret = reference.gae(rew, val, last_val, gamma, lam)
    assert_allclose(adv, ret - val if lam else rew + gamma * np.append(val[1:], last_val) - val)


def test_gaussian_likelihood():
    logp = reference.gaussian_likelihood(np.array([0.3, -0.2]), np.array([0, 0.1]), np.array([-0.5, -0.5]))
    assert_allclose(logp, -1.08252242, rtol=1e-7)


@pytest.mark.parametrize("correction", [reference.tanh_correction, reference.tanh_correction_naive])
def test_tanh_correction(correction):
    assert_allclose(correction(np.array([0.5, -1.0])), -1.10779067, rtol=1e-8)


def test_careful_tanh_correction_far_out():
    assert_allclose(reference.tanh_correction(np.array([[30.0], [-30.0]])), 2 * np.log(2) - 60)


def test_squashed_density_integrates_to_one():
    """exp(logp) is a density over tanh(u), so its integral over (-1, 1) is one."""
    a = np.linspace(-1, 1, 20001)[1:-1, None]
    u, mu, log_std = np.arctanh(a), 0.3, -0.7
    logp = reference.gaussian_likelihood(u, mu, log_std) - reference.tanh_correction(u)
    assert_allclose(np.exp(logp).sum() * (a[1] - a[0]), 1, rtol=1e-6)


def test_gaussian():
    p0 = reference.Gaussian(np.array([[0.0, 1.0]]), np.log([1.0, 2.0]))
    p1 = reference.Gaussian(np.array([[1.0, 1.0]]), np.log([2.0, 2.0]))
    assert_allclose(p0.entropy(), 1 + np.log(2 * np.pi) + np.log(2))
    assert_allclose(p0.kl(p1), np.log(2) + (1 + 1) / 8 - 0.5)
    assert_allclose(p1.kl(p0), -np.log(2) + (4 + 1) / 2 - 0.5)


def test_categorical():
    p0, p1 = (reference.Categorical(np.log([p])) for p in ([0.5, 0.5], [0.25, 0.75]))
    assert_allclose(p1.logp(np.array([1.0])), np.log(0.75))
    assert_allclose(p0.entropy(), np.log(2))
    assert_allclose(p0.kl(p1), 0.5 * np.log(2) + 0.5 * np.log(2 / 3))
    assert_allclose(p1.kl(p0), 0.25 * np.log(1 / 2) + 0.75 * np.log(3 / 2))


def test_mlp():
    p = {"f.0.weight": np.array([[1.0, -2.0]]), "f.0.bias": np.array([0.5])}
    p |= {"f.2.weight": np.array([[3.0]]), "f.2.bias": np.array([-1.0])}
    x = np.array([[1.0, 0.5], [0.0, 1.0]])
    assert_allclose(reference.mlp(p, "f", x, reference.relu), [[3 * 0.5 - 1], [-1]])
    assert_allclose(reference.mlp(p, "f", x, reference.relu, np.tanh), np.tanh([[0.5], [-1]]))


def test_derivatives():
    A, b = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -3.0])

    def f(x):
        return 0.5 * x @ A @ x + b @ x + x[0] ** 4

    x = np.array([0.5, 2.0])
    H = A + np.diag([12 * x[0] ** 2, 0])
    assert_allclose(reference.grad(f, x), A @ x + b + [4 * x[0] ** 3, 0], atol=1e-8)
    assert_allclose(reference.hessian(f, x), H, atol=1e-6)
    assert_allclose(H @ reference.conjugate_gradient(H, b), b)


def test_adam():
    """By hand: the first step is lr in the direction of -sign(g); m = 0.09 - 0.1, v = 0.000999 + 0.001 then."""
    adam, x = reference.Adam(0.1), np.array([1.0])
    x = adam.step(x, np.array([1.0]))
    assert_allclose(x, 0.9, atol=1e-8)
    x = adam.step(x, np.array([-1.0]))
    assert_allclose(x, 0.9 - 0.1 * (-0.01 / 0.19) / np.sqrt(0.001999 / 0.001999), atol=1e-8)


def test_polyak():
    assert reference.polyak({"x": 1.0}, {"x": 5.0, "y": 0.0}, 0.75) == {"x": 2.0}


def test_losses():
    """One state, one action dimension, networks that are constants."""
    zero = {"weight": np.zeros((1, 1)), "bias": np.zeros(1)}
    pi = {"pi.log_std": np.zeros(1)} | {f"pi.mu_net.0.{key}": x for key, x in zero.items()}
    v = {"v.v_net.0.weight": np.zeros((1, 1)), "v.v_net.0.bias": np.array([2.0])}
    one = np.ones(1)
    logp = -0.5 * np.log(2 * np.pi)  # of the action 0 under N(0, 1)
    data = dict(obs=one[None], act=0 * one[None], adv=3 * one, ret=5 * one, logp=(logp - np.log(1.5)) * one)
    assert_allclose(reference.vpg_loss_pi(pi, data), -3 * logp)
    assert_allclose(reference.trpo_loss_pi(pi, data), -3 * 1.5)
    assert_allclose(reference.ppo_loss_pi(pi, data, 0.2), -3 * 1.2)
    assert_allclose(reference.ppo_loss_pi(pi, data | dict(adv=-3 * one), 0.2), 3 * 1.5)  # worse is never clipped
    assert_allclose(reference.loss_v(v, data), 9)

    q = {f"{name}.q.0.weight": np.array([[0.0, 1.0]]) for name in ("q", "q1", "q2")}  # Q(s, a) = a + bias
    q |= {"q.q.0.bias": 1 * one, "q1.q.0.bias": 1 * one, "q2.q.0.bias": 2 * one}
    actor = {f"pi.pi.0.{key}": x for key, x in zero.items()}  # mu(s) = the centre, 1, of the bounds -1 and 3
    bounds = dict(low=-one, high=3 * one)
    data = dict(obs=one[None], act=0 * one[None], rew=one, obs2=one[None], done=0 * one)
    assert_allclose(reference.ddpg_backup(actor | q, data, gamma=0.5, **bounds), 1 + 0.5 * 2)
    assert_allclose(reference.ddpg_backup(actor | q, data | dict(done=one), gamma=0.5, **bounds), 1)
    assert_allclose(reference.deterministic_loss_pi(actor | q, "q", data, **bounds), -2)
    assert_allclose(reference.squared_errors(q, ("q1", "q2"), data, 4 * one), 3**2 + 2**2)
    for noise, a2 in [(1, 1.4), (10, 1.5), (-10, 0.5)]:  # std 0.4, clipped at 0.5
        y = reference.td3_backup(
            actor | q, data, noise * one[None], gamma=0.5, target_noise=0.4, noise_clip=0.5, **bounds
        )
        assert_allclose(y, 1 + 0.5 * (a2 + 1))

    heads = {f"pi.{layer}.{key}": x for layer in ("net.0", "mu_layer", "log_std_layer") for key, x in zero.items()}
    noise = 0.5 * one[None]
    a, logp = 1 + 2 * np.tanh(0.5), -0.5 * np.log(2 * np.pi) - 0.125 - np.log(1 - np.tanh(0.5) ** 2)
    y = reference.sac_backup(heads, q, data, noise, gamma=0.5, alpha=0.1, **bounds)
    assert_allclose(y, 1 + 0.5 * (a + 1 - 0.1 * logp))
    loss_pi = reference.sac_loss_pi(heads | q, data, noise, alpha=0.1, **bounds)
    assert_allclose(loss_pi, 0.1 * logp - (a + 1))
