"""Deep Deterministic Policy Gradient: learn Q, and a policy that maximises it."""

import torch

from spinup.algos.pytorch.ddpg import core
from spinup.algos.pytorch.learn import (
    Adam,
    gradient_step,
    polyak_average,
    target_copy,
    train_off_policy,
)
from spinup.algos.pytorch.learn import TensorReplayBuffer as ReplayBuffer
from spinup.training.hyperparams import documented

__all__ = ["DDPG", "ReplayBuffer", "core", "ddpg"]


class DDPG:
    networks = ("pi", "q")

    def __init__(self, ac, act_low, act_high, *, gamma, polyak, pi_lr, q_lr, **_):
        self.ac, self.ac_targ = ac, target_copy(ac)
        self.gamma, self.polyak = gamma, polyak
        self.pi_optimizer = Adam(ac.pi.parameters(), pi_lr)
        self.q_optimizer = Adam(ac.q.parameters(), q_lr)

    def loss_q(self, data):
        """L_Q = E[ (Q(s,a) - y)^2 ], y = r + gamma (1 - d) Q_targ(s', mu_targ(s'))."""
        o, a, r, o2, d = (data[key] for key in ("obs", "act", "rew", "obs2", "done"))
        q = self.ac.q(o, a)  # (B,)
        with torch.no_grad():
            q_targ = self.ac_targ.q(o2, self.ac_targ.pi(o2))
            backup = r + self.gamma * (1 - d) * q_targ  # (B,)
        return ((q - backup) ** 2).mean(), q.detach()

    def loss_pi(self, data):
        """L_pi = -E[ Q(s, mu(s)) ]."""
        o = data["obs"]
        return -self.ac.q(o, self.ac.pi(o)).mean()

    def update(self, data):
        """Critic, then policy, then targets."""
        loss_q, q_vals = self.loss_q(data)
        gradient_step(self.q_optimizer, LossQ=loss_q)

        loss_pi = self.loss_pi(data)
        gradient_step(self.pi_optimizer, LossPi=loss_pi)

        polyak_average(self.ac_targ, self.ac, self.polyak)
        return dict(QVals=q_vals, LossQ=loss_q.detach(), LossPi=loss_pi.detach())


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

    actor_critic makes a module with
        act(obs)         -> action, as a NumPy array
        pi(obs)          -> actions (B, act_dim)
        q(obs, act)      -> values (B,)
    """
    train_off_policy(locals(), DDPG, value_columns=["QVals"], loss_columns=["LossPi", "LossQ"])
