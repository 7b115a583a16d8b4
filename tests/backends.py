"""One adapter for each back end: the same few methods, NumPy in and out, parameters by PyTorch's names.

A new back end is tested by adding its name and its adapter here.
"""

import importlib
import inspect
from contextlib import contextmanager
from unittest import mock

import numpy as np
from helpers import importable

from spinup.training.loop import Loop

NAMES = ["pytorch", "jax"]
ON_POLICY = ["vpg", "trpo", "ppo"]
OFF_POLICY = ["ddpg", "td3", "sac"]


def get(name):
    return {"pytorch": PyTorch, "jax": JAX}[name]


class Backend:
    """One algorithm with its networks: the agent that the training loops drive."""

    name: str

    def __init__(self, agent):
        self.agent = agent

    @classmethod
    def page(cls, algo):
        """The module of an algorithm: its class, public function and buffer."""
        return importlib.import_module(f"spinup.algos.{cls.name}.{algo}.{algo}")

    @classmethod
    def make(cls, algo, /, observation_space, action_space, **hyperparameters):
        """As the public function would make it, without an environment."""
        parameters = inspect.signature(getattr(cls.page(algo), algo)).parameters.values()
        config = {p.name: p.default for p in parameters} | dict(threads=1) | hyperparameters
        learn = importlib.import_module(f"spinup.algos.{cls.name}.learn")
        Agent = learn.OnPolicyAgent if algo in ON_POLICY else learn.OffPolicyAgent
        return cls(Agent(getattr(cls.page(algo), algo.upper()), config, observation_space, action_space))

    @classmethod
    def train(cls, algo, /, env_fn, **arguments):
        """Run the public function; what it has trained."""
        with cls.recorded() as runs:
            getattr(cls.page(algo), algo)(env_fn, **arguments)
        return runs[0]

    @classmethod
    @contextmanager
    def recorded(cls):
        """What is trained meanwhile, as a list that grows when a run begins."""
        runs, run = [], Loop.run

        def recorded_run(loop):
            runs.append(cls(loop.agent))
            run(loop)

        with mock.patch.object(Loop, "run", recorded_run):
            yield runs

    def update(self, batches, noise=()):
        """One update for each batch, the way the loops ask for them: column -> all values, in a vector."""
        with self.given_noise(noise):
            if hasattr(self.agent, "update_many"):
                return self.agent.update_many({key: float32([b[key] for b in batches]) for key in batches[0]})
            updates = [self.agent.update({key: float32(x) for key, x in data.items()}) for data in batches]
        return {key: np.array([stats[key] for stats in updates]) for key in updates[0]}

    def value(self, obs):
        """V(s), or Q(s, a) of the best action, (B,)."""
        return self.agent.value(obs) if hasattr(self.agent, "value") else self.q(obs, self.agent.policy.mode(obs))

    def close(self):
        self.agent.close()

    # -- Networks that are not quite ours ---------------------------------------------------------------------------

    @classmethod
    def changed(cls, AC, part, change):
        """A class like `AC`, where `change` is applied to what a part of it gives."""
        raise NotImplementedError

    @classmethod
    def with_extra_parameter(cls, AC):
        """A class like `AC` with one more parameter, `extra`, of two zeros, which has no influence on anything."""
        raise NotImplementedError

    @staticmethod
    def with_part(ac, name, part):
        """The networks with one of them replaced."""
        raise NotImplementedError

    @staticmethod
    def on_both(net):
        """A critic that applies a network to observation and action together, without dropping the last axis."""
        raise NotImplementedError

    @staticmethod
    def steep(net):
        """The critic `net` plus sqrt(p max(0, 1 - obs / 900)): beyond an observation of 900, its slope is infinite."""
        raise NotImplementedError


def float32(x):
    return np.asarray(x, dtype=np.float32)


