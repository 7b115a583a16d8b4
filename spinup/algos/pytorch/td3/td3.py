"""Twin Delayed DDPG: two critics against overestimation, a slower policy, a smoothed target."""

import torch

from spinup.algos.pytorch.learn import (
    Adam,
    gradient_step,
    polyak_average,
    target_copy,
    train_off_policy,
)
from spinup.algos.pytorch.learn import TensorReplayBuffer as ReplayBuffer
from spinup.algos.pytorch.td3 import core
from spinup.training.hyperparams import documented

__all__ = ["TD3", "ReplayBuffer", "core", "td3"]


class TD3:
    networks = ("pi", "q1", "q2")

    def __init__(
        self,
        ac,
        act_low,
        act_high,
        *,
        gamma,
        polyak,
        pi_lr,
        q_lr,
        target_noise,
        noise_clip,
        policy_delay,
        **_,
    ):
        self.ac, self.ac_targ = ac, target_copy(ac)
        self.act_low, self.act_high = act_low, act_high  # (act_dim,) both
        self.gamma, self.polyak = gamma, polyak
        self.target_noise, self.noise_clip, self.policy_delay = target_noise, noise_clip, policy_delay
        self.pi_optimizer = Adam(ac.pi.parameters(), pi_lr)
        self.q_optimizer = Adam([*ac.q1.parameters(), *ac.q2.parameters()], q_lr)
        self.updates = 0  # of the whole run, for the delay

    def loss_q(self, data):
        """L_Q = E[ (Q1(s,a) - y)^2 ] + E[ (Q2(s,a) - y)^2 ]

        y  = r + gamma (1 - d) min( Q1_targ(s',a'), Q2_targ(s',a') )
        a' = clip( mu_targ(s') + clip(eps, -c, c), a_low, a_high ),  eps ~ N(0, target_noise^2)
        """
        o, a, r, o2, d = (data[key] for key in ("obs", "act", "rew", "obs2", "done"))
        q1, q2 = self.ac.q1(o, a), self.ac.q2(o, a)  # (B,) both
        with torch.no_grad():
            a2 = self.ac_targ.pi(o2)  # (B, act_dim)
            epsilon = torch.clamp(self.target_noise * torch.randn_like(a2), -self.noise_clip, self.noise_clip)
            a2 = torch.clamp(a2 + epsilon, self.act_low, self.act_high)
            q_targ = torch.min(self.ac_targ.q1(o2, a2), self.ac_targ.q2(o2, a2))
            backup = r + self.gamma * (1 - d) * q_targ  # (B,)
        loss_q = ((q1 - backup) ** 2).mean() + ((q2 - backup) ** 2).mean()
        return loss_q, dict(Q1Vals=q1.detach(), Q2Vals=q2.detach())

    def loss_pi(self, data):
        """L_pi = -E[ Q1(s, mu(s)) ]."""
        o = data["obs"]
        return -self.ac.q1(o, self.ac.pi(o)).mean()

    def update(self, data):
        """The critics every time; policy and targets every `policy_delay` times."""
        loss_q, info = self.loss_q(data)
        gradient_step(self.q_optimizer, LossQ=loss_q)
        stats = dict(info, LossQ=loss_q.detach())

        if self.updates % self.policy_delay == 0:
            loss_pi = self.loss_pi(data)
            gradient_step(self.pi_optimizer, LossPi=loss_pi)
            polyak_average(self.ac_targ, self.ac, self.polyak)
            stats["LossPi"] = loss_pi.detach()
        self.updates += 1
        return stats


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

    actor_critic makes a module with
        act(obs)                    -> action, as a NumPy array
        pi(obs)                     -> actions (B, act_dim)
        q1(obs, act), q2(obs, act)  -> values (B,)
    """
    train_off_policy(locals(), TD3, value_columns=["Q1Vals", "Q2Vals"], loss_columns=["LossPi", "LossQ"])
