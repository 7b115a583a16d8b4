"""Trust Region Policy Optimization: the largest step that keeps the new policy within a KL divergence of the old."""

import torch

from spinup.algos.pytorch.learn import (
    Adam,
    check_finite,
    gradient_step,
    process_average,
    train_on_policy,
    trainable,
)
from spinup.algos.pytorch.nets import mean_kl
from spinup.algos.pytorch.trpo import core
from spinup.training.buffers import GAEBuffer
from spinup.training.hyperparams import check, documented

__all__ = ["TRPO", "GAEBuffer", "conjugate_gradient", "core", "trpo"]

COLUMNS = ["LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "KL"]

EPS = 1e-8


def conjugate_gradient(Hx, g, cg_iters):
    """Solve H x = g, given only the product x -> H x. Ends early when the residual has vanished."""
    x = torch.zeros_like(g)
    r, p = g, g  # residual g - H x, search direction
    r_dot_r = r @ r
    for _ in range(cg_iters):
        Hp = Hx(p)
        if r_dot_r <= 1e-14 * (g @ g) or p @ Hp <= 0:
            break
        alpha = r_dot_r / (p @ Hp)
        x = x + alpha * p
        r = r - alpha * Hp
        r_dot_r, r_dot_r_old = r @ r, r_dot_r
        p = r + (r_dot_r / r_dot_r_old) * p
    return x


def flat_grad(f, params, **kwargs):
    """The gradient of f as one vector; zero for parameters that f does not depend on."""
    grads = torch.autograd.grad(f, params, materialize_grads=True, **kwargs)
    return torch.cat([g.reshape(-1) for g in grads])


@torch.no_grad()
def assign_params_from_flat(x, params):
    """Write a vector into the parameters, in place."""
    for p, piece in zip(params, x.split([p.numel() for p in params]), strict=True):
        p.copy_(piece.view_as(p))


class TRPO:
    networks = ("pi", "v")

    def __init__(
        self,
        ac,
        *,
        delta,
        vf_lr,
        train_v_iters,
        damping_coeff,
        cg_iters,
        backtrack_iters,
        backtrack_coeff,
        algo,
        **_,
    ):
        self.ac, self.delta, self.algo = ac, delta, algo
        self.damping_coeff, self.cg_iters = damping_coeff, cg_iters
        self.backtrack_iters, self.backtrack_coeff = backtrack_iters, backtrack_coeff
        self.train_v_iters = train_v_iters
        self.pi_params = trainable(ac.pi.parameters())
        self.v_optimizer = Adam(ac.v.parameters(), vf_lr)

    def loss_pi(self, data):
        """L_pi = -E[ ratio A ],  ratio = pi(a|s) / pi_old(a|s): minus the surrogate advantage."""
        pi, logp = self.ac.pi(data["obs"], data["act"])  # logp (B,)
        ratio = torch.exp(logp - data["logp"])  # (B,)
        return -(ratio * data["adv"]).mean(), pi

    def loss_v(self, data):
        """L_v = E[ (V(s) - ret)^2 ]."""
        return ((self.ac.v(data["obs"]) - data["ret"]) ** 2).mean()

    def hessian_vector_product(self, kl):
        """v -> (H + damping I) v, with H the Hessian of a KL divergence in the policy's parameters.

        H v = grad( (grad KL)^T v ): H itself, (P, P) for P parameters, is never formed.
        """
        kl_grad = flat_grad(kl, self.pi_params, create_graph=True)  # (P,)

        def Hx(v):
            Hv = flat_grad(kl_grad @ v, self.pi_params, retain_graph=True)
            return process_average(Hv + self.damping_coeff * v)  # (P,)

        return Hx

    def update(self, data):
        """One natural-gradient step of the policy, shortened until it is safe, then the value function."""
        loss_v_old = self.loss_v(data).detach()
        with torch.no_grad():
            _, pi_old = self.loss_pi(data)
        loss_pi, pi = self.loss_pi(data)
        check_finite("LossPi", loss_pi.item())
        loss_pi_old = process_average(loss_pi.detach())

        # theta_new = theta - sqrt( 2 delta / x^T H x ) x  with  H x = g, the gradient of the loss
        g = process_average(flat_grad(loss_pi, self.pi_params, retain_graph=True))  # (P,)
        check_finite("the gradient of LossPi", torch.linalg.vector_norm(g))
        Hx = self.hessian_vector_product(mean_kl(pi_old, pi))
        x = conjugate_gradient(Hx, g, self.cg_iters)
        full_step = torch.sqrt(2 * self.delta / (x @ Hx(x) + EPS)) * x
        kl, loss_pi, backtracks = self.line_search(data, pi_old, loss_pi_old, full_step)

        for _ in range(self.train_v_iters):
            gradient_step(self.v_optimizer, LossV=self.loss_v(data))

        stats = dict(
            LossPi=loss_pi_old,
            LossV=loss_v_old,
            DeltaLossPi=loss_pi - loss_pi_old,
            DeltaLossV=self.loss_v(data).detach() - loss_v_old,
            KL=kl,
        )
        return stats if self.algo == "npg" else dict(stats, BacktrackIters=backtracks)

    def line_search(self, data, pi_old, loss_pi_old, full_step):
        """Try shorter and shorter steps until KL(old || new) <= delta and the loss is no worse.

        The natural policy gradient takes the full step unseen. Returns KL, loss, and the index of the last trial.
        """
        theta_old = torch.cat([p.detach().reshape(-1) for p in self.pi_params])  # (P,)

        @torch.no_grad()
        def trial(scale):
            assign_params_from_flat(theta_old - scale * full_step, self.pi_params)
            loss_pi, pi = self.loss_pi(data)
            return process_average(mean_kl(pi_old, pi)), process_average(loss_pi)

        if self.algo == "npg":
            return *trial(1.0), 0
        for j in range(self.backtrack_iters):
            kl, loss_pi = trial(self.backtrack_coeff**j)
            if kl <= self.delta and loss_pi <= loss_pi_old:
                return kl, loss_pi, j
        return *trial(0.0), max(self.backtrack_iters - 1, 0)  # nothing was safe: back to the old policy


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

    actor_critic makes a module with
        step(obs)        -> action, value, log-probability of the action, as NumPy arrays
        act(obs)         -> action, as a NumPy array
        pi(obs, act)     -> distribution, log-probabilities (B,)
        v(obs)           -> values (B,)
    """
    train_on_policy(check(locals()), TRPO, COLUMNS if algo == "npg" else [*COLUMNS, "BacktrackIters"])
