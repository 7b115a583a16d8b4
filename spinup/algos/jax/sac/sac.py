"""Soft Actor-Critic: maximise reward and entropy together, with two critics and a squashed Gaussian policy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spinup.algos.jax.learn import Adam, gradient_step, polyak_average, train_off_policy
from spinup.algos.jax.sac import core
from spinup.training.buffers import ReplayBuffer
from spinup.training.hyperparams import check, documented

__all__ = ["SAC", "ReplayBuffer", "core", "sac"]


class State(NamedTuple):
    ac: Any
    q_targ: Any  # both critics; the policy needs no target
    pi_opt: Any  # what Adam remembers
    q_opt: Any
    log_alpha: Any
    alpha_opt: Any
    key: Any


class SAC:
    networks = ("pi", "q1", "q2")

    def __init__(self, *, act_low, gamma, polyak, lr, alpha):
        self.gamma, self.polyak, self.learn_alpha = gamma, polyak, alpha == "auto"
        self.target_entropy = -float(len(act_low))  # -dim(A)
        self.log_alpha = 0.0 if self.learn_alpha else jnp.log(alpha)
        self.pi_optimizer = Adam(lr, "pi")
        self.q_optimizer = Adam(lr, "q1", "q2")
        self.alpha_optimizer = Adam(lr)

    def init(self, ac, key):
        log_alpha = jnp.array(self.log_alpha)
        opts = self.pi_optimizer.init(ac), self.q_optimizer.init(ac), log_alpha, self.alpha_optimizer.init(log_alpha)
        return State(ac, (ac.q1, ac.q2), *opts, key)

    def loss_q(self, ac, q_targ, alpha, data, key):
        """L_Q = E[ (Q1(s,a) - y)^2 ] + E[ (Q2(s,a) - y)^2 ]

        y = r + gamma (1 - d) ( min( Q1_targ(s',a'), Q2_targ(s',a') ) - alpha log pi(a'|s') ),  a' ~ pi(.|s')
        """
        o, a, r, o2, d = (data[key] for key in ("obs", "act", "rew", "obs2", "done"))
        q1, q2 = ac.q1(o, a), ac.q2(o, a)  # (B,) both
        a2, logp_a2 = ac.pi(o2, key)  # (B, act_dim), (B,): from the current policy
        q1_targ, q2_targ = (q(o2, a2) for q in q_targ)
        backup = r + self.gamma * (1 - d) * (jnp.minimum(q1_targ, q2_targ) - alpha * logp_a2)  # (B,)
        backup = jax.lax.stop_gradient(backup)
        loss_q = ((q1 - backup) ** 2).mean() + ((q2 - backup) ** 2).mean()
        return loss_q, dict(Q1Vals=q1, Q2Vals=q2)

    def loss_pi(self, ac, alpha, data, key):
        """L_pi = E[ alpha log pi(a|s) - min( Q1(s,a), Q2(s,a) ) ],  a ~ pi(.|s) reparameterised."""
        o = data["obs"]
        a, logp_a = ac.pi(o, key)  # (B, act_dim), (B,): gradients flow through the sample
        q = jnp.minimum(ac.q1(o, a), ac.q2(o, a))
        return (alpha * logp_a - q).mean(), logp_a

    def loss_alpha(self, log_alpha, logp_a):
        """L_alpha = -log(alpha) E[ log pi(a|s) + target_entropy ]: alpha grows while the entropy is too small."""
        return -log_alpha * (logp_a + self.target_entropy).mean(), None

    def update(self, state, data):
        """Critics, then policy, then temperature (if learned), then targets."""
        ac, q_targ, pi_opt, q_opt, log_alpha, alpha_opt, key = state
        alpha = jnp.exp(log_alpha)
        key, key_q, key_pi = jax.random.split(key, 3)

        ac, q_opt, loss_q, info = gradient_step(self.q_optimizer, ac, q_opt, self.loss_q, q_targ, alpha, data, key_q)
        ac, pi_opt, loss_pi, logp_a = gradient_step(self.pi_optimizer, ac, pi_opt, self.loss_pi, alpha, data, key_pi)
        stats = dict(info, LossQ=loss_q, LossPi=loss_pi, LogPi=logp_a)

        if self.learn_alpha:
            log_alpha, alpha_opt, *_ = gradient_step(
                self.alpha_optimizer, log_alpha, alpha_opt, self.loss_alpha, logp_a
            )
            stats["Alpha"] = jnp.exp(log_alpha)

        q_targ = polyak_average(q_targ, (ac.q1, ac.q2), self.polyak)
        return State(ac, q_targ, pi_opt, q_opt, log_alpha, alpha_opt, key), stats


@documented
def sac(
    env_fn,
    actor_critic=core.MLPActorCritic,
    ac_kwargs=dict(),
    seed=0,
    steps_per_epoch=4000,
    epochs=100,
    replay_size=int(1e6),
    gamma=0.99,
    polyak=0.995,
    lr=1e-3,
    alpha=0.2,
    batch_size=100,
    start_steps=10000,
    update_after=1000,
    update_every=50,
    num_test_episodes=10,
    max_ep_len=1000,
    logger_kwargs=dict(),
    save_freq=1,
    *,
    num_envs=1,
    device="cpu",
    threads=None,
):
    """Soft Actor-Critic, with a fixed or a learned temperature.

    actor_critic makes an Equinox module, called with key=... besides, with
        pi(obs, key, deterministic=False)  -> actions (B, act_dim), log-probabilities (B,), both differentiable
        q1(obs, act), q2(obs, act)         -> values (B,)
    """
    train_off_policy(
        check(locals()),
        SAC,
        value_columns=["Q1Vals", "Q2Vals", "LogPi"],
        loss_columns=["LossPi", "LossQ", *(["Alpha"] if alpha == "auto" else [])],
    )
