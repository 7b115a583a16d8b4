"""Vanilla Policy Gradient: raise the probability of actions that turned out better than expected."""

import torch

from spinup.algos.pytorch.learn import Adam, gradient_step, train_on_policy
from spinup.algos.pytorch.learn import TensorOnPolicyBuffer as VPGBuffer
from spinup.algos.pytorch.nets import entropy
from spinup.algos.pytorch.vpg import core
from spinup.training.hyperparams import documented

__all__ = ["VPG", "VPGBuffer", "core", "vpg"]

COLUMNS = ["LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL"]


class VPG:
    networks = ("pi", "v")

    def __init__(self, ac, *, pi_lr, vf_lr, train_v_iters, **_):
        self.ac = ac
        self.train_v_iters = train_v_iters
        self.pi_optimizer = Adam(ac.pi.parameters(), pi_lr)
        self.v_optimizer = Adam(ac.v.parameters(), vf_lr)

    def loss_pi(self, data):
        """L_pi = -E[ log pi(a|s) A(s,a) ], whose gradient at the old policy is the policy gradient (negated)."""
        pi, logp = self.ac.pi(data["obs"], data["act"])  # logp (B,)
        loss_pi = -(logp * data["adv"]).mean()

        kl = (data["logp"] - logp).mean()  # a sample estimate of KL(old || new)
        return loss_pi, dict(KL=kl.detach(), Entropy=entropy(pi).detach())

    def loss_v(self, data):
        """L_v = E[ (V(s) - ret)^2 ]."""
        return ((self.ac.v(data["obs"]) - data["ret"]) ** 2).mean()

    def update(self, data):
        """One policy step, then `train_v_iters` steps of the value function, on the whole rollout each."""
        loss_pi_old, info_old = self.loss_pi(data)
        loss_v_old = self.loss_v(data).detach()

        gradient_step(self.pi_optimizer, LossPi=loss_pi_old)
        for _ in range(self.train_v_iters):
            gradient_step(self.v_optimizer, LossV=self.loss_v(data))

        with torch.no_grad():
            loss_pi, info = self.loss_pi(data)
            loss_v = self.loss_v(data)
        return dict(
            LossPi=loss_pi_old.detach(),
            LossV=loss_v_old,
            DeltaLossPi=loss_pi - loss_pi_old.detach(),
            DeltaLossV=loss_v - loss_v_old,
            Entropy=info_old["Entropy"],
            KL=info["KL"],
        )


@documented
def vpg(
    env_fn,
    actor_critic=core.MLPActorCritic,
    ac_kwargs=dict(),
    seed=0,
    steps_per_epoch=4000,
    epochs=50,
    gamma=0.99,
    pi_lr=3e-4,
    vf_lr=1e-3,
    train_v_iters=80,
    lam=0.97,
    max_ep_len=1000,
    logger_kwargs=dict(),
    save_freq=10,
    *,
    num_envs=1,
    device="cpu",
    threads=None,
    normalize_obs=False,
):
    """Vanilla Policy Gradient, with generalised advantage estimation.

    actor_critic makes a module with
        step(obs)        -> action, value, log-probability of the action, as NumPy arrays
        act(obs)         -> action, as a NumPy array
        pi(obs, act)     -> distribution, log-probabilities (B,)
        v(obs)           -> values (B,)
    """
    train_on_policy(locals(), VPG, COLUMNS)
