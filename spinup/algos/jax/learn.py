"""What the JAX pages share: gradient steps, loops that compile, and the agents that the training loops drive.

A page is pure: `update(state, data) -> (state, info)`. Here it is compiled, k updates into one call. What comes out of
a call is kept only if all of it is finite, so the state that goes in must stay; it is not donated.
"""

import inspect
import os
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import io_callback
from jax.flatten_util import ravel_pytree

from spinup.algos.jax import nets
from spinup.training import acting
from spinup.training.agent import BATCH, build_actor_critic, check_parts, check_shape, wants_vectors
from spinup.training.envs import action_shape
from spinup.training.errors import NonFiniteError, UserError, one_line
from spinup.training.models import Model, describe_space, read_model, space_from
from spinup.training.normalizer import CLIP, RunningNormalizer
from spinup.training.off_policy import OffPolicyLoop
from spinup.training.on_policy import OnPolicyLoop
from spinup.training.seeding import RANK_OFFSET
from spinup.utils.mpi_tools import broadcast, mpi_avg, num_procs, proc_id

# -- Pieces of an update --------------------------------------------------------------------------------------------


class Adam:
    """Optax's Adam on some parts of a network: Adam(lr, "q1", "q2"). Without names, on all of it."""

    def __init__(self, lr, *names):
        self.adam, self.names = optax.adam(lr), names

    def parts(self, net):
        return tuple(getattr(net, name) for name in self.names) if self.names else net

    def replace(self, net, parts):
        return eqx.tree_at(self.parts, net, parts) if self.names else parts

    def init(self, net):
        return self.adam.init(eqx.filter(self.parts(net), eqx.is_inexact_array))


def gradient_step(optimizer, net, opt_state, loss, *args):
    """One step down the gradient of `loss(net, *args) -> (value, info)`, averaged over processes.

    The gradient is that of the optimiser's own parts. Returns net and opt_state as they are after the step, and the
    value and info from before it.
    """

    def loss_of(parts):
        return loss(optimizer.replace(net, parts), *args)

    parts = optimizer.parts(net)
    (value, info), grads = eqx.filter_value_and_grad(loss_of, has_aux=True)(parts)
    updates, opt_state = optimizer.adam.update(process_average(grads), opt_state)
    return optimizer.replace(net, eqx.apply_updates(parts, updates)), opt_state, value, info


def process_average(tree):
    """Arrays averaged over all processes, with a single reduction."""
    if num_procs() == 1:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(io_callback(mpi_avg, jax.ShapeDtypeStruct(flat.shape, flat.dtype), flat, ordered=True))


def polyak_average(targ, main, polyak):
    """polyak * targ + (1 - polyak) * main, for every parameter."""

    def average(t, m):
        return t + (1 - polyak) * (m - t) if eqx.is_inexact_array(t) else t

    return jax.tree.map(average, targ, main)


def select(condition, if_true, if_false):
    """`if_true if condition else if_false`, for all arrays of two trees."""

    def choose(x, y):
        return jnp.where(condition, x, y) if eqx.is_array(x) else x

    return jax.tree.map(choose, if_true, if_false)


def _on_arrays(step, rest):
    """`step` on the arrays of a carry alone, which are what JAX's loops can carry; `rest` is what it has besides."""
    return lambda arrays: eqx.filter(step(eqx.combine(arrays, rest)), eqx.is_array)


def repeat(n, step, carry):
    """carry <- step(carry), n times, as a compiled loop."""
    arrays, rest = eqx.partition(carry, eqx.is_array)
    body = _on_arrays(step, rest)
    arrays, _ = jax.lax.scan(lambda arrays, _: (body(arrays), None), arrays, length=n)
    return eqx.combine(arrays, rest)


def repeat_while(keep_going, step, carry):
    """carry <- step(carry) while keep_going(carry), as a compiled loop."""
    arrays, rest = eqx.partition(carry, eqx.is_array)
    condition = lambda arrays: keep_going(eqx.combine(arrays, rest))  # noqa: E731
    return eqx.combine(jax.lax.while_loop(condition, _on_arrays(step, rest), arrays), rest)


