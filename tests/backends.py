"""One adapter for each back end: the same few methods, NumPy in and out, parameters by PyTorch's names.

A new back end is tested by adding its name and its adapter here.
"""

import importlib
import inspect
from contextlib import contextmanager
from unittest import mock

import numpy as np

from spinup.training.loop import Loop

NAMES = ["pytorch"]
ON_POLICY = ["vpg", "trpo", "ppo"]
OFF_POLICY = ["ddpg", "td3", "sac"]


def get(name):
    return {"pytorch": PyTorch}[name]


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
        loops, run = [], Loop.run

        def recorded_run(loop):
            loops.append(loop)
            run(loop)

        with mock.patch.object(Loop, "run", recorded_run):
            getattr(cls.page(algo), algo)(env_fn, **arguments)
        return cls(loops[0].agent)

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
        if hasattr(self.algorithm, "ac_targ"):
            return self._copies(self.algorithm.ac_targ.named_parameters())
        q1, q2 = self.algorithm.critics_targ
        return self._copies([*q1.named_parameters("q1"), *q2.named_parameters("q2")])

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
            with self.given_noise([] if noise is None else [noise]):
                return ac.pi(obs, noise is None)[0].numpy()

    @staticmethod
    def _tensor(x):
        import torch

        return torch.as_tensor(np.asarray(x), dtype=torch.float32)
