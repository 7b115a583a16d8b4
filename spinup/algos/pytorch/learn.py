"""What the PyTorch pages share: gradient steps, target networks, and the agents that the training loops drive."""

import math
import pickle
from copy import deepcopy
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn as nn

from spinup.algos.pytorch import nets
from spinup.training import acting
from spinup.training.agent import BATCH, build_actor_critic, check_parts, check_shape, wants_vectors
from spinup.training.buffers import OnPolicyBuffer, ReplayBuffer
from spinup.training.envs import action_shape
from spinup.training.errors import NonFiniteError, UserError, one_line
from spinup.training.off_policy import OffPolicyLoop
from spinup.training.on_policy import OnPolicyLoop
from spinup.training.seeding import RANK_OFFSET
from spinup.utils.mpi_pytorch import sync_params
from spinup.utils.mpi_tools import mpi_avg, num_procs, proc_id

# -- Pieces of an update --------------------------------------------------------------------------------------------


def trainable(params):
    """Those that are not frozen."""
    return [p for p in params if p.requires_grad]


class Adam:
    """Adam with its usual settings, on a list of parameters.

    The kernel is PyTorch's own. `torch.optim.Adam` spends longer preparing each call of it than the kernel takes.
    """

    def __init__(self, params, lr):
        self.params, self.lr = trainable(params), lr
        self.m = [torch.zeros_like(p) for p in self.params]  # running mean of the gradient
        self.v = [torch.zeros_like(p) for p in self.params]  # and of its square
        self.t = torch.zeros((), device=self.params[0].device if self.params else None)

    @torch.no_grad()
    def step(self, grads):
        """theta <- theta - lr m_hat / (sqrt(v_hat) + eps)."""
        self.t += 1
        steps = [self.t] * len(self.params)
        settings = dict(lr=self.lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, amsgrad=False, maximize=False)
        torch._fused_adam_(self.params, grads, self.m, self.v, [], steps, **settings)


def check_finite(name, x):
    """NonFiniteError if a number is NaN or infinite."""
    if not math.isfinite(x):
        raise NonFiniteError(f"{name} is {float(x)}; the parameters are still as before that step")


def gradient_step(optimizer, **named_loss):
    """One step down the gradient of a loss, averaged over processes: gradient_step(optimizer, LossPi=loss).

    The gradient is that of the optimiser's own parameters; none is computed for others that the loss depends on.
    """
    ((name, loss),) = named_loss.items()
    check_finite(name, loss.item())
    if not optimizer.params:  # all of them are frozen
        return
    grads = process_average_all(torch.autograd.grad(loss, optimizer.params, materialize_grads=True))
    check_finite(f"the gradient of {name}", torch.stack(torch._foreach_norm(grads)).sum())
    optimizer.step(grads)


def process_average(x):
    """A tensor averaged over all processes."""
    return x if num_procs() == 1 else torch.as_tensor(mpi_avg(x.cpu().numpy()), device=x.device)


def process_average_all(tensors):
    """Several tensors averaged over all processes, with a single reduction."""
    if num_procs() == 1:
        return tensors
    flat = process_average(torch.cat([x.reshape(-1) for x in tensors]))
    pieces = flat.split([x.numel() for x in tensors])
    return [piece.view_as(x) for piece, x in zip(pieces, tensors, strict=True)]


_parameter_lists = WeakKeyDictionary()


def parameters(module):
    """The module's parameters as a list. Finding them takes longer than updating them, so it is done once."""
    if module not in _parameter_lists:
        _parameter_lists[module] = list(module.parameters())
    return _parameter_lists[module]


def target_copy(module):
    """A copy that only ever changes by `polyak_average`."""
    return deepcopy(module).requires_grad_(False)


@torch.no_grad()
def polyak_average(targ, main, polyak):
    """targ <- polyak * targ + (1 - polyak) * main, for every parameter."""
    torch._foreach_lerp_(parameters(targ), parameters(main), 1 - polyak)


# -- Buffers with the original's interface --------------------------------------------------------------------------


def _tensors(arrays):
    return {key: torch.as_tensor(x, dtype=torch.float32) for key, x in arrays.items()}


class TensorOnPolicyBuffer(OnPolicyBuffer):
    """One rollout: `store` every step, `finish_path` at the end of each path, `get` tensors when it is full."""

    def get(self):
        return _tensors(super().get())


