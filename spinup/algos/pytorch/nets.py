"""Networks: multi-layer perceptrons as actors and critics, and the actor-critics made of them."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch.distributions import Categorical, Normal, kl_divergence

from spinup.training.normalizer import CLIP, merge

LOG_STD_MIN = -20
LOG_STD_MAX = 2


def mlp(sizes, activation, output_activation=nn.Identity):
    """Linear layers of the given sizes with activations between them: Linear at 0, 2, 4, ..."""
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


def count_vars(module):
    """Number of parameters, as a NumPy integer."""
    return sum((np.int64(p.numel()) for p in module.parameters()), np.int64(0))


# -- Stochastic policies and state values: VPG, TRPO, PPO -----------------------------------------------------------


class Actor(nn.Module):
    """A stochastic policy: `forward(obs, act)` gives the distribution and log pi(a|s)."""

    def _distribution(self, obs):
        raise NotImplementedError

    def _log_prob_from_distribution(self, pi, act):
        raise NotImplementedError

    def forward(self, obs, act=None):
        pi = self._distribution(obs)
        logp_a = None if act is None else self._log_prob_from_distribution(pi, act)  # (B,)
        return pi, logp_a


class MLPCategoricalActor(Actor):
    """pi(a|s) = softmax(logits(s))_a."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        self.logits_net = mlp([obs_dim, *hidden_sizes, act_dim], activation)

    def _distribution(self, obs):
        return Categorical(logits=self.logits_net(obs), validate_args=False)

    def _log_prob_from_distribution(self, pi, act):
        return pi.log_prob(act)


class MultiCategorical:
    """Several independent choices, made at once."""

    def __init__(self, logits, nvec):
        self.parts = [Categorical(logits=l, validate_args=False) for l in logits.split(nvec, dim=-1)]

    def sample(self):
        return torch.stack([part.sample() for part in self.parts], dim=-1)  # (B, number of choices)

    def log_prob(self, act):
        return sum(part.log_prob(a) for part, a in zip(self.parts, act.unbind(-1), strict=True))  # (B,)

    def entropy(self):
        return sum(part.entropy() for part in self.parts)  # (B,)


class MLPMultiCategoricalActor(Actor):
    """pi(a|s) = product over i of softmax(logits_i(s))_{a_i}, for MultiDiscrete actions."""

    def __init__(self, obs_dim, nvec, hidden_sizes, activation):
        super().__init__()
        self.nvec = [int(n) for n in nvec]
        self.logits_net = mlp([obs_dim, *hidden_sizes, sum(self.nvec)], activation)

    def _distribution(self, obs):
        return MultiCategorical(self.logits_net(obs), self.nvec)

    def _log_prob_from_distribution(self, pi, act):
        return pi.log_prob(act)


