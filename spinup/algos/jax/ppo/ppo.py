"""Proximal Policy Optimization: several policy steps on one rollout, clipped so that none goes too far."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from spinup.algos.jax.learn import Adam, gradient_step, process_average, repeat, repeat_while, select, train_on_policy
from spinup.algos.jax.ppo import core
from spinup.training.buffers import OnPolicyBuffer as PPOBuffer
from spinup.training.hyperparams import documented

__all__ = ["PPO", "PPOBuffer", "core", "ppo"]

COLUMNS = ["LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL", "ClipFrac", "StopIter"]


class State(NamedTuple):
    ac: Any
    pi_opt: Any  # what Adam remembers
    v_opt: Any


class PPO:
    networks = ("pi", "v")

    def __init__(self, *, clip_ratio, pi_lr, vf_lr, train_pi_iters, train_v_iters, target_kl):
        self.clip_ratio = clip_ratio
        self.max_kl = jnp.inf if target_kl is None else 1.5 * target_kl
        self.train_pi_iters, self.train_v_iters = train_pi_iters, train_v_iters
        self.pi_optimizer = Adam(pi_lr, "pi")
        self.v_optimizer = Adam(vf_lr, "v")

    def init(self, ac):
        return State(ac, self.pi_optimizer.init(ac), self.v_optimizer.init(ac))

    def loss_pi(self, ac, data):
        """L_pi = -E[ min( ratio A, clip(ratio, 1 - eps, 1 + eps) A ) ], ratio = pi(a|s) / pi_old(a|s)."""
        adv, eps = data["adv"], self.clip_ratio
        pi, logp = ac.pi(data["obs"], data["act"])  # logp (B,)
        ratio = jnp.exp(logp - data["logp"])  # (B,)
        loss_pi = -jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - eps, 1 + eps) * adv).mean()

        kl = (data["logp"] - logp).mean()  # a sample estimate of KL(old || new), may be negative
        clipfrac = ((ratio > 1 + eps) | (ratio < 1 - eps)).mean()
        return loss_pi, dict(KL=kl, Entropy=pi.entropy().mean(), ClipFrac=clipfrac)

    def loss_v(self, ac, data):
        """L_v = E[ (V(s) - ret)^2 ]."""
        return ((ac.v(data["obs"]) - data["ret"]) ** 2).mean(), None

    def update(self, state, data):
        """At most `train_pi_iters` policy steps, then `train_v_iters` value steps, on the whole rollout each."""
        ac, pi_opt, v_opt = state
        loss_pi_old, info_old = self.loss_pi(ac, data)
        loss_v_old, _ = self.loss_v(ac, data)

        def pi_step(carry):
            ac, pi_opt, steps, _ = carry
            new_ac, new_pi_opt, _, info = gradient_step(self.pi_optimizer, ac, pi_opt, self.loss_pi, data)
            stop = process_average(info["KL"]) > self.max_kl  # the policy has moved far enough for this rollout
            return select(stop, (ac, pi_opt, steps, stop), (new_ac, new_pi_opt, steps + 1, stop))

        def v_step(carry):
            ac, v_opt = carry
            return gradient_step(self.v_optimizer, ac, v_opt, self.loss_v, data)[:2]

        def keep_going(carry):
            *_, steps, stop = carry
            return ~stop & (steps < self.train_pi_iters)

        ac, pi_opt, steps, _ = repeat_while(keep_going, pi_step, (ac, pi_opt, jnp.array(0), jnp.array(False)))
        ac, v_opt = repeat(self.train_v_iters, v_step, (ac, v_opt))

        loss_pi, info = self.loss_pi(ac, data)
        loss_v, _ = self.loss_v(ac, data)
        return State(ac, pi_opt, v_opt), dict(
            LossPi=loss_pi_old,
            LossV=loss_v_old,
            DeltaLossPi=loss_pi - loss_pi_old,
            DeltaLossV=loss_v - loss_v_old,
            Entropy=info_old["Entropy"],
            KL=info["KL"],
            ClipFrac=info["ClipFrac"],
            StopIter=steps,
        )


@documented
def ppo(
    env_fn,
    actor_critic=core.MLPActorCritic,
    ac_kwargs=dict(),
    seed=0,
    steps_per_epoch=4000,
    epochs=50,
    gamma=0.99,
    clip_ratio=0.2,
    pi_lr=3e-4,
    vf_lr=1e-3,
    train_pi_iters=80,
    train_v_iters=80,
    lam=0.97,
    max_ep_len=1000,
    target_kl=0.01,
    logger_kwargs=dict(),
    save_freq=10,
    *,
    num_envs=1,
    device="cpu",
    threads=None,
    normalize_obs=False,
):
    """Proximal Policy Optimization by clipping, with early stopping at a KL divergence.

    actor_critic makes an Equinox module, called with key=... besides, with
        pi(obs, act=None)  -> distribution (sample(key), mode(), entropy(), kl(other)), log-probabilities (B,)
        v(obs)             -> values (B,)
    """
    train_on_policy(locals(), PPO, COLUMNS)
