"""Twin Delayed DDPG: two critics against overestimation, a slower policy, a smoothed target."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spinup.algos.jax.learn import Adam, Sometimes, gradient_step, polyak_average, train_off_policy, when
from spinup.algos.jax.td3 import core
from spinup.training.buffers import ReplayBuffer
from spinup.training.hyperparams import documented

__all__ = ["TD3", "ReplayBuffer", "core", "td3"]


class State(NamedTuple):
    ac: Any
    ac_targ: Any
    pi_opt: Any  # what Adam remembers
    q_opt: Any
    updates: Any  # of the whole run, for the delay
    key: Any


class TD3:
    networks = ("pi", "q1", "q2")

    def __init__(self, *, act_low, act_high, gamma, polyak, pi_lr, q_lr, target_noise, noise_clip, policy_delay):
        self.act_low, self.act_high = jnp.array(act_low), jnp.array(act_high)  # (act_dim,) both
        self.gamma, self.polyak = gamma, polyak
        self.target_noise, self.noise_clip, self.policy_delay = target_noise, noise_clip, policy_delay
        self.pi_optimizer = Adam(pi_lr, "pi")
        self.q_optimizer = Adam(q_lr, "q1", "q2")

    def init(self, ac, key):
        return State(ac, ac, self.pi_optimizer.init(ac), self.q_optimizer.init(ac), jnp.array(0), key)

    def loss_q(self, ac, ac_targ, data, key):
        """L_Q = E[ (Q1(s,a) - y)^2 ] + E[ (Q2(s,a) - y)^2 ]

        y  = r + gamma (1 - d) min( Q1_targ(s',a'), Q2_targ(s',a') )
        a' = clip( mu_targ(s') + clip(eps, -c, c), a_low, a_high ),  eps ~ N(0, target_noise^2)
        """
        o, a, r, o2, d = (data[key] for key in ("obs", "act", "rew", "obs2", "done"))
        q1, q2 = ac.q1(o, a), ac.q2(o, a)  # (B,) both
        a2 = ac_targ.pi(o2)  # (B, act_dim)
        epsilon = jnp.clip(self.target_noise * jax.random.normal(key, a2.shape), -self.noise_clip, self.noise_clip)
        a2 = jnp.clip(a2 + epsilon, self.act_low, self.act_high)
        q_targ = jnp.minimum(ac_targ.q1(o2, a2), ac_targ.q2(o2, a2))
        backup = jax.lax.stop_gradient(r + self.gamma * (1 - d) * q_targ)  # (B,)
        loss_q = ((q1 - backup) ** 2).mean() + ((q2 - backup) ** 2).mean()
        return loss_q, dict(Q1Vals=q1, Q2Vals=q2)

    def loss_pi(self, ac, data):
        """L_pi = -E[ Q1(s, mu(s)) ]."""
        o = data["obs"]
        return -ac.q1(o, ac.pi(o)).mean(), None

    def update(self, state, data):
        """The critics every time; policy and targets every `policy_delay` times."""
        ac, ac_targ, pi_opt, q_opt, updates, key = state
        key, key_q = jax.random.split(key)
        ac, q_opt, loss_q, info = gradient_step(self.q_optimizer, ac, q_opt, self.loss_q, ac_targ, data, key_q)

        def delayed(carry):
            ac, ac_targ, pi_opt, _ = carry
            ac, pi_opt, loss_pi, _ = gradient_step(self.pi_optimizer, ac, pi_opt, self.loss_pi, data)
            return ac, polyak_average(ac_targ, ac, self.polyak), pi_opt, loss_pi

        due = updates % self.policy_delay == 0
        ac, ac_targ, pi_opt, loss_pi = when(due, delayed, (ac, ac_targ, pi_opt, jnp.array(0.0)))
        stats = dict(info, LossQ=loss_q, LossPi=Sometimes(loss_pi, due))
        return State(ac, ac_targ, pi_opt, q_opt, updates + 1, key), stats


@documented
def td3(
    env_fn,
    actor_critic=core.MLPActorCritic,
    ac_kwargs=dict(),
    seed=0,
    steps_per_epoch=4000,
    epochs=100,
    replay_size=int(1e6),
    gamma=0.99,
    polyak=0.995,
    pi_lr=1e-3,
    q_lr=1e-3,
    batch_size=100,
    start_steps=10000,
    update_after=1000,
    update_every=50,
    act_noise=0.1,
    target_noise=0.2,
    noise_clip=0.5,
    policy_delay=2,
    num_test_episodes=10,
    max_ep_len=1000,
    logger_kwargs=dict(),
    save_freq=1,
    *,
    num_envs=1,
    device="cpu",
    threads=None,
):
    """Twin Delayed Deep Deterministic policy gradient.

    actor_critic makes an Equinox module, called with key=... besides, with
        pi(obs)                     -> actions (B, act_dim)
        q1(obs, act), q2(obs, act)  -> values (B,)
    """
    train_off_policy(locals(), TD3, value_columns=["Q1Vals", "Q2Vals"], loss_columns=["LossPi", "LossQ"])