class TensorReplayBuffer(ReplayBuffer):
    """The last `size` transitions; `sample_batch` gives tensors."""

    def sample_batch(self, batch_size=32):
        return _tensors(super().sample_batch(batch_size))


# -- Acting ---------------------------------------------------------------------------------------------------------


# Exactly these classes, at these settings: a subclass may do anything.
_NUMPY_ACTIVATIONS = {
    nn.Identity: ("identity", {}),
    nn.ReLU: ("relu", {}),
    nn.Tanh: ("tanh", {}),
    nn.Sigmoid: ("sigmoid", {}),
    nn.SiLU: ("silu", {}),
    nn.ELU: ("elu", dict(alpha=1.0)),
    nn.LeakyReLU: ("leaky_relu", dict(negative_slope=0.01)),
    nn.Softplus: ("softplus", dict(beta=1.0)),
}


def _activation(module):
    """The NumPy twin of an activation module, None if there is none."""
    name, settings = _NUMPY_ACTIVATIONS.get(type(module), (None, {}))
    is_default = all(getattr(module, key) == value for key, value in settings.items())
    return acting.ACTIVATIONS[name] if name and is_default else None


def _numpy_mlp(net, normalizer=None):
    """The network in NumPy, on the same memory: it follows the parameters by itself. None if it is not standard."""
    modules = list(net) if type(net) is nn.Sequential else [net]
    if len(modules) % 2:
        modules.append(nn.Identity())
    layers = []
    for linear, module in zip(modules[::2], modules[1::2], strict=True):
        activation = _activation(module)
        if type(linear) is not nn.Linear or linear.bias is None or activation is None:
            return None
        layers.append(acting.Layer(linear.weight.detach().numpy().T, linear.bias.detach().numpy(), activation))
    return acting.MLP(layers, normalizer)


def numpy_policy(ac):
    """The policy of one of our own actor-critics in NumPy; None for any other network."""
    normalizer = None
    if type(ac) is nets.NormalizedActorCritic:
        mean, std = ac.normalizer.mean.numpy(), ac.normalizer.std.numpy()
        normalizer, ac = acting.Normalizer(mean, std, ac.normalizer.clip), ac.ac
    if type(ac) not in STANDARD or any(m._forward_hooks or m._forward_pre_hooks for m in ac.modules()):
        return None
    pi = ac.pi
    nets_in_order = [_numpy_mlp(net, normalizer if i == 0 else None) for i, net in enumerate(pi.children())]
    if None in nets_in_order:
        return None
    if type(pi) is nets.MLPGaussianActor:
        return acting.GaussianPolicy(*nets_in_order, pi.log_std.detach().numpy())
    if type(pi) is nets.MLPCategoricalActor:
        return acting.CategoricalPolicy(*nets_in_order, [pi.logits_net[-2].out_features], multi=False)
    if type(pi) is nets.MLPMultiCategoricalActor:
        return acting.CategoricalPolicy(*nets_in_order, pi.nvec, multi=True)
    if type(pi) is nets.MLPActor:
        return acting.DeterministicPolicy(*nets_in_order, pi.act_limit.numpy(), pi.act_center.numpy())
    if type(pi) is nets.SquashedGaussianMLPActor:
        log_std_range = (nets.LOG_STD_MIN, nets.LOG_STD_MAX)
        return acting.SquashedGaussianPolicy(*nets_in_order, log_std_range, pi.act_limit.numpy(), pi.act_center.numpy())
    return None


STANDARD = (nets.MLPActorCritic, nets.DDPGActorCritic, nets.TD3ActorCritic, nets.SACActorCritic)


class NetworkPolicy:
    """Acting through the methods of a user's own network, which take tensors and give NumPy actions."""

    def __init__(self, sample, mode):
        self._sample, self._mode = sample, mode

    def sample(self, obs, rng):
        return self._batched(self._sample, obs)

    def mode(self, obs):
        with torch.random.fork_rng(devices=[]):  # evaluation must not consume training's random numbers
            return self._batched(self._mode, obs)

    @staticmethod
    def _batched(act, obs):
        """One observation goes in without a batch axis, as it always did in the original."""
        if len(obs) == 1:
            return np.asarray(act(torch.as_tensor(obs[0])))[None]
        return np.asarray(act(torch.as_tensor(obs)))


