"""Networks: multi-layer perceptrons as actors and critics, and the actor-critics made of them. Equinox modules.

The names of modules and parameters are those of the PyTorch networks, so weights move from one back end to the other.
All of them work on one observation or on a batch: (..., obs_dim).
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

LOG_STD_MIN = -20
LOG_STD_MAX = 2


def identity(x):
    return x


def gelu(x):
    return jax.nn.gelu(x, approximate=False)  # as in PyTorch


# Name -> activation, of those that work on each number alone. The names are PyTorch's, in small letters.
ACTIVATIONS = dict(
    identity=identity,
    relu=jax.nn.relu,
    tanh=jnp.tanh,
    sigmoid=jax.nn.sigmoid,
    silu=jax.nn.silu,
    elu=jax.nn.elu,
    leakyrelu=jax.nn.leaky_relu,
    softplus=jax.nn.softplus,
    gelu=gelu,
    mish=jax.nn.mish,
    selu=jax.nn.selu,
    celu=jax.nn.celu,
    relu6=jax.nn.relu6,
    softsign=jax.nn.soft_sign,
    hardtanh=jax.nn.hard_tanh,
    hardsigmoid=jax.nn.hard_sigmoid,
    hardswish=jax.nn.hard_swish,
    logsigmoid=jax.nn.log_sigmoid,
)


class Linear(eqx.Module):
    """x W^T + b. Initial values are uniform within +-1 / sqrt(inputs), as PyTorch's are."""

    weight: jax.Array  # (outputs, inputs)
    bias: jax.Array  # (outputs,)

    def __init__(self, inputs, outputs, *, key):
        key_weight, key_bias = jax.random.split(key)
        limit = 1 / math.sqrt(inputs)
        self.weight = jax.random.uniform(key_weight, (outputs, inputs), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(key_bias, (outputs,), minval=-limit, maxval=limit)

    def __call__(self, x):
        return x @ self.weight.T + self.bias


class MLP(eqx.Module):
    """Linear layers with an activation after each."""

    layers: tuple[Linear, ...]
    activations: tuple[Callable, ...] = eqx.field(static=True)

    def __call__(self, x):
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x))
        return x


def mlp(sizes, activation, output_activation=identity, *, key):
    """Linear layers of the given sizes with activations between them."""
    if not callable(activation):
        raise TypeError(f"activation={activation!r} is no function, such as jax.nn.relu")
    keys = jax.random.split(key, len(sizes) - 1)
    layers = [Linear(n, m, key=k) for n, m, k in zip(sizes[:-1], sizes[1:], keys, strict=True)]
    return MLP(tuple(layers), (activation,) * (len(layers) - 1) + (output_activation,))


def count_vars(module):
    """Number of parameters, as a NumPy integer."""
    return sum((np.int64(x.size) for x in jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array))), np.int64(0))


# -- Distributions of actions ---------------------------------------------------------------------------------------


class Normal(eqx.Module):
    """Independent normal distributions, one for each dimension of an action."""

    mean: jax.Array  # (B, act_dim)
    log_std: jax.Array  # (act_dim,)

    def sample(self, key):
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self):
        return self.mean

    def log_prob(self, act):
        """sum_i -1/2 ((a_i - mu_i) / std_i)^2 - log std_i - 1/2 log(2 pi)."""
        z = (act - self.mean) / jnp.exp(self.log_std)
        return (-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)  # (B,)

    def entropy(self):
        """sum_i log std_i + 1/2 log(2 pi e)."""
        return jnp.broadcast_to(self.log_std + 0.5 * math.log(2 * math.pi * math.e), self.mean.shape).sum(-1)  # (B,)

    def kl(self, other):
        """KL(self || other) = sum_i log(std1 / std0) + (var0 + (mu0 - mu1)^2) / (2 var1) - 1/2."""
        ratio = jnp.exp(2 * (self.log_std - other.log_std))  # var0 / var1
        t = ((self.mean - other.mean) / jnp.exp(other.log_std)) ** 2
        return (0.5 * (ratio + t - 1) + other.log_std - self.log_std).sum(-1)  # (B,)