def when(condition, step, carry):
    """step(carry) if the condition holds, else the carry as it is; compiled, only one of the two is computed."""
    arrays, rest = eqx.partition(carry, eqx.is_array)
    return eqx.combine(jax.lax.cond(condition, _on_arrays(step, rest), lambda arrays: arrays, arrays), rest)


class Sometimes(NamedTuple):
    """A number that only some updates report."""

    value: Any
    due: Any  # whether this update does

    def numpy(self):
        return np.asarray(self.value)[np.asarray(self.due)]


# -- Compiled functions of a page and its state ---------------------------------------------------------------------


class Structure(NamedTuple):
    """What a tree is besides its arrays. It can be compared, and so be part of what a program is compiled for."""

    treedef: Any
    others: tuple  # the leaves that are no arrays, such as functions; None in the place of arrays

    @classmethod
    def split(cls, tree):
        """The arrays in a tree, as a list, and its structure."""
        leaves, treedef = jax.tree.flatten(tree)
        others = tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
        return [leaf for leaf in leaves if eqx.is_array(leaf)], cls(treedef, others)

    def join(self, arrays):
        arrays = iter(arrays)
        return jax.tree.unflatten(self.treedef, [next(arrays) if x is None else x for x in self.others])


# What XLA is told about our programs, and about nothing else in the process: what was fastest when it was tried.
EVERYWHERE = {"xla_cpu_prefer_vector_width": 512}  # where there are such vectors, 5 to 10 %
ON_POLICY = {  # the loops of policy and value function side by side, fewer copies in them: 5 to 9 %
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_cpu_copy_insertion_use_region_analysis": True,
}
TWIN_CRITICS = {"xla_cpu_experimental_ynn_fusion_type": "1"}  # products by another library: SAC 7 %, but DDPG -30 %
COMPILER_OPTIONS = {**dict.fromkeys(("VPG", "TRPO", "PPO"), EVERYWHERE | ON_POLICY), "SAC": EVERYWHERE | TWIN_CRITICS}


@cache
def compiled(function, algorithm_name=None):
    """`function(algorithm, structure, arrays, ...)`, compiled once for each algorithm, structure and shape."""
    options = compiler_options(COMPILER_OPTIONS.get(algorithm_name, EVERYWHERE))
    return jax.jit(function, static_argnums=(0, 1), compiler_options=options)


def compiler_options(wanted):
    """Those that this version of XLA knows. What XLA_FLAGS say comes first."""
    flags = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in wanted.items() if name not in flags and _is_known(name, value)}


@cache
def _is_known(flag, value):
    try:
        jax.jit(lambda: 0, compiler_options={flag: value})()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def start_xla(threads):
    """XLA makes its threads once in a process, when it starts; the environment variable NPROC says how many."""
    if "NPROC" in os.environ:
        jax.devices()
        return
    os.environ["NPROC"] = str(threads)
    try:
        jax.devices()
    finally:
        del os.environ["NPROC"]


@lru_cache(maxsize=64)
def algorithm_with(Algorithm, **hyperparameters):
    """The same object for the same hyperparameters, so that a second run finds what was compiled for the first."""
    return Algorithm(**hyperparameters)


def update_once(algorithm, structure, arrays, data):
    state, info = algorithm.update(structure.join(arrays), data)
    return Structure.split(state)[0], info, all_finite(state.ac)


def update_k_times(algorithm, structure, arrays, batches):
    def step(arrays, data):
        state, info = algorithm.update(structure.join(arrays), data)
        return Structure.split(state)[0], info

    arrays, infos = jax.lax.scan(step, arrays, batches)
    return arrays, infos, all_finite(structure.join(arrays).ac)