# -- Agents: an algorithm's page, as the training loops see it -----------------------------------------------------


class _Agent:
    """Networks and device of one run; see `spinup.training.agent` for what the loops ask of it."""

    def __init__(self, Algorithm, config, observation_space, action_space):
        self._device = _checked_device(config["device"])
        self._threads, self._old_threads = config["threads"], torch.get_num_threads()
        torch.manual_seed(config["seed"] + RANK_OFFSET * proc_id())
        self.obs_shape, self.act_shape = observation_space.shape, action_shape(action_space)
        self.deterministic = "act_noise" in config  # DDPG, TD3: the loop adds the noise
        if isinstance(config["actor_critic"], nn.Module):
            raise UserError("actor_critic: give the class, or a function that makes the network, not a network")
        ac = build_actor_critic(config["actor_critic"], observation_space, action_space, config["ac_kwargs"])
        self.networks = Algorithm.networks
        if config["actor_critic"] not in STANDARD:  # a factory may have changed what it made of our own class
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                self.check(ac, config["num_envs"])
        if config.get("normalize_obs"):
            ac = nets.NormalizedActorCritic(ac, self.obs_shape)
        sync_params(ac)
        # Acting and saving use `ac_cpu`, which is `ac` itself unless that lives on another device.
        self.ac = ac.to(self._device)
        self.ac_cpu = self.ac if self._device.type == "cpu" else deepcopy(ac).cpu()
        self.policy = numpy_policy(self.ac_cpu) or self.network_policy(self.ac_cpu)
        self.algorithm = Algorithm(self.ac, *self.bounds(action_space), **config)

    def bounds(self, action_space):
        """Lowest and highest action, for algorithms that clip."""
        return ()

    def check(self, ac, num_envs):
        """Try a user's own network: a mistake shall be found before the run, not in its middle."""
        if not isinstance(ac, nn.Module):
            raise UserError(f"actor_critic: it made {one_line(repr(ac))}, which is no torch.nn.Module")
        check_parts(ac, (*self.networks, *self.methods))
        for name in self.networks:
            if not isinstance(getattr(ac, name), nn.Module):
                raise UserError(f"actor_critic: `{name}` must be a module of its own, not a method")
        self.check_outputs(ac)
        self.check_acting(ac, torch.zeros(self.obs_shape), (), "one observation, without batch axis")
        if num_envs > 1:
            obs = torch.zeros(num_envs, *self.obs_shape)
            self.check_acting(ac, obs, (num_envs,), f"a batch of {num_envs}, one for each environment")
        try:
            pickle.dumps(ac)
        except Exception as error:
            raise UserError(
                f"actor_critic: the network cannot be saved ({one_line(error)});"
                " define its class at the top level of a module"
            ) from None

    def start(self):
        torch.set_num_threads(self._threads)

    def parameter_counts(self):
        return {name: int(nets.count_vars(getattr(self.ac, name))) for name in self.networks}

    def check_finite(self):
        for name, p in self.ac.named_parameters():
            if not torch.isfinite(p).all():
                raise NonFiniteError(f"the parameter {name} is not finite any more")

    def setup_saver(self, logger):
        logger.setup_pytorch_saver(self.ac_cpu)

    def close(self):
        torch.set_num_threads(self._old_threads)

    def to_tensors(self, arrays):
        return {key: torch.as_tensor(x, device=self._device) for key, x in arrays.items()}

    @torch.no_grad()
    def follow(self):
        """Bring the copy for acting up to date."""
        if self.ac_cpu is not self.ac:
            for old, new in zip(self.ac_cpu.state_dict().values(), self.ac.state_dict().values(), strict=True):
                old.copy_(new)


