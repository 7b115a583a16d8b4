"""Soft Actor-Critic: maximise reward and entropy together, with two critics and a squashed Gaussian policy."""

import torch

from spinup.algos.pytorch.learn import (
    Adam,
    gradient_step,
    polyak_average,
    target_copy,
    train_off_policy,
)
from spinup.algos.pytorch.learn import TensorReplayBuffer as ReplayBuffer
from spinup.algos.pytorch.sac import core
from spinup.training.hyperparams import check, documented

__all__ = ["SAC", "ReplayBuffer", "core", "sac"]


class SAC:
    networks = ("pi", "q1", "q2")

    def __init__(self, ac, act_low, act_high, *, gamma, polyak, lr, alpha, **_):
        self.ac, self.gamma, self.polyak = ac, gamma, polyak
        self.critics = torch.nn.ModuleList([ac.q1, ac.q2])
        self.critics_targ = target_copy(self.critics)  # the policy needs no target
        self.pi_optimizer = Adam(ac.pi.parameters(), lr)
        self.q_optimizer = Adam(self.critics.parameters(), lr)

        self.alpha, self.learn_alpha = alpha, alpha == "auto"
        if self.learn_alpha:
            self.log_alpha = torch.zeros((), device=act_low.device, requires_grad=True)
            self.alpha = torch.exp(self.log_alpha.detach())
            self.target_entropy = -float(len(act_low))  # -dim(A)
            self.alpha_optimizer = Adam([self.log_alpha], lr)

    def loss_q(self, data):
        """L_Q = E[ (Q1(s,a) - y)^2 ] + E[ (Q2(s,a) - y)^2 ]

        y = r + gamma (1 - d) ( min( Q1_targ(s',a'), Q2_targ(s',a') ) - alpha log pi(a'|s') ),  a' ~ pi(.|s')
        """
        o, a, r, o2, d = (data[key] for key in ("obs", "act", "rew", "obs2", "done"))
        q1, q2 = self.ac.q1(o, a), self.ac.q2(o, a)  # (B,) both
        with torch.no_grad():
            a2, logp_a2 = self.ac.pi(o2)  # (B, act_dim), (B,): from the current policy
            q1_targ, q2_targ = (q_targ(o2, a2) for q_targ in self.critics_targ)
            backup = r + self.gamma * (1 - d) * (torch.min(q1_targ, q2_targ) - self.alpha * logp_a2)  # (B,)
        loss_q = ((q1 - backup) ** 2).mean() + ((q2 - backup) ** 2).mean()
        return loss_q, dict(Q1Vals=q1.detach(), Q2Vals=q2.detach())

    def loss_pi(self, data):
        """L_pi = E[ alpha log pi(a|s) - min( Q1(s,a), Q2(s,a) ) ],  a ~ pi(.|s) reparameterised."""
        o = data["obs"]
        a, logp_a = self.ac.pi(o)  # (B, act_dim), (B,): gradients flow through the sample
        q = torch.min(self.ac.q1(o, a), self.ac.q2(o, a))
        return (self.alpha * logp_a - q).mean(), logp_a.detach()

    def loss_alpha(self, logp_a):
        """L_alpha = -log(alpha) E[ log pi(a|s) + target_entropy ]: alpha grows while the entropy is too small."""
        return -self.log_alpha * (logp_a + self.target_entropy).mean()

    def update(self, data):
        """Critics, then policy, then temperature (if learned), then targets."""
        loss_q, info = self.loss_q(data)
        gradient_step(self.q_optimizer, LossQ=loss_q)

        loss_pi, logp_a = self.loss_pi(data)
        gradient_step(self.pi_optimizer, LossPi=loss_pi)
        stats = dict(info, LossQ=loss_q.detach(), LossPi=loss_pi.detach(), LogPi=logp_a)

        if self.learn_alpha:
            gradient_step(self.alpha_optimizer, LossAlpha=self.loss_alpha(logp_a))
            self.alpha = torch.exp(self.log_alpha.detach())
            stats["Alpha"] = self.alpha

        polyak_average(self.critics_targ, self.critics, self.polyak)
        return stats


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

    actor_critic makes a module with
        act(obs, deterministic=False)  -> action, as a NumPy array
        pi(obs)                        -> actions (B, act_dim), log-probabilities (B,), both differentiable
        q1(obs, act), q2(obs, act)     -> values (B,)
    """
    train_off_policy(
        check(locals()),
        SAC,
        value_columns=["Q1Vals", "Q2Vals", "LogPi"],
        loss_columns=["LossPi", "LossQ", *(["Alpha"] if alpha == "auto" else [])],
    )