def all_finite(ac):
    """A parameter that is NaN or infinite, as after such a gradient, stays so: one look after many steps is enough."""
    return jnp.array([jnp.isfinite(x).all() for x in jax.tree.leaves(ac) if eqx.is_inexact_array(x)]).all()


def value(algorithm, structure, arrays, obs):
    return structure.join(arrays).v(obs)


def value_and_logp(algorithm, structure, arrays, obs, act):
    ac = structure.join(arrays)
    return ac.v(obs), ac.pi(obs, act)[1]


# -- Acting ---------------------------------------------------------------------------------------------------------

# Exactly these functions: NumPy has a twin of them.
_NUMPY_ACTIVATIONS = {
    nets.identity: "identity",
    jax.nn.relu: "relu",
    jnp.tanh: "tanh",
    jax.nn.sigmoid: "sigmoid",
    jax.nn.elu: "elu",
    jax.nn.silu: "silu",
    jax.nn.leaky_relu: "leaky_relu",
    jax.nn.softplus: "softplus",
}

STANDARD = (nets.MLPActorCritic, nets.DDPGActorCritic, nets.TD3ActorCritic, nets.SACActorCritic)


def _numpy_mlp(net, normalizer=None):
    """The network in NumPy, on the same memory. None if it is not standard."""
    layers, activations = (net.layers, net.activations) if type(net) is nets.MLP else ([net], [nets.identity])
    if any(type(layer) is not nets.Linear for layer in layers) or any(f not in _NUMPY_ACTIVATIONS for f in activations):
        return None
    mirrored = [
        acting.Layer(np.asarray(layer.weight).T, np.asarray(layer.bias), acting.ACTIVATIONS[_NUMPY_ACTIVATIONS[f]])
        for layer, f in zip(layers, activations, strict=True)
    ]
    return acting.MLP(mirrored, normalizer)


def numpy_policy(ac, normalizer=None):
    """The policy of one of our own actor-critics in NumPy; None for any other network."""
    if type(ac) not in STANDARD:
        return None
    pi = ac.pi
    if type(pi) is nets.MLPGaussianActor:
        return _mirror([pi.mu_net], normalizer, acting.GaussianPolicy, np.asarray(pi.log_std))
    if type(pi) is nets.MLPCategoricalActor:
        n = pi.logits_net.layers[-1].bias.size
        return _mirror([pi.logits_net], normalizer, acting.CategoricalPolicy, [n], False)
    if type(pi) is nets.MLPMultiCategoricalActor:
        return _mirror([pi.logits_net], normalizer, acting.CategoricalPolicy, pi.nvec, True)
    scale = np.float32(pi.act_limit), np.float32(pi.act_center)
    if type(pi) is nets.MLPActor:
        return _mirror([pi.pi], normalizer, acting.DeterministicPolicy, *scale)
    if type(pi) is nets.SquashedGaussianMLPActor:
        parts, log_std_range = [pi.net, pi.mu_layer, pi.log_std_layer], (nets.LOG_STD_MIN, nets.LOG_STD_MAX)
        return _mirror(parts, normalizer, acting.SquashedGaussianPolicy, log_std_range, *scale)
    return None


def _mirror(parts, normalizer, Policy, *settings):
    mirrored = [_numpy_mlp(part, normalizer if i == 0 else None) for i, part in enumerate(parts)]
    return None if None in mirrored else Policy(*mirrored, *settings)


class NetworkPolicy:
    """Acting through a user's own network: `act(ac, obs, key)`, the most likely action where the key is None."""

    def __init__(self, act, ac, normalizer=None):
        self.act, self.ac, self.normalizer = act, ac, normalizer

    def sample(self, obs, rng):
        return self._act(obs, jax.random.key(rng.integers(2**32)))

    def mode(self, obs):
        return self._act(obs, None)

    def _act(self, obs, key):
        obs = obs if self.normalizer is None else self.normalizer(obs)
        return np.array(_compiled_act(self.act, self.ac, obs, key))