class Categorical(eqx.Module):
    """One choice, p = softmax(logits)."""

    logits: jax.Array  # (B, n)

    def sample(self, key):
        return jax.random.categorical(key, self.logits)

    def mode(self):
        return self.logits.argmax(-1)

    def log_prob(self, act):
        index = act.astype(jnp.int32)[..., None]
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits), index, axis=-1)[..., 0]  # (B,)

    def entropy(self):
        """-sum_a p log p."""
        logp = jax.nn.log_softmax(self.logits)
        return -(jnp.exp(logp) * logp).sum(-1)  # (B,)

    def kl(self, other):
        """KL(self || other) = sum_a p0 (log p0 - log p1)."""
        logp0, logp1 = jax.nn.log_softmax(self.logits), jax.nn.log_softmax(other.logits)
        return (jnp.exp(logp0) * (logp0 - logp1)).sum(-1)  # (B,)


class MultiCategorical(eqx.Module):
    """Several independent choices, made at once."""

    parts: list[Categorical]

    def __init__(self, logits, nvec):
        ends = np.cumsum(nvec)[:-1]
        self.parts = [Categorical(part) for part in jnp.split(logits, ends, axis=-1)]

    def sample(self, key):
        keys = jax.random.split(key, len(self.parts))
        return jnp.stack([part.sample(k) for part, k in zip(self.parts, keys, strict=True)], axis=-1)

    def mode(self):
        return jnp.stack([part.mode() for part in self.parts], axis=-1)  # (B, number of choices)

    def log_prob(self, act):
        return sum(part.log_prob(act[..., i]) for i, part in enumerate(self.parts))  # (B,)

    def entropy(self):
        return sum(part.entropy() for part in self.parts)  # (B,)

    def kl(self, other):
        return sum(p0.kl(p1) for p0, p1 in zip(self.parts, other.parts, strict=True))  # (B,)


# -- Stochastic policies and state values: VPG, TRPO, PPO -----------------------------------------------------------


class Actor(eqx.Module):
    """A stochastic policy: `pi(obs, act)` gives the distribution and log pi(a|s)."""

    def _distribution(self, obs):
        raise NotImplementedError

    def __call__(self, obs, act=None):
        pi = self._distribution(obs)
        logp_a = None if act is None else pi.log_prob(act)  # (B,)
        return pi, logp_a


class MLPCategoricalActor(Actor):
    """pi(a|s) = softmax(logits(s))_a."""

    logits_net: MLP

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, *, key):
        self.logits_net = mlp([obs_dim, *hidden_sizes, act_dim], activation, key=key)

    def _distribution(self, obs):
        return Categorical(self.logits_net(obs))


class MLPMultiCategoricalActor(Actor):
    """pi(a|s) = product over i of softmax(logits_i(s))_{a_i}, for MultiDiscrete actions."""

    logits_net: MLP
    nvec: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, obs_dim, nvec, hidden_sizes, activation, *, key):
        self.nvec = tuple(int(n) for n in nvec)
        self.logits_net = mlp([obs_dim, *hidden_sizes, sum(self.nvec)], activation, key=key)

    def _distribution(self, obs):
        return MultiCategorical(self.logits_net(obs), self.nvec)


class MLPGaussianActor(Actor):
    """pi(a|s) = N(a; mu(s), diag(exp(log_std))^2), log_std independent of the state."""

    log_std: jax.Array
    mu_net: MLP

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, *, key):
        self.log_std = jnp.full(act_dim, -0.5)
        self.mu_net = mlp([obs_dim, *hidden_sizes, act_dim], activation, key=key)

    def _distribution(self, obs):
        return Normal(self.mu_net(obs), self.log_std)


