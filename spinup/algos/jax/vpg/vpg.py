"""Vanilla Policy Gradient: raise the probability of actions that turned out better than expected."""

from typing import Any, NamedTuple

from spinup.algos.jax.learn import Adam, gradient_step, repeat, train_on_policy
from spinup.algos.jax.vpg import core
from spinup.training.buffers import OnPolicyBuffer as VPGBuffer
from spinup.training.hyperparams import documented

__all__ = ["VPG", "VPGBuffer", "core", "vpg"]

COLUMNS = ["LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL"]


class State(NamedTuple):
    ac: Any
    pi_opt: Any  # what Adam remembers
    v_opt: Any


class VPG:
    networks = ("pi", "v")

    def __init__(self, *, pi_lr, vf_lr, train_v_iters):
        self.train_v_iters = train_v_iters
        self.pi_optimizer = Adam(pi_lr, "pi")
        self.v_optimizer = Adam(vf_lr, "v")

    def init(self, ac):
        return State(ac, self.pi_optimizer.init(ac), self.v_optimizer.init(ac))

    def loss_pi(self, ac, data):
        """L_pi = -E[ log pi(a|s) A(s,a) ], whose gradient at the old policy is the policy gradient (negated)."""
        pi, logp = ac.pi(data["obs"], data["act"])  # logp (B,)
        loss_pi = -(logp * data["adv"]).mean()

        kl = (data["logp"] - logp).mean()  # a sample estimate of KL(old || new)
        return loss_pi, dict(KL=kl, Entropy=pi.entropy().mean())

    def loss_v(self, ac, data):
        """L_v = E[ (V(s) - ret)^2 ]."""
        return ((ac.v(data["obs"]) - data["ret"]) ** 2).mean(), None

    def update(self, state, data):
        """One policy step, then `train_v_iters` steps of the value function, on the whole rollout each."""
        ac, pi_opt, v_opt = state
        loss_v_old, _ = self.loss_v(ac, data)

        def v_step(carry):
            ac, v_opt = carry
            return gradient_step(self.v_optimizer, ac, v_opt, self.loss_v, data)[:2]

        ac, pi_opt, loss_pi_old, info_old = gradient_step(self.pi_optimizer, ac, pi_opt, self.loss_pi, data)
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

    actor_critic makes an Equinox module, called with key=... besides, with
        pi(obs, act=None)  -> distribution (sample(key), mode(), entropy(), kl(other)), log-probabilities (B,)
        v(obs)             -> values (B,)
    """
    train_on_policy(locals(), VPG, COLUMNS)