@eqx.filter_jit
def _compiled_act(act, ac, obs, key):
    return act(ac, obs, key)


def act_on_policy(ac, obs, key):
    pi, _ = ac.pi(obs)
    return pi.mode() if key is None else pi.sample(key)


def act_deterministic(ac, obs, key):
    return ac.pi(obs)  # DDPG, TD3: the loop adds the noise


def act_squashed(ac, obs, key):
    return ac.pi(obs, key, key is None)[0]


# -- Agents: an algorithm's page, as the training loops see it ------------------------------------------------------


class _Agent:
    """Networks, state and device of one run; see `spinup.training.agent` for what the loops ask of it."""

    normalizer = None

    def __init__(self, Algorithm, config, observation_space, action_space):
        start_xla(config["threads"])
        device = _checked_device(config["device"])
        self.spaces = observation_space, action_space
        self.obs_shape, self.act_shape = observation_space.shape, action_shape(action_space)
        self.networks, self.ac_kwargs = Algorithm.networks, config["ac_kwargs"]
        seeds = np.random.SeedSequence(config["seed"] + RANK_OFFSET * proc_id()).generate_state(2)
        key_ac, self.key = map(jax.random.key, seeds)
        ac = build_actor_critic(config["actor_critic"], observation_space, action_space, self.ac_kwargs, key=key_ac)
        ac = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, ac)
        if config["actor_critic"] not in STANDARD:  # a factory may have changed what it made of our own class
            check_parts(ac, self.networks)
            eqx.filter_eval_shape(self.check_outputs, ac)  # nothing is computed, or compiled
        self.algorithm = algorithm_with(Algorithm, **self.hyperparameters(Algorithm, config))
        arrays, self.structure = Structure.split(self.initial_state(sync_params(ac)))
        # Types are made definite: `jnp.full(2, 0.5)` has a weak one, which the first update would change for good.
        self.arrays = [jax.device_put(jnp.asarray(x, x.dtype), device) for x in arrays]
        self.follow()

    def hyperparameters(self, Algorithm, config):
        """Those that the page asks for."""
        names = inspect.signature(Algorithm).parameters
        return {name: value for name, value in config.items() if name in names}

    def initial_state(self, ac):
        return self.algorithm.init(ac)

    @property
    def ac(self):
        return self.structure.join(self.arrays).ac

    def start(self):
        """Threads cannot be set any more: see `start_xla`."""

    def close(self):
        """So there is nothing to undo."""

    def parameter_counts(self):
        return {name: int(nets.count_vars(getattr(self.ac, name))) for name in self.networks}

    def check_finite(self):
        for name, p in named_parameters(self.ac).items():
            if not np.isfinite(p).all():
                raise NonFiniteError(f"the parameter {name} is not finite any more")

    def setup_saver(self, logger):
        logger.setup_jax_saver(self.saved)

    def run(self, update, data):
        """Call a compiled update, keep what comes out if all of it is finite; what the updates report, in arrays."""
        arrays, info, finite = compiled(update, type(self.algorithm).__name__)(
            self.algorithm, self.structure, self.arrays, data
        )
        stats = {name: x.numpy() if isinstance(x, Sometimes) else np.asarray(x) for name, x in info.items()}
        for name, x in stats.items():
            if "Loss" in name and not np.isfinite(x).all():
                bad = x[~np.isfinite(x)].flat[0]
                raise NonFiniteError(f"{name} is {bad}; the parameters are still as before that step")
        if not finite:
            self.check_finite()
            raise NonFiniteError("the gradient of a loss is not finite; the parameters are still as before that step")
        self.arrays = arrays
        self.follow()
        return stats

    def follow(self):
        """Bring the policy for acting up to date."""
        ac = self.ac
        self.policy = numpy_policy(ac, self.normalizer) or NetworkPolicy(self.act, ac, self.normalizer)

    def saved(self):
        """The networks as data."""
        arrays = named_parameters(self.ac)
        if self.normalizer is not None:
            arrays |= {"normalizer.mean": self.normalizer.mean, "normalizer.std": self.normalizer.std}
        observation_space, action_space = map(describe_space, self.spaces)
        spaces = dict(observation_space=observation_space, action_space=action_space)
        network = describe_network(self.ac, self.ac_kwargs)
        return Model(arrays, dict(backend="jax", act=self.act.__name__, **network, **spaces))


