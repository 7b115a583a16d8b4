"""Proximal Policy Optimization: several policy steps on one rollout, clipped so that none goes too far."""

import torch

from spinup.algos.pytorch.learn import Adam, gradient_step, process_average, train_on_policy
from spinup.algos.pytorch.learn import TensorOnPolicyBuffer as PPOBuffer
from spinup.algos.pytorch.nets import entropy
from spinup.algos.pytorch.ppo import core
from spinup.training.hyperparams import documented

__all__ = ["PPO", "PPOBuffer", "core", "ppo"]

COLUMNS = ["LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL", "ClipFrac", "StopIter"]


class PPO:
    networks = ("pi", "v")

    def __init__(self, ac, *, clip_ratio, pi_lr, vf_lr, train_pi_iters, train_v_iters, target_kl, **_):
        self.ac, self.clip_ratio, self.target_kl = ac, clip_ratio, target_kl
        self.train_pi_iters, self.train_v_iters = train_pi_iters, train_v_iters
        self.pi_optimizer = Adam(ac.pi.parameters(), pi_lr)
        self.v_optimizer = Adam(ac.v.parameters(), vf_lr)

    def loss_pi(self, data):
        """L_pi = -E[ min( ratio A, clip(ratio, 1 - eps, 1 + eps) A ) ], ratio = pi(a|s) / pi_old(a|s)."""
        adv, eps = data["adv"], self.clip_ratio
        pi, logp = self.ac.pi(data["obs"], data["act"])  # logp (B,)
        ratio = torch.exp(logp - data["logp"])  # (B,)
        loss_pi = -torch.min(ratio * adv, torch.clamp(ratio, 1 - eps, 1 + eps) * adv).mean()

        with torch.no_grad():
            kl = (data["logp"] - logp).mean()  # a sample estimate of KL(old || new), may be negative
            clipfrac = ((ratio > 1 + eps) | (ratio < 1 - eps)).float().mean()
            return loss_pi, dict(KL=kl, Entropy=entropy(pi), ClipFrac=clipfrac)

    def loss_v(self, data):
        """L_v = E[ (V(s) - ret)^2 ]."""
        return ((self.ac.v(data["obs"]) - data["ret"]) ** 2).mean()

    def update(self, data):
        """At most `train_pi_iters` policy steps, then `train_v_iters` value steps, on the whole rollout each."""
        with torch.no_grad():
            loss_pi_old, info_old = self.loss_pi(data)
            loss_v_old = self.loss_v(data)

        steps = 0
        while steps < self.train_pi_iters:
            loss_pi, info = self.loss_pi(data)
            if self.target_kl is not None and process_average(info["KL"]) > 1.5 * self.target_kl:
                break  # the policy has moved far enough for this rollout
            gradient_step(self.pi_optimizer, LossPi=loss_pi)
            steps += 1
        for _ in range(self.train_v_iters):
            gradient_step(self.v_optimizer, LossV=self.loss_v(data))

        with torch.no_grad():
            loss_pi, info = self.loss_pi(data)
            loss_v = self.loss_v(data)
        return dict(
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

    actor_critic makes a module with
        step(obs)        -> action, value, log-probability of the action, as NumPy arrays
        act(obs)         -> action, as a NumPy array
        pi(obs, act)     -> distribution, log-probabilities (B,)
        v(obs)           -> values (B,)
    """
    train_on_policy(locals(), PPO, COLUMNS)