class MLPCritic(eqx.Module):
    """V(s)."""

    v_net: MLP

    def __init__(self, obs_dim, hidden_sizes, activation, *, key):
        self.v_net = mlp([obs_dim, *hidden_sizes, 1], activation, key=key)

    def __call__(self, obs):
        return jnp.squeeze(self.v_net(obs), -1)  # (B,): with (B, 1), losses would broadcast to (B, B)


class MLPActorCritic(eqx.Module):
    """Policy `pi` and value function `v`, for VPG, TRPO and PPO."""

    pi: Actor
    v: MLPCritic

    def __init__(self, observation_space, action_space, hidden_sizes=(64, 64), activation=jnp.tanh, *, key=None):
        key_pi, key_v = jax.random.split(_key(key))
        obs_dim = observation_space.shape[0]
        if isinstance(action_space, Box):
            self.pi = MLPGaussianActor(obs_dim, action_space.shape[0], hidden_sizes, activation, key=key_pi)
        elif isinstance(action_space, Discrete):
            self.pi = MLPCategoricalActor(obs_dim, int(action_space.n), hidden_sizes, activation, key=key_pi)
        elif isinstance(action_space, MultiDiscrete):
            self.pi = MLPMultiCategoricalActor(obs_dim, action_space.nvec, hidden_sizes, activation, key=key_pi)
        else:
            raise NotImplementedError(f"no policy for the action space {action_space}")
        self.v = MLPCritic(obs_dim, hidden_sizes, activation, key=key_v)

    def step(self, obs, key):
        """A sampled action, V(s) and log pi(a|s), as NumPy arrays."""
        pi, _ = self.pi(jnp.asarray(obs))
        a = pi.sample(key)
        return np.array(a), np.array(self.v(jnp.asarray(obs))), np.array(pi.log_prob(a))

    def act(self, obs, key):
        return self.step(obs, key)[0]


# -- Deterministic and squashed policies, action values: DDPG, TD3, SAC ---------------------------------------------


class MLPActor(eqx.Module):
    """mu(s) = center + limit * tanh(...): a deterministic policy within the action bounds."""

    pi: MLP
    act_limit: tuple[float, ...] = eqx.field(static=True)
    act_center: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, act_limit, act_center=0.0, *, key):
        self.pi = mlp([obs_dim, *hidden_sizes, act_dim], activation, jnp.tanh, key=key)
        self.act_limit, self.act_center = _constant(act_limit, act_dim), _constant(act_center, act_dim)

    def __call__(self, obs):
        return jnp.array(self.act_center) + jnp.array(self.act_limit) * self.pi(obs)  # (B, act_dim)


class SquashedGaussianMLPActor(eqx.Module):
    """a = center + limit * tanh(u), u ~ N(mu(s), std(s)^2)."""

    net: MLP
    mu_layer: Linear
    log_std_layer: Linear
    act_limit: tuple[float, ...] = eqx.field(static=True)
    act_center: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, act_limit, act_center=0.0, *, key):
        key_net, key_mu, key_log_std = jax.random.split(key, 3)
        sizes = [obs_dim, *hidden_sizes]
        self.net = mlp(sizes, activation, activation, key=key_net)
        self.mu_layer = Linear(sizes[-1], act_dim, key=key_mu)
        self.log_std_layer = Linear(sizes[-1], act_dim, key=key_log_std)
        self.act_limit, self.act_center = _constant(act_limit, act_dim), _constant(act_center, act_dim)

    def __call__(self, obs, key=None, deterministic=False, with_logprob=True):
        """Action (B, act_dim) and log-probability (B,), both differentiable: u = mu + std * noise.

        log pi(a|s) = log N(u; mu, std^2) - sum_i log(1 - tanh(u_i)^2), where
        log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)) does not overflow.
        It is the density of tanh(u): the constant log(limit) is left out, so that alpha means the same at any scale.
        """
        h = self.net(obs)
        mu = self.mu_layer(h)
        log_std = jnp.clip(self.log_std_layer(h), LOG_STD_MIN, LOG_STD_MAX)
        noise = jnp.zeros_like(mu) if deterministic else jax.random.normal(key, mu.shape)
        u = mu + jnp.exp(log_std) * noise  # (B, act_dim)
        logp_a = None
        if with_logprob:
            log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
            logp_a = (log_normal - 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))).sum(-1)  # (B,)
        return jnp.array(self.act_center) + jnp.array(self.act_limit) * jnp.tanh(u), logp_a