class PyTorch(Backend):
    name = "pytorch"

    def __init__(self, agent):
        super().__init__(agent)
        self.ac, self.algorithm = agent.ac, agent.algorithm

    # -- Parameters -------------------------------------------------------------------------------------------------

    def params(self):
        """Copies, in double precision like the reference."""
        return self._copies(self.ac.named_parameters())

    def load(self, params):
        for name, p in self.ac.named_parameters():
            p.data.copy_(self._tensor(params[name]))

    def targets(self):
        """Copies of the target networks, with the names of the networks they follow."""
        return self._copies(self._named_targets())

    def load_targets(self, params):
        """Target networks like these parameters."""
        for name, p in self._named_targets():
            p.data.copy_(self._tensor(params[name]))

    def _named_targets(self):
        if hasattr(self.algorithm, "ac_targ"):
            return list(self.algorithm.ac_targ.named_parameters())
        q1, q2 = self.algorithm.critics_targ
        return [*q1.named_parameters("q1"), *q2.named_parameters("q2")]

    @staticmethod
    def _copies(named):
        return {name: p.detach().numpy().astype(np.float64) for name, p in named}

    # -- Mathematics ------------------------------------------------------------------------------------------------

    @contextmanager
    def given_noise(self, noise):
        """Every standard normal sample is taken from the list instead, and all of them are used."""
        import torch

        left = list(noise)
        with mock.patch.object(torch, "randn_like", lambda x: self._tensor(left.pop(0)).view_as(x)):
            yield
        assert not left, f"{len(left)} of {len(noise)} samples were not used"

    def loss(self, which, data, noise=()):
        """Value and gradient (a vector) of `loss_pi`, `loss_v` or `loss_q` in the parameters of that network."""
        import torch

        with self.given_noise(noise):
            loss = getattr(self.algorithm, which)({key: self._tensor(x) for key, x in data.items()})
        loss = loss[0] if isinstance(loss, tuple) else loss
        prefix = which.removeprefix("loss_")
        params = [p for name, p in self.ac.named_parameters() if name.startswith(prefix)]
        return loss.item(), np.concatenate([g.numpy().ravel() for g in torch.autograd.grad(loss, params)])

    def hessian_vector_product(self, data, v):
        """(H + damping I) v of TRPO, with H of the KL divergence from the present policy."""
        import torch

        from spinup.algos.pytorch.nets import mean_kl

        obs = self._tensor(data["obs"])
        with torch.no_grad():
            pi_old = self.ac.pi(obs)[0]
        return self.algorithm.hessian_vector_product(mean_kl(pi_old, self.ac.pi(obs)[0]))(self._tensor(v)).numpy()

    def conjugate_gradient(self, H, g, iterations):
        H = self._tensor(H)
        return self.page("trpo").conjugate_gradient(lambda x: H @ x, self._tensor(g), iterations).numpy()

    def q(self, obs, act):
        """Q(s, a) of the first critic, (B,)."""
        q = self.ac.q if hasattr(self.ac, "q") else self.ac.q1
        return q(self._tensor(obs), self._tensor(act)).detach().numpy()

    # -- Acting -----------------------------------------------------------------------------------------------------

    @staticmethod
    def activation(name):
        """What `ac_kwargs` takes, by the name that `spinup.training.acting` has for it."""
        from torch import nn

        names = dict(relu="ReLU", elu="ELU", silu="SiLU", leaky_relu="LeakyReLU")
        return getattr(nn, names.get(name, name.capitalize()))

    def own_output(self, obs, noise=None):
        """What the module itself computes, not its mirror: log-probabilities of all choices, else the action.

        Without noise the most likely action; with noise (B, act_dim) the one that is sampled with it.
        """
        import torch

        ac, obs = self.ac, self._tensor(obs)
        with torch.no_grad():
            if hasattr(ac, "v"):
                pi = ac.pi(obs)[0]
                if isinstance(pi, torch.distributions.Normal):
                    return (pi.mean if noise is None else pi.mean + pi.stddev * self._tensor(noise)).numpy()
                return torch.cat([part.logits for part in getattr(pi, "parts", [pi])], dim=-1).numpy()
            if hasattr(ac, "q"):
                return ac.pi(obs).numpy()
            return (ac.pi(obs, True) if noise is None else self.sampled_action(obs, noise))[0].numpy()

    def sampled_action(self, obs, noise):
        """SAC's action with this noise, and its log-probability."""
        with self.given_noise([noise]):
            return tuple(x.detach() for x in self.ac.pi(self._tensor(obs)))

    @staticmethod
    def _tensor(x):
        import torch

        return torch.as_tensor(np.asarray(x), dtype=torch.float32)

    # -- Networks that are not quite ours ---------------------------------------------------------------------------

    @classmethod
    def changed(cls, AC, part, change):
        class Changed(AC):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                if part not in ("step", "act"):
                    getattr(self, part).register_forward_hook(lambda module, args, output: change(output))

            def step(self, obs):
                return change(super().step(obs)) if part == "step" else super().step(obs)

            def act(self, obs, *deterministic):
                a = super().act(obs, *deterministic)
                return change(a) if part == "act" else a

            def __reduce__(self):  # it can be saved, that must not be what is wrong with it
                return str, ()

        return importable(Changed)

    @classmethod
    def with_extra_parameter(cls, AC):
        import torch

        class Extended(AC):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.extra = torch.nn.Parameter(torch.zeros(2))

        return importable(Extended)

    @staticmethod
    def with_part(ac, name, part):
        setattr(ac, name, part)
        return ac

    @staticmethod
    def on_both(net):
        import torch

        class Both(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net

            def forward(self, obs, act):
                return self.net(torch.cat([obs, act], -1))

        importable(Both)
        return Both()

    @staticmethod
    def steep(net):
        import torch

        class Steep(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.steep = net, torch.nn.Parameter(torch.ones(()))

            def forward(self, obs, *act):
                return self.net(obs, *act) + torch.sqrt(self.steep * torch.relu(1 - obs[..., 1] / 900))

        importable(Steep)
        return Steep()


class JAX(Backend):
    name = "jax"

    @property
    def ac(self):
        return self.agent.ac

    @property
    def algorithm(self):
        return self.agent.algorithm

    @property
    def state(self):
        return self.agent.structure.join(self.agent.arrays)

    def _set_state(self, **changes):
        from spinup.algos.jax.learn import Structure

        self.agent.arrays, _ = Structure.split(self.state._replace(**changes))
        self.agent.follow()

    # -- Parameters -------------------------------------------------------------------------------------------------

    def params(self):
        return self._copies(self.ac)

    def load(self, params):
        from spinup.algos.jax.learn import with_parameters

        self._set_state(ac=with_parameters(self.ac, params))

    def load_targets(self, params):
        from spinup.algos.jax.learn import with_parameters

        self._set_state(ac_targ=with_parameters(self.ac, params))

    def targets(self):
        state = self.state
        if hasattr(state, "ac_targ"):
            return self._copies(state.ac_targ)
        return self._copies(dict(zip(("q1", "q2"), state.q_targ, strict=True)))

    @staticmethod
    def _copies(module):
        from spinup.algos.jax.learn import named_parameters

        return {name: p.astype(np.float64) for name, p in named_parameters(module).items()}

    # -- Mathematics ------------------------------------------------------------------------------------------------

    @contextmanager
    def given_noise(self, noise):
        """Compiled code has its noise inside, so wherever some is given, nothing is compiled."""
        import jax

        if not noise:
            yield
            return
        left = list(noise)
        given = mock.patch.object(jax.random, "normal", lambda key, shape: float32(left.pop(0)).reshape(shape))
        with given, jax.disable_jit():
            yield
        assert not left, f"{len(left)} of {len(noise)} samples were not used"

    def own_noise(self, shape, updates, per_update):
        """The samples that the next updates will draw."""
        import jax

        key, noise = self.state.key, []
        for _ in range(updates):
            key, *keys = jax.random.split(key, 1 + per_update)
            noise += [np.asarray(jax.random.normal(k, shape)) for k in keys]
        return noise

    def loss(self, which, data, noise=()):
        import equinox as eqx
        import jax.numpy as jnp

        method, state = getattr(self.algorithm, which), self.state._asdict()
        known = state | dict(data={key: float32(x) for key, x in data.items()})
        if "log_alpha" in state:
            known["alpha"] = jnp.exp(state["log_alpha"])
        _, *names = inspect.signature(method).parameters
        with self.given_noise(noise):
            value, grads = eqx.filter_value_and_grad(lambda ac: method(ac, *(known[name] for name in names))[0])(
                self.ac
            )
        prefix = which.removeprefix("loss_")
        return float(value), np.concatenate(
            [g.ravel() for name, g in self._copies(grads).items() if name.startswith(prefix)]
        )

    def hessian_vector_product(self, data, v):
        obs = float32(data["obs"])
        pi_old, _ = self.ac.pi(obs)
        theta, with_theta = self.page("trpo").flat_policy(self.ac)

        def kl(theta):
            return pi_old.kl(with_theta(theta).pi(obs)[0]).mean()

        return np.asarray(self.algorithm.hessian_vector_product(kl, theta)(float32(v)))

    def conjugate_gradient(self, H, g, iterations):
        import jax.numpy as jnp

        H = jnp.asarray(H, jnp.float32)
        return np.asarray(
            self.page("trpo").conjugate_gradient(lambda x: H @ x, jnp.asarray(g, jnp.float32), iterations)
        )

    def q(self, obs, act):
        q = self.ac.q if hasattr(self.ac, "q") else self.ac.q1
        return np.asarray(q(float32(obs), float32(act)))

    # -- Acting -----------------------------------------------------------------------------------------------------

    @staticmethod
    def activation(name):
        import jax

        from spinup.algos.jax import nets

        own = dict(identity=nets.identity, tanh=jax.numpy.tanh)
        return own[name] if name in own else getattr(jax.nn, name)

    def own_output(self, obs, noise=None):
        import jax
        import jax.numpy as jnp

        ac = self.ac
        if hasattr(ac, "v"):
            pi, _ = ac.pi(obs if self.agent.normalizer is None else self.agent.normalizer(obs))
            if hasattr(pi, "mean"):
                return np.asarray(pi.mean if noise is None else pi.mean + jnp.exp(pi.log_std) * noise)
            parts = getattr(pi, "parts", [pi])
            return np.concatenate([jax.nn.log_softmax(part.logits) for part in parts], axis=-1)
        if hasattr(ac, "q"):
            return np.asarray(ac.pi(obs))
        return np.asarray((ac.pi(obs, deterministic=True) if noise is None else self.sampled_action(obs, noise))[0])

    def sampled_action(self, obs, noise):
        import jax

        with self.given_noise([noise]):
            return self.ac.pi(float32(obs), jax.random.key(0))

    # -- Networks that are not quite ours ---------------------------------------------------------------------------

    @classmethod
    def changed(cls, AC, part, change):
        import equinox as eqx

        class ChangedPart(eqx.Module):
            net: eqx.Module

            def __call__(self, *args):
                return change(self.net(*args))

        class Changed(AC):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                setattr(self, part, ChangedPart(getattr(self, part)))

        return Changed

    @classmethod
    def with_extra_parameter(cls, AC):
        import jax

        class Extended(AC):
            extra: jax.Array

            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.extra = jax.numpy.zeros(2)

        return Extended

    @staticmethod
    def with_part(ac, name, part):
        import equinox as eqx

        return eqx.tree_at(lambda ac: getattr(ac, name), ac, part)

    @staticmethod
    def on_both(net):
        import equinox as eqx
        import jax.numpy as jnp

        class Both(eqx.Module):
            net: eqx.Module

            def __call__(self, obs, act):
                return self.net(jnp.concatenate([obs, act], -1))

        return Both(net)

    @staticmethod
    def steep(net):
        import equinox as eqx
        import jax
        import jax.numpy as jnp

        class Steep(eqx.Module):
            net: eqx.Module
            steep: jax.Array

            def __call__(self, obs, *act):
                return self.net(obs, *act) + jnp.sqrt(self.steep * jax.nn.relu(1 - obs[..., 1] / 900))

        return Steep(net, jnp.ones(()))