class OnPolicyAgent(_Agent):
    act = staticmethod(act_on_policy)

    def __init__(self, Algorithm, config, observation_space, action_space):
        if config["normalize_obs"]:
            self.normalizer = RunningNormalizer(observation_space.shape)
        super().__init__(Algorithm, config, observation_space, action_space)

    def check_outputs(self, ac):
        obs, act = jnp.zeros((3, *self.obs_shape)), jnp.zeros((3, *self.act_shape))
        check_shape("v(obs)", ac.v(obs), (3,), BATCH)
        pi, logp = ac.pi(obs, act)
        check_shape("pi(obs, act)[1]", logp, (3,), BATCH)
        check_shape("pi(obs)[0].sample(key)", pi.sample(jax.random.key(0)), (3, *self.act_shape), BATCH)

    def value(self, obs):
        """A few states at a time, always the same number: for another one, the function would be compiled anew."""
        values = []
        for start in range(0, len(obs), VALUES_PER_CALL):
            piece = self.normalized(obs[start : start + VALUES_PER_CALL])
            padding = np.zeros((VALUES_PER_CALL - len(piece), *self.obs_shape), np.float32)
            values.append(np.asarray(self.call(value, np.concatenate([piece, padding])))[: len(piece)])
        return np.concatenate(values)

    def value_and_logp(self, obs, act):
        v, logp = self.call(value_and_logp, self.normalized(obs), act)
        return np.asarray(v), np.asarray(logp)

    def call(self, function, *inputs):
        arrays, structure = Structure.split(self.ac)
        return compiled(function)(self.algorithm, structure, arrays, *inputs)

    def normalized(self, obs):
        return obs if self.normalizer is None else self.normalizer(obs)

    def update(self, data):
        stats = self.run(update_once, dict(data, obs=self.normalized(data["obs"])))
        if self.normalizer is not None:  # later than the update, so that it saw what the policy saw
            self.normalizer.update(data["obs"])
        return {name: float(x) for name, x in stats.items()}


VALUES_PER_CALL = 32


class OffPolicyAgent(_Agent):
    def __init__(self, Algorithm, config, observation_space, action_space):
        self.act = act_deterministic if "act_noise" in config else act_squashed
        super().__init__(Algorithm, config, observation_space, action_space)

    def hyperparameters(self, Algorithm, config):
        low, high = (tuple(bound.tolist()) for bound in (self.spaces[1].low, self.spaces[1].high))
        return super().hyperparameters(Algorithm, config | dict(act_low=low, act_high=high))

    def initial_state(self, ac):
        return self.algorithm.init(ac, self.key)

    def check_outputs(self, ac):
        obs, act = jnp.zeros((3, *self.obs_shape)), jnp.zeros((3, *self.act_shape))
        for name in self.networks[1:]:
            check_shape(f"{name}(obs, act)", getattr(ac, name)(obs, act), (3,), BATCH)
        if self.act is act_deterministic:
            a = ac.pi(obs)
            if isinstance(a, tuple):
                raise UserError("actor_critic: pi(obs) must give actions alone")
            check_shape("pi(obs)", a, (3, *self.act_shape), BATCH)
        else:
            out = ac.pi(obs, jax.random.key(0), False)
            if not isinstance(out, tuple):
                raise UserError("actor_critic: pi(obs, key) must give actions and their log-probabilities")
            check_shape("pi(obs, key)[0]", out[0], (3, *self.act_shape), BATCH)
            check_shape("pi(obs, key)[1]", out[1], (3,), BATCH)

    def update_many(self, batches):
        return {name: values.ravel() for name, values in self.run(update_k_times, batches).items()}