class MLPGaussianActor(Actor):
    """pi(a|s) = N(a; mu(s), diag(exp(log_std))^2), log_std independent of the state."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))
        self.mu_net = mlp([obs_dim, *hidden_sizes, act_dim], activation)

    def _distribution(self, obs):
        return Normal(self.mu_net(obs), torch.exp(self.log_std), validate_args=False)

    def _log_prob_from_distribution(self, pi, act):
        return pi.log_prob(act).sum(axis=-1)


class MLPCritic(nn.Module):
    """V(s)."""

    def __init__(self, obs_dim, hidden_sizes, activation):
        super().__init__()
        self.v_net = mlp([obs_dim, *hidden_sizes, 1], activation)

    def forward(self, obs):
        return torch.squeeze(self.v_net(obs), -1)  # (B,): with (B, 1), losses would broadcast to (B, B)


class MLPActorCritic(nn.Module):
    """Policy `pi` and value function `v`, for VPG, TRPO and PPO."""

    def __init__(self, observation_space, action_space, hidden_sizes=(64, 64), activation=nn.Tanh):
        super().__init__()
        obs_dim = observation_space.shape[0]
        if isinstance(action_space, Box):
            self.pi = MLPGaussianActor(obs_dim, action_space.shape[0], hidden_sizes, activation)
        elif isinstance(action_space, Discrete):
            self.pi = MLPCategoricalActor(obs_dim, int(action_space.n), hidden_sizes, activation)
        elif isinstance(action_space, MultiDiscrete):
            self.pi = MLPMultiCategoricalActor(obs_dim, action_space.nvec, hidden_sizes, activation)
        else:
            raise NotImplementedError(f"no policy for the action space {action_space}")
        self.v = MLPCritic(obs_dim, hidden_sizes, activation)

    def step(self, obs):
        """A sampled action, V(s) and log pi(a|s), as NumPy arrays."""
        with torch.no_grad():
            obs = torch.as_tensor(obs, dtype=torch.float32)
            pi = self.pi._distribution(obs)
            a = pi.sample()
            logp_a = self.pi._log_prob_from_distribution(pi, a)
            v = self.v(obs)
        return a.numpy(), v.numpy(), logp_a.numpy()

    def act(self, obs):
        return self.step(obs)[0]


def entropy(pi):
    """Mean entropy of the policy: a Normal reports one entropy per action dimension, they add up."""
    ent = pi.entropy()
    return ent.flatten(1).sum(-1).mean() if ent.dim() > 1 else ent.mean()


def mean_kl(pi0, pi1):
    """E_s[ KL(pi0(.|s) || pi1(.|s)) ]."""
    if isinstance(pi0, MultiCategorical):
        return sum(mean_kl(p0, p1) for p0, p1 in zip(pi0.parts, pi1.parts, strict=True))
    kl = kl_divergence(pi0, pi1)
    return kl.flatten(1).sum(-1).mean() if kl.dim() > 1 else kl.mean()


# -- Deterministic and squashed policies, action values: DDPG, TD3, SAC ---------------------------------------------


class MLPActor(nn.Module):
    """mu(s) = center + limit * tanh(...): a deterministic policy within the action bounds."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, act_limit, act_center=0.0):
        super().__init__()
        self.pi = mlp([obs_dim, *hidden_sizes, act_dim], activation, nn.Tanh)
        self.register_buffer("act_limit", torch.as_tensor(act_limit, dtype=torch.float32), persistent=False)
        self.register_buffer("act_center", torch.as_tensor(act_center, dtype=torch.float32), persistent=False)

    def forward(self, obs):
        return self.act_center + self.act_limit * self.pi(obs)  # (B, act_dim)


