"""Trust Region Policy Optimization: the largest step that keeps the new policy within a KL divergence of the old."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from spinup.algos.jax.learn import Adam, gradient_step, process_average, repeat, repeat_while, select, train_on_policy
from spinup.algos.jax.trpo import core
from spinup.training.buffers import GAEBuffer
from spinup.training.hyperparams import check, documented

__all__ = ["TRPO", "GAEBuffer", "conjugate_gradient", "core", "trpo"]

COLUMNS = ["LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "KL"]

EPS = 1e-8


def conjugate_gradient(Hx, g, cg_iters):
    """Solve H x = g, given only the product x -> H x. Ends early when the residual has vanished."""

    def step(carry):
        i, x, r, p, r_dot_r, _ = carry  # solution, residual g - H x, search direction
        Hp = Hx(p)
        curvature = p @ Hp
        alpha = r_dot_r / curvature
        x_new, r_new = x + alpha * p, r - alpha * Hp
        p_new = r_new + (r_new @ r_new / r_dot_r) * p
        done = (r_dot_r <= 1e-14 * (g @ g)) | (curvature <= 0)
        return select(done, (i, x, r, p, r_dot_r, done), (i + 1, x_new, r_new, p_new, r_new @ r_new, done))

    def keep_going(carry):
        i, *_, done = carry
        return ~done & (i < cg_iters)

    start = (jnp.array(0), jnp.zeros_like(g), g, g, g @ g, jnp.array(False))
    return repeat_while(keep_going, step, start)[1]


class State(NamedTuple):
    ac: Any
    v_opt: Any  # what Adam remembers


class TRPO:
    networks = ("pi", "v")

    def __init__(self, *, delta, vf_lr, train_v_iters, damping_coeff, cg_iters, backtrack_iters, backtrack_coeff, algo):
        self.delta, self.algo = delta, algo
        self.damping_coeff, self.cg_iters = damping_coeff, cg_iters
        self.backtrack_iters, self.backtrack_coeff = backtrack_iters, backtrack_coeff
        self.train_v_iters = train_v_iters
        self.v_optimizer = Adam(vf_lr, "v")

    def init(self, ac):
        return State(ac, self.v_optimizer.init(ac))

    def loss_pi(self, ac, data):
        """L_pi = -E[ ratio A ],  ratio = pi(a|s) / pi_old(a|s): minus the surrogate advantage."""
        pi, logp = ac.pi(data["obs"], data["act"])  # logp (B,)
        ratio = jnp.exp(logp - data["logp"])  # (B,)
        return -(ratio * data["adv"]).mean(), pi

    def loss_v(self, ac, data):
        """L_v = E[ (V(s) - ret)^2 ]."""
        return ((ac.v(data["obs"]) - data["ret"]) ** 2).mean(), None

    def hessian_vector_product(self, kl, theta):
        """v -> (H + damping I) v, with H the Hessian of a KL divergence at theta.

        H v is the derivative of grad KL in the direction v: H itself, (P, P) for P parameters, is never formed.
        """

        def Hx(v):
            _, Hv = jax.jvp(jax.grad(kl), (theta,), (v,))
            return process_average(Hv + self.damping_coeff * v)  # (P,)

        return Hx

    def update(self, state, data):
        """One natural-gradient step of the policy, shortened until it is safe, then the value function."""
        ac, v_opt = state
        loss_v_old, _ = self.loss_v(ac, data)
        theta_old, with_theta = flat_policy(ac)  # (P,)

        def loss_and_kl(theta):
            loss_pi, pi = self.loss_pi(with_theta(theta), data)
            return loss_pi, pi_old.kl(pi).mean()

        _, pi_old = self.loss_pi(ac, data)
        loss_pi_old, g = jax.value_and_grad(lambda theta: loss_and_kl(theta)[0])(theta_old)
        loss_pi_old, g = process_average((loss_pi_old, g))

        # theta_new = theta - sqrt( 2 delta / x^T H x ) x  with  H x = g, the gradient of the loss
        Hx = self.hessian_vector_product(lambda theta: loss_and_kl(theta)[1], theta_old)
        x = conjugate_gradient(Hx, g, self.cg_iters)  # (P,)
        full_step = jnp.sqrt(2 * self.delta / (x @ Hx(x) + EPS)) * x
        theta, kl, loss_pi, backtracks = self.line_search(loss_and_kl, theta_old, loss_pi_old, full_step)

        def v_step(carry):
            ac, v_opt = carry
            return gradient_step(self.v_optimizer, ac, v_opt, self.loss_v, data)[:2]

        ac, v_opt = repeat(self.train_v_iters, v_step, (with_theta(theta), v_opt))

        stats = dict(
            LossPi=loss_pi_old,
            LossV=loss_v_old,
            DeltaLossPi=loss_pi - loss_pi_old,
            DeltaLossV=self.loss_v(ac, data)[0] - loss_v_old,
            KL=kl,
        )
        return State(ac, v_opt), stats if self.algo == "npg" else dict(stats, BacktrackIters=backtracks)

    def line_search(self, loss_and_kl, theta_old, loss_pi_old, full_step):
        """Try shorter and shorter steps until KL(old || new) <= delta and the loss is no worse.

        The natural policy gradient takes the full step unseen. Returns parameters, KL, loss, index of the last trial.
        """

        def trial(scale):
            theta = theta_old - scale * full_step
            loss_pi, kl = process_average(loss_and_kl(theta))
            return theta, kl, loss_pi

        if self.algo == "npg":
            return *trial(1.0), 0

        def shorter(carry):
            j, *_ = carry
            theta, kl, loss_pi = trial(self.backtrack_coeff**j)
            return j + 1, theta, kl, loss_pi, (kl <= self.delta) & (loss_pi <= loss_pi_old)

        def keep_going(carry):
            j, *_, safe = carry
            return ~safe & (j < self.backtrack_iters)

        unmoved = trial(0.0)
        j, *found, safe = repeat_while(keep_going, shorter, (jnp.array(0), *unmoved, jnp.array(False)))
        return *select(safe, tuple(found), unmoved), jnp.maximum(j - 1, 0)  # nothing was safe: back to the old policy


def flat_policy(ac):
    """The parameters of the policy as one vector, and the function that puts such a vector into `ac`."""
    params, rest = eqx.partition(ac.pi, eqx.is_inexact_array)
    theta, unravel = ravel_pytree(params)
    return theta, lambda theta: eqx.tree_at(lambda ac: ac.pi, ac, eqx.combine(unravel(theta), rest))


@documented
def trpo(
    env_fn,
    actor_critic=core.MLPActorCritic,
    ac_kwargs=dict(),
    seed=0,
    steps_per_epoch=4000,
    epochs=50,
    gamma=0.99,
    delta=0.01,
    vf_lr=1e-3,
    train_v_iters=80,
    damping_coeff=0.1,
    cg_iters=10,
    backtrack_iters=10,
    backtrack_coeff=0.8,
    lam=0.97,
    max_ep_len=1000,
    logger_kwargs=dict(),
    save_freq=10,
    algo="trpo",
    *,
    num_envs=1,
    device="cpu",
    threads=None,
    normalize_obs=False,
):
    """Trust Region Policy Optimization, or the natural policy gradient (algo='npg').

    The trust region bounds KL(old || new), as in the paper.

    actor_critic makes an Equinox module, called with key=... besides, with
        pi(obs, act=None)  -> distribution (sample(key), mode(), entropy(), kl(other)), log-probabilities (B,)
        v(obs)             -> values (B,)
    """
    train_on_policy(check(locals()), TRPO, COLUMNS if algo == "npg" else [*COLUMNS, "BacktrackIters"])