class MLPQFunction(eqx.Module):
    """Q(s, a)."""

    q: MLP

    def __init__(self, obs_dim, act_dim, hidden_sizes, activation, *, key):
        self.q = mlp([obs_dim + act_dim, *hidden_sizes, 1], activation, key=key)

    def __call__(self, obs, act):
        return jnp.squeeze(self.q(jnp.concatenate([obs, act], -1)), -1)  # (B,)


def _key(key):
    """The key given, or a new one from NumPy's global generator."""
    return jax.random.key(np.random.randint(2**31)) if key is None else key


def _constant(x, n):
    """Numbers that are part of the program, not parameters."""
    return tuple(np.broadcast_to(np.asarray(x, dtype=np.float32), n).tolist())


def _dims(observation_space, action_space):
    return observation_space.shape[0], action_space.shape[0]


def _scale(action_space):
    """Half-width and centre of the action bounds, per dimension."""
    low, high = action_space.low, action_space.high
    return dict(act_limit=(high - low) / 2, act_center=(high + low) / 2)


class DDPGActorCritic(eqx.Module):
    """Deterministic policy `pi` and critic `q`."""

    pi: MLPActor
    q: MLPQFunction

    def __init__(self, observation_space, action_space, hidden_sizes=(256, 256), activation=jax.nn.relu, *, key=None):
        dims, (key_pi, key_q) = _dims(observation_space, action_space), jax.random.split(_key(key))
        self.pi = MLPActor(*dims, hidden_sizes, activation, **_scale(action_space), key=key_pi)
        self.q = MLPQFunction(*dims, hidden_sizes, activation, key=key_q)

    def act(self, obs):
        return np.array(self.pi(jnp.asarray(obs)))


class TD3ActorCritic(eqx.Module):
    """Deterministic policy `pi` and twin critics `q1`, `q2`."""

    pi: MLPActor
    q1: MLPQFunction
    q2: MLPQFunction

    def __init__(self, observation_space, action_space, hidden_sizes=(256, 256), activation=jax.nn.relu, *, key=None):
        dims, (key_pi, key_q1, key_q2) = _dims(observation_space, action_space), jax.random.split(_key(key), 3)
        self.pi = MLPActor(*dims, hidden_sizes, activation, **_scale(action_space), key=key_pi)
        self.q1 = MLPQFunction(*dims, hidden_sizes, activation, key=key_q1)
        self.q2 = MLPQFunction(*dims, hidden_sizes, activation, key=key_q2)

    def act(self, obs):
        return np.array(self.pi(jnp.asarray(obs)))


class SACActorCritic(eqx.Module):
    """Squashed Gaussian policy `pi` and twin critics `q1`, `q2`."""

    pi: SquashedGaussianMLPActor
    q1: MLPQFunction
    q2: MLPQFunction

    def __init__(self, observation_space, action_space, hidden_sizes=(256, 256), activation=jax.nn.relu, *, key=None):
        dims, (key_pi, key_q1, key_q2) = _dims(observation_space, action_space), jax.random.split(_key(key), 3)
        self.pi = SquashedGaussianMLPActor(*dims, hidden_sizes, activation, **_scale(action_space), key=key_pi)
        self.q1 = MLPQFunction(*dims, hidden_sizes, activation, key=key_q1)
        self.q2 = MLPQFunction(*dims, hidden_sizes, activation, key=key_q2)

    def act(self, obs, key=None, deterministic=False):
        a, _ = self.pi(jnp.asarray(obs), key, deterministic, with_logprob=False)
        return np.array(a)
