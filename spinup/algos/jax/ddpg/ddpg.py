"""Deep Deterministic Policy Gradient: learn Q, and a policy that maximises it."""

from typing import Any, NamedTuple

import jax

from spinup.algos.jax.ddpg import core
from spinup.algos.jax.learn import Adam, gradient_step, polyak_average, train_off_policy
from spinup.training.buffers import ReplayBuffer
from spinup.training.hyperparams import documented

__all__ = ["DDPG", "ReplayBuffer", "core", "ddpg"]


class State(NamedTuple):
    ac: Any
    ac_targ: Any
    pi_opt: Any  # what Adam remembers
    q_opt: Any


class DDPG:
    networks = ("pi", "q")

    def __init__(self, *, gamma, polyak, pi_lr, q_lr):
        self.gamma, self.polyak = gamma, polyak
        self.pi_optimizer = Adam(pi_lr, "pi")
        self.q_optimizer = Adam(q_lr, "q")

    def init(self, ac, key):
        return State(ac, ac, self.pi_optimizer.init(ac), self.q_optimizer.init(ac))

    def loss_q(self, ac, ac_targ, data):
        """L_Q = E[ (Q(s,a) - y)^2 ], y = r + gamma (1 - d) Q_targ(s', mu_targ(s'))."""
        o, a, r, o2, d = (data[key] for key in ("obs", "act", "rew", "obs2", "done"))
        q = ac.q(o, a)  # (B,)
        q_targ = ac_targ.q(o2, ac_targ.pi(o2))
        backup = jax.lax.stop_gradient(r + self.gamma * (1 - d) * q_targ)  # (B,)
        return ((q - backup) ** 2).mean(), q

    def loss_pi(self, ac, data):
        """L_pi = -E[ Q(s, mu(s)) ]."""
        o = data["obs"]
        return -ac.q(o, ac.pi(o)).mean(), None

    def update(self, state, data):
        """Critic, then policy, then targets."""
        ac, ac_targ, pi_opt, q_opt = state
        ac, q_opt, loss_q, q_vals = gradient_step(self.q_optimizer, ac, q_opt, self.loss_q, ac_targ, data)
        ac, pi_opt, loss_pi, _ = gradient_step(self.pi_optimizer, ac, pi_opt, self.loss_pi, data)
        ac_targ = polyak_average(ac_targ, ac, self.polyak)
        return State(ac, ac_targ, pi_opt, q_opt), dict(QVals=q_vals, LossQ=loss_q, LossPi=loss_pi)


@documented
def ddpg(
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
    num_test_episodes=10,
    max_ep_len=1000,
    logger_kwargs=dict(),
    save_freq=1,
    *,
    num_envs=1,
    device="cpu",
    threads=None,
):
    """Deep Deterministic Policy Gradient.

    actor_critic makes an Equinox module, called with key=... besides, with
        pi(obs)      -> actions (B, act_dim)
        q(obs, act)  -> values (B,)
    """
    train_off_policy(locals(), DDPG, value_columns=["QVals"], loss_columns=["LossPi", "LossQ"])