def sync_params(ac):
    """The networks of process 0, on all processes."""
    if num_procs() == 1:
        return ac
    arrays, rest = eqx.partition(ac, eqx.is_array)
    flat, unravel = ravel_pytree(arrays)
    flat = np.array(flat)
    broadcast(flat)
    return eqx.combine(unravel(jnp.asarray(flat)), rest)


def _checked_device(name):
    try:
        platform, _, index = name.partition(":")
        return jax.devices(platform or "none")[int(index or 0)]
    except (AttributeError, RuntimeError, ValueError, IndexError) as error:
        raise UserError(f"device={name!r} cannot be used here ({one_line(error)}): use 'cpu'") from None


# -- Saved models ---------------------------------------------------------------------------------------------------


def named_parameters(module):
    """Name -> array of every parameter. Those of our own networks are called as they are in PyTorch."""
    leaves = jax.tree_util.tree_leaves_with_path(module)
    return {name_of(path): np.asarray(x) for path, x in leaves if eqx.is_array(x)}


def name_of(path):
    """`pi.mu_net.layers[1].weight` is `pi.mu_net.2.weight` in PyTorch, where activations are counted as well."""
    parts = [str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key)))) for key in path]
    name = [str(2 * int(part)) if before == "layers" else part for before, part in pairwise(["", *parts])]
    return ".".join(part for part in name if part != "layers")


def with_parameters(module, arrays):
    """The module with the parameters of these names: undoes `named_parameters`."""

    def replaced(path, x):
        return jnp.asarray(arrays[name_of(path)]).reshape(x.shape).astype(x.dtype) if eqx.is_array(x) else x

    return jax.tree_util.tree_map_with_path(replaced, module)


def describe_network(ac, ac_kwargs):
    """What it takes to build one of our own networks again; `network` is None for any other."""
    described, names = dict(ac_kwargs), {f: name for name, f in nets.ACTIVATIONS.items()}
    if type(ac) not in STANDARD or ac_kwargs.get("activation") not in {*names, None}:
        return dict(network=None)
    if "activation" in described:
        described["activation"] = names[described["activation"]]
    if "hidden_sizes" in described:
        described["hidden_sizes"] = [int(size) for size in described["hidden_sizes"]]
    return dict(network=type(ac).__name__, ac_kwargs=described)


def load_policy(directory, itr=None, actor_critic=None, ac_kwargs=dict()):
    """The policy in the output directory of a run: sample(obs, rng) and mode(obs), on batches of observations.

    The file is data, not a program: to use it with a network of your own, give its class as `actor_critic`.
    """
    path = os.path.join(directory, "jax_save", f"model{'' if itr is None else itr}.safetensors")
    arrays, description = read_model(path)
    if actor_critic is None:
        if description["network"] is None:
            raise UserError(f"{path} holds a network of your own: give its class, load_policy(..., actor_critic=...)")
        actor_critic = {cls.__name__: cls for cls in STANDARD}[description["network"]]
        ac_kwargs = description["ac_kwargs"]
        if "activation" in ac_kwargs:
            ac_kwargs["activation"] = nets.ACTIVATIONS[ac_kwargs["activation"]]
    spaces = (space_from(description[name]) for name in ("observation_space", "action_space"))
    ac = with_parameters(build_actor_critic(actor_critic, *spaces, ac_kwargs, key=jax.random.key(0)), arrays)
    normalizer = None
    if "normalizer.mean" in arrays:
        normalizer = acting.Normalizer(arrays["normalizer.mean"], arrays["normalizer.std"], CLIP)
    act = {f.__name__: f for f in (act_on_policy, act_deterministic, act_squashed)}[description["act"]]
    return numpy_policy(ac, normalizer) or NetworkPolicy(act, ac, normalizer)


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