class OnPolicyAgent(_Agent):
    methods = ("step", "act")

    def __init__(self, Algorithm, config, observation_space, action_space):
        super().__init__(Algorithm, config, observation_space, action_space)
        self.normalizer = getattr(self.ac, "normalizer", None) if config["normalize_obs"] else None

    def check_outputs(self, ac):
        obs, act = torch.zeros(3, *self.obs_shape), torch.zeros(3, *self.act_shape)
        check_shape("v(obs)", ac.v(obs), (3,), BATCH)
        check_shape("pi(obs, act)[1]", ac.pi(obs, act)[1], (3,), BATCH)

    def check_acting(self, ac, obs, batch, given):
        a, v, logp = ac.step(obs)
        check_shape("step(obs)[0]", a, (*batch, *self.act_shape), given)
        check_shape("step(obs)[1]", v, batch, given)
        check_shape("step(obs)[2]", logp, batch, given)

    def network_policy(self, ac):
        return NetworkPolicy(lambda obs: ac.step(obs)[0], ac.act)

    @torch.no_grad()
    def value(self, obs):
        return self.ac.v(torch.as_tensor(obs, device=self._device)).cpu().numpy()

    @torch.no_grad()
    def value_and_logp(self, obs, act):
        obs, act = torch.as_tensor(obs, device=self._device), torch.as_tensor(act, device=self._device)
        return self.ac.v(obs).cpu().numpy(), self.ac.pi(obs, act)[1].cpu().numpy()

    def update(self, data):
        stats = self.algorithm.update(self.to_tensors(data))
        if self.normalizer is not None:  # later than the update, so that it saw what the policy saw
            self.normalizer.update(data["obs"])
        self.follow()
        return {key: float(value) for key, value in stats.items()}


class OffPolicyAgent(_Agent):
    methods = ("act",)

    def bounds(self, action_space):
        low, high = action_space.low, action_space.high
        return (torch.as_tensor(bound, dtype=torch.float32, device=self._device) for bound in (low, high))

    def check_outputs(self, ac):
        obs, act = torch.zeros(3, *self.obs_shape), torch.zeros(3, *self.act_shape)
        for name in self.networks[1:]:
            check_shape(f"{name}(obs, act)", getattr(ac, name)(obs, act), (3,), BATCH)
        out = ac.pi(obs)
        if self.deterministic == isinstance(out, tuple):
            expected = "actions alone" if self.deterministic else "actions and their log-probabilities"
            raise UserError(f"actor_critic: pi(obs) must give {expected}")
        if self.deterministic:
            check_shape("pi(obs)", out, (3, *self.act_shape), BATCH)
        else:
            check_shape("pi(obs)[0]", out[0], (3, *self.act_shape), BATCH)
            check_shape("pi(obs)[1]", out[1], (3,), BATCH)

    def check_acting(self, ac, obs, batch, given):
        check_shape("act(obs)", ac.act(obs), (*batch, *self.act_shape), given)

    def network_policy(self, ac):
        return NetworkPolicy(ac.act, ac.act if self.deterministic else lambda obs: ac.act(obs, True))

    def update_many(self, batches):
        batches = self.to_tensors(batches)
        steps = [self.algorithm.update({key: x[i] for key, x in batches.items()}) for i in range(len(batches["rew"]))]
        self.follow()
        keys = dict.fromkeys(key for stats in steps for key in stats)  # TD3 has a policy loss only now and then
        return {key: torch.stack([s[key] for s in steps if key in s]).flatten().cpu().numpy() for key in keys}


def _checked_device(name):
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type == "meta":  # which holds no numbers
        raise UserError(f"device={name!r}: there is no such device, use 'cpu', 'cuda' or 'mps'")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UserError(f"device={name!r} cannot be used here ({str(error).splitlines()[0]}): use 'cpu'") from None
    return device


# -- What the public functions call ---------------------------------------------------------------------------------


def train_on_policy(arguments, Algorithm, columns):
    """Train with the arguments of a public function; `columns` of progress.txt are the algorithm's own."""
    OnPolicyLoop(
        arguments,
        lambda *of_run: OnPolicyAgent(Algorithm, *of_run),
        columns,
        flatten_boxes=wants_vectors(arguments["actor_critic"], STANDARD),
    ).run()


def train_off_policy(arguments, Algorithm, value_columns, loss_columns):
    """The same for the off-policy family; of `value_columns` the minimum and maximum are logged as well."""
    OffPolicyLoop(
        arguments,
        lambda *of_run: OffPolicyAgent(Algorithm, *of_run),
        value_columns,
        loss_columns,
        flatten_boxes=wants_vectors(arguments["actor_critic"], STANDARD),
    ).run()