class SquashedGaussianMLPActor(nn.Module):
    """a = center + limit * tanh(u), u ~ N(mu(s), std(s)^2)."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, act_limit, act_center=0.0):
        super().__init__()
        sizes = [obs_dim, *hidden_sizes]
        self.net = mlp(sizes, activation, activation)
        self.mu_layer = nn.Linear(sizes[-1], act_dim)
        self.log_std_layer = nn.Linear(sizes[-1], act_dim)
        self.register_buffer("act_limit", torch.as_tensor(act_limit, dtype=torch.float32), persistent=False)
        self.register_buffer("act_center", torch.as_tensor(act_center, dtype=torch.float32), persistent=False)

    def forward(self, obs, deterministic=False, with_logprob=True):
        """Action (B, act_dim) and log-probability (B,), both differentiable: u = mu + std * noise.

        log pi(a|s) = log N(u; mu, std^2) - sum_i log(1 - tanh(u_i)^2), where
        log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)) does not overflow.
        It is the density of tanh(u): the constant log(limit) is left out, so that alpha means the same at any scale.
        """
        h = self.net(obs)
        mu = self.mu_layer(h)
        log_std = torch.clamp(self.log_std_layer(h), LOG_STD_MIN, LOG_STD_MAX)
        noise = torch.zeros_like(mu) if deterministic else torch.randn_like(mu)
        u = mu + torch.exp(log_std) * noise  # (B, act_dim)
        logp_a = None
        if with_logprob:
            log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
            logp_a = (log_normal - 2 * (math.log(2) - u - F.softplus(-2 * u))).sum(axis=-1)  # (B,)
        return self.act_center + self.act_limit * torch.tanh(u), logp_a


class MLPQFunction(nn.Module):
    """Q(s, a)."""

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        self.q = mlp([obs_dim + act_dim, *hidden_sizes, 1], activation)

    def forward(self, obs, act):
        return torch.squeeze(self.q(torch.cat([obs, act], dim=-1)), -1)  # (B,)


def _dims(observation_space, action_space):
    return observation_space.shape[0], action_space.shape[0]


def _scale(action_space):
    """Half-width and centre of the action bounds, per dimension."""
    low, high = action_space.low, action_space.high
    return dict(act_limit=(high - low) / 2, act_center=(high + low) / 2)


class DDPGActorCritic(nn.Module):
    """Deterministic policy `pi` and critic `q`."""

    def __init__(self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU):
        super().__init__()
        dims = _dims(observation_space, action_space)
        self.pi = MLPActor(*dims, hidden_sizes, activation, **_scale(action_space))
        self.q = MLPQFunction(*dims, hidden_sizes, activation)

    def act(self, obs):
        with torch.no_grad():
            return self.pi(torch.as_tensor(obs, dtype=torch.float32)).numpy()


class TD3ActorCritic(nn.Module):
    """Deterministic policy `pi` and twin critics `q1`, `q2`."""

    def __init__(self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU):
        super().__init__()
        dims = _dims(observation_space, action_space)
        self.pi = MLPActor(*dims, hidden_sizes, activation, **_scale(action_space))
        self.q1 = MLPQFunction(*dims, hidden_sizes, activation)
        self.q2 = MLPQFunction(*dims, hidden_sizes, activation)

    def act(self, obs):
        with torch.no_grad():
            return self.pi(torch.as_tensor(obs, dtype=torch.float32)).numpy()


class SACActorCritic(nn.Module):
    """Squashed Gaussian policy `pi` and twin critics `q1`, `q2`."""

    def __init__(self, observation_space, action_space, hidden_sizes=(256, 256), activation=nn.ReLU):
        super().__init__()
        dims = _dims(observation_space, action_space)
        self.pi = SquashedGaussianMLPActor(*dims, hidden_sizes, activation, **_scale(action_space))
        self.q1 = MLPQFunction(*dims, hidden_sizes, activation)
        self.q2 = MLPQFunction(*dims, hidden_sizes, activation)

    def act(self, obs, deterministic=False):
        with torch.no_grad():
            a, _ = self.pi(torch.as_tensor(obs, dtype=torch.float32), deterministic, False)
            return a.numpy()


# -- Normalised observations ----------------------------------------------------------------------------------------


class ObsNormalizer(nn.Module):
    """(obs - mean) / std, within +- clip. The statistics are buffers, so they are saved with the weights."""

    def __init__(self, shape, clip=CLIP):
        super().__init__()
        self.clip = clip
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("std", torch.ones(shape))

    def forward(self, obs):
        return torch.clamp((obs - self.mean) / self.std, -self.clip, self.clip)

    def update(self, obs):
        """Learn from more observations, of all processes."""
        merged = merge(self.count.item(), self.mean.cpu().numpy(), self.std.cpu().numpy(), obs)
        for old, new in zip((self.count, self.mean, self.std), merged, strict=True):
            old.copy_(torch.as_tensor(new))


class NormalizedModule(nn.Module):
    """`net` behind the normaliser: both are given, neither is copied."""

    def __init__(self, normalizer, net):
        super().__init__()
        self.normalizer, self.net = normalizer, net

    def forward(self, obs, *args):
        return self.net(self.normalizer(obs), *args)


class NormalizedActorCritic(nn.Module):
    """Any actor-critic of the on-policy family, fed with normalised observations."""

    def __init__(self, ac, obs_shape):
        super().__init__()
        self.ac, self.normalizer = ac, ObsNormalizer(obs_shape)

    @property
    def pi(self):
        return NormalizedModule(self.normalizer, self.ac.pi)

    @property
    def v(self):
        return NormalizedModule(self.normalizer, self.ac.v)

    def step(self, obs):
        return self.ac.step(self._normalized(obs))

    def act(self, obs):
        return self.ac.act(self._normalized(obs))

    def _normalized(self, obs):
        with torch.no_grad():
            return self.normalizer(torch.as_tensor(obs, dtype=torch.float32))


# Name -> activation, of those that work on each number alone and need no arguments.
ACTIVATIONS = {
    activation.__name__.lower(): activation
    for activation in (
        *(nn.Identity, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.GELU, nn.Mish),
        *(nn.SELU, nn.CELU, nn.ReLU6, nn.Softsign, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.LogSigmoid, nn.PReLU),
    )
}

# `torch.load` opens a saved actor-critic without being told to trust it: nothing in these classes can run foreign code.
torch.serialization.add_safe_globals(
    [
        *(MLPActorCritic, DDPGActorCritic, TD3ActorCritic, SACActorCritic, NormalizedActorCritic, ObsNormalizer),
        *(MLPCategoricalActor, MLPMultiCategoricalActor, MLPGaussianActor, MLPCritic),
        *(MLPActor, SquashedGaussianMLPActor, MLPQFunction),
        *(nn.Sequential, nn.Linear, *ACTIVATIONS.values()),
        *(set, torch.nn.parameter.Parameter),
    ]
)
