"""What is JAX's alone: contracts of Equinox networks, saved models, what is compiled and how often."""

import json
import os
import subprocess
import sys

import backends
import numpy as np
import pytest
from gymnasium import spaces
from helpers import (
    ALGOS,
    OFF_POLICY,
    ON_POLICY,
    Matrix,
    Scripted,
    Walk,
    column,
    core,
    refused,
    saved_model,
    train,
)

jax = pytest.importorskip("jax")

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from spinup.algos.jax import learn, nets  # noqa: E402
from spinup.training.errors import UserError  # noqa: E402
from spinup.training.models import read_model  # noqa: E402

each_algorithm = pytest.mark.parametrize("algo", ALGOS)
each_algorithm_slowly = pytest.mark.parametrize(
    "algo", [pytest.param(algo, marks=() if algo in ("ppo", "sac") else pytest.mark.slow) for algo in ALGOS]
)
each_on_policy = pytest.mark.parametrize("algo", ON_POLICY)
each_off_policy = pytest.mark.parametrize("algo", OFF_POLICY)

# -- Networks --------------------------------------------------------------------------------------------------------

OBS, ACT = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))
KEY = jax.random.key(0)


@each_on_policy
@pytest.mark.parametrize(
    "space, shape", [(ACT, (1,)), (spaces.Discrete(4), ()), (spaces.MultiDiscrete([2, 3]), (2,))], ids=str
)
@pytest.mark.parametrize("batch", [(), (5,)], ids=["single", "batch"])
def test_on_policy_networks(algo, space, shape, batch):
    ac, obs = core("jax", algo).MLPActorCritic(OBS, space), np.zeros((*batch, 3), np.float32)
    a, v, logp = ac.step(obs, KEY)
    assert (a.shape, v.shape, logp.shape) == ((*batch, *shape), batch, batch)
    assert all(isinstance(x, np.ndarray) and x.flags.writeable for x in (a, v, logp, ac.act(obs, KEY)))
    pi, none = ac.pi(obs)
    assert none is None and pi.sample(KEY).shape == pi.mode().shape == (*batch, *shape)
    assert pi.entropy().shape == pi.kl(pi).shape == ac.pi(obs, a)[1].shape == ac.v(obs).shape == batch
    np.testing.assert_allclose(ac.pi(obs, a)[1], logp, rtol=1e-6)


@each_off_policy
@pytest.mark.parametrize("batch", [(), (5,)], ids=["single", "batch"])
def test_off_policy_networks(algo, batch):
    ac, obs = core("jax", algo).MLPActorCritic(OBS, spaces.Box(-1, 1, (2,))), np.zeros((*batch, 3), np.float32)
    for q in ("q",) if algo == "ddpg" else ("q1", "q2"):
        assert getattr(ac, q)(obs, jnp.zeros((*batch, 2))).shape == batch
    a = ac.act(obs, KEY) if algo == "sac" else ac.act(obs)
    assert a.shape == (*batch, 2) and isinstance(a, np.ndarray) and a.flags.writeable
    if algo == "sac":
        a, logp = ac.pi(obs, KEY)
        assert a.shape == (*batch, 2) and logp.shape == batch
        assert ac.pi(obs, deterministic=True, with_logprob=False)[1] is None
        assert (ac.act(obs, deterministic=True) == ac.act(obs, KEY, True)).all()
        assert (ac.act(obs, KEY) != ac.act(obs, jax.random.key(1))).any()


def test_networks_made_without_a_key_follow_numpys_seed():
    def made(seed):
        np.random.seed(seed)
        return learn.named_parameters(nets.SACActorCritic(OBS, ACT, (4,)))

    first, again, other = made(1), made(1), made(2)
    assert all((first[name] == again[name]).all() and (first[name] != other[name]).any() for name in first)


def test_initial_weights_are_distributed_as_in_pytorch():
    """Uniform within +-1/sqrt(inputs)."""
    layer = nets.Linear(400, 300, key=KEY)
    for x in (layer.weight, layer.bias):
        assert abs(x).max() <= 1 / 20 and abs(x).max() > 0.049 and abs(x.mean()) < 0.01
        assert np.std(x) == pytest.approx(1 / 20 / np.sqrt(3), rel=0.1)


# -- Agreement of the compiled update with PyTorch -------------------------------------------------------------------

BATCH, ACTIONS = 16, spaces.Box(np.float32([-1, 0]), np.float32([1, 3]))


def three_batches(subject):
    rng, result = np.random.default_rng(0), []
    for _ in range(3):
        data = dict(obs=rng.standard_normal((BATCH, 3)), act=rng.uniform([-1, 0], [1, 3], (BATCH, 2)))
        if hasattr(subject.ac, "v"):
            _, logp = subject.agent.value_and_logp(*map(backends.float32, data.values()))
            data |= dict(adv=rng.standard_normal(BATCH), ret=rng.standard_normal(BATCH), logp=logp)
        else:
            data |= dict(rew=rng.standard_normal(BATCH), obs2=rng.standard_normal((BATCH, 3)))
            data["done"] = rng.integers(2, size=BATCH)
        result.append(data)
    return result


@pytest.mark.parametrize(
    "algo, changes", [*((algo, {}) for algo in ALGOS), ("trpo", dict(algo="npg")), ("sac", dict(alpha="auto"))]
)
def test_compiled_updates_agree_with_pytorch(algo, changes):
    """Same parameters, batches and noise: the same columns and next parameters to 1e-5."""
    changes = changes | dict(ac_kwargs=dict(hidden_sizes=(8, 5)))
    if algo == "trpo":
        changes["cg_iters"] = 60  # so that conjugate gradients converge: halfway there, rounding errors count more
    ours, theirs = (backends.get(name).make(algo, OBS, ACTIONS, **changes) for name in ("jax", "pytorch"))
    start = ours.params()
    theirs.load(start)
    if algo in OFF_POLICY:
        theirs.load_targets(start)
    noise = ours.own_noise((BATCH, 2), 3, dict(td3=1, sac=2)[algo]) if algo in ("td3", "sac") else []
    batches = three_batches(ours)
    columns, expected = ours.update(batches), theirs.update(batches, noise)
    assert columns.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(columns[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
    params, expected = ours.params(), theirs.params()
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
        assert (params[name] != start[name]).any()
    theirs.close()


# -- A user's own networks -------------------------------------------------------------------------------------------


class OwnPart(eqx.Module):
    """One of Equinox's own layers, for one input at a time, on the observation and on the action if there is one."""

    layer: eqx.nn.Linear

    def __init__(self, inputs, outputs, key):
        self.layer = eqx.nn.Linear(inputs, outputs, key=key)

    def out(self, obs, *act):
        assert obs.shape[1:] == (1, 2)
        return jax.vmap(self.layer)(jnp.concatenate([obs[:, 0], *act], -1))


class OwnPolicy(OwnPart):
    def __call__(self, obs, act=None):
        pi = nets.Normal(self.out(obs), jnp.full(1, -0.5))
        return pi, None if act is None else pi.log_prob(act)


class OwnDeterministic(OwnPart):
    def __call__(self, obs):
        return jnp.tanh(self.out(obs))


class OwnSquashed(OwnPart):
    def __call__(self, obs, key, deterministic=False):
        mu = self.out(obs)
        u = mu if deterministic else mu + 0.5 * jax.random.normal(key, mu.shape)
        return jnp.tanh(u), -(2 * (u - mu) ** 2).sum(-1)


class OwnScalar(OwnPart):
    def __call__(self, obs, *act):
        return self.out(obs, *act)[:, 0]


class OwnOnPolicy(eqx.Module):
    pi: OwnPolicy
    v: OwnScalar

    def __init__(self, observation_space, action_space, *, key):
        self.pi, self.v = OwnPolicy(2, 1, key), OwnScalar(2, 1, key)


class OwnDDPG(eqx.Module):
    pi: OwnDeterministic
    q: OwnScalar

    def __init__(self, observation_space, action_space, *, key):
        self.pi, self.q = OwnDeterministic(2, 1, key), OwnScalar(3, 1, key)


class OwnTD3(eqx.Module):
    pi: OwnDeterministic
    q1: OwnScalar
    q2: OwnScalar

    def __init__(self, observation_space, action_space, *, key):
        self.pi, self.q1, self.q2 = OwnDeterministic(2, 1, key), OwnScalar(3, 1, key), OwnScalar(3, 1, key)


class OwnSAC(OwnTD3):
    pi: OwnSquashed

    def __init__(self, observation_space, action_space, *, key):
        super().__init__(observation_space, action_space, key=key)
        self.pi = OwnSquashed(2, 1, key)


OWN = {**dict.fromkeys(ON_POLICY, OwnOnPolicy), "ddpg": OwnDDPG, "td3": OwnTD3, "sac": OwnSAC}


@each_algorithm_slowly
@pytest.mark.parametrize("num_envs", [1, 4])
def test_a_users_network_learns_and_is_saved(algo, num_envs, tmp_path):
    with backends.JAX.recorded() as runs:
        changes = dict(actor_critic=OWN[algo], ac_kwargs={}, num_envs=num_envs)
        directory = train("jax", algo, Matrix, tmp_path / "run", **changes)
    untrained = learn.named_parameters(OWN[algo](None, None, key=KEY))
    trained, saved = runs[0].params(), saved_model("jax", directory)
    assert trained.keys() == saved.arrays.keys() == untrained.keys()
    assert saved.description["network"] is None
    assert all((trained[name] != x).all() for name, x in untrained.items())

    with pytest.raises(UserError, match="network of your own: give its class"):
        learn.load_policy(directory)
    policy, obs = learn.load_policy(directory, actor_critic=OWN[algo]), np.ones((7, 1, 2), np.float32)
    assert (policy.mode(obs) == runs[0].agent.policy.mode(obs)).all()
    a = policy.sample(obs, np.random.default_rng(0))
    assert a.shape == (7, 1) and (algo in ("ddpg", "td3") or len(np.unique(a)) == 7)


def test_a_network_that_takes_no_key_is_told_so(tmp_path):
    class Keyless(eqx.Module):
        def __init__(self, observation_space, action_space, size=3):
            pass

    run = lambda: train("jax", "ppo", Walk, tmp_path / "run", actor_critic=Keyless, ac_kwargs=dict(size=2))  # noqa: E731
    message = refused(run, tmp_path / "run", "ac_kwargs={'size': 2}", "Keyless", "'key'")
    assert "Array" not in message


@each_algorithm
def test_a_network_that_lacks_a_part_is_refused(algo, tmp_path):
    missing = {"ddpg": "q", "td3": "q2", "sac": "q2"}.get(algo, "v")

    class Incomplete(eqx.Module):
        pi: eqx.Module
        q1: eqx.Module

        def __init__(self, observation_space, action_space, *, key, **kwargs):
            ac = nets.TD3ActorCritic(observation_space, action_space, (4,), key=key)
            self.pi, self.q1 = ac.pi, ac.q1

    run = lambda: train("jax", algo, Walk, tmp_path / "run", actor_critic=Incomplete)  # noqa: E731
    refused(run, tmp_path / "run", "actor_critic", f"`{missing}`")


def test_a_users_class_based_on_ours_is_used_as_it_is(tmp_path):
    """The shortcut for networks of ours must not bypass what the user has changed."""

    class Still(nets.MLPGaussianActor):
        def _distribution(self, obs):
            return nets.Normal(jnp.full((*obs.shape[:-1], 1), 0.25), jnp.full(1, -40.0))

    class Own(nets.MLPActorCritic):
        def __init__(self, observation_space, action_space, *, key, **kwargs):
            super().__init__(observation_space, action_space, (4,), key=key)
            self.pi = Still(2, 1, (4,), jnp.tanh, key=key)

    env = Scripted((7, "terminated"))
    train("jax", "vpg", lambda: env, tmp_path / "run", actor_critic=Own)
    assert set(np.ravel(env.actions)) == {0.25}


# -- Saved models ----------------------------------------------------------------------------------------------------


@each_algorithm_slowly
def test_files_of_a_run(algo, tmp_path):
    directory = train("jax", algo, Walk, tmp_path / "run")
    assert {path.name for path in directory.iterdir()} == {"config.json", "progress.txt", "vars.pkl", "jax_save"}
    assert [path.name for path in (directory / "jax_save").iterdir()] == ["model.safetensors"]


SPACES = [spaces.Box(np.float32([-1, 0]), np.float32([1, 3])), spaces.Discrete(3), spaces.MultiDiscrete([2, 3])]


@pytest.mark.parametrize(
    "algo, space",
    [
        pytest.param(algo, space, marks=() if algo in ("ppo", "sac") else pytest.mark.slow)
        for algo in ALGOS
        for space in SPACES
        if algo in ON_POLICY or space is SPACES[0]
    ],
)
def test_a_saved_model_acts_as_the_trained_network(algo, space, tmp_path):
    changes = dict(normalize_obs=True) if algo in ON_POLICY else {}
    ac_kwargs = dict(hidden_sizes=[6, 5], activation=jax.nn.silu)
    with backends.JAX.recorded() as runs:
        directory = train(
            "jax", algo, lambda: Scripted(action_space=space), tmp_path / "run", ac_kwargs=ac_kwargs, **changes
        )
    trained, loaded, obs = runs[0].agent.policy, learn.load_policy(directory), np.float32([[1, 2], [-3, 40]])
    assert type(loaded) is type(trained)
    assert (loaded.mode(obs) == trained.mode(obs)).all()
    sample, expected = (policy.sample(obs, np.random.default_rng(0)) for policy in (loaded, trained))
    assert (sample == expected).all()


@pytest.mark.parametrize("activation", [None, *nets.ACTIVATIONS])
def test_activations_are_described_by_name(activation):
    kwargs = {} if activation is None else dict(activation=nets.ACTIVATIONS[activation])
    ac = nets.MLPActorCritic(OBS, ACT, key=KEY, **kwargs)
    described = learn.describe_network(ac, kwargs)
    assert described["network"] == "MLPActorCritic" and json.dumps(described)
    assert described["ac_kwargs"].get("activation") == activation


@pytest.mark.parametrize("activation", nets.ACTIVATIONS)
def test_activations_are_those_of_pytorch(activation):
    import torch

    from spinup.algos.pytorch import nets as pytorch_nets

    x = np.linspace(-4, 4, 41, dtype=np.float32)
    expected = pytorch_nets.ACTIVATIONS[activation]()(torch.as_tensor(x))
    np.testing.assert_allclose(nets.ACTIVATIONS[activation](x), expected, atol=1e-5)


def test_an_activation_without_a_name_makes_the_network_a_users_own(tmp_path):
    directory = train("jax", "ppo", Walk, tmp_path / "run", ac_kwargs=dict(hidden_sizes=(4,), activation=jnp.sin))
    assert saved_model("jax", directory).description["network"] is None
    ac_kwargs = dict(hidden_sizes=(4,), activation=jnp.sin)
    policy = learn.load_policy(directory, actor_critic=nets.MLPActorCritic, ac_kwargs=ac_kwargs)
    assert policy.mode(np.zeros((2, 2), np.float32)).shape == (2, 1)


@pytest.mark.parametrize(
    "content", [b"", b"\x08\0\0\0\0\0\0\0{}      ", b"cos\nsystem\n(S'echo no'\ntR.", b"\xff" * 100]
)
def test_files_that_are_no_models_are_refused(content, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors is not a model of spinup"):
        read_model(path)


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(UserError, match="jax_save"):
        learn.load_policy(tmp_path)


@each_on_policy
def test_statistics_of_observations_are_part_of_the_saved_model(algo, tmp_path):
    """One episode of 80 steps: the second number of its observations counts the steps."""
    directory = train("jax", algo, Scripted, tmp_path / "run", normalize_obs=True, max_ep_len=1000)
    arrays = saved_model("jax", directory).arrays
    assert arrays["normalizer.mean"].tolist() == pytest.approx([0, 39.5], rel=1e-5)
    assert arrays["normalizer.std"][1] == pytest.approx(np.sqrt((80**2 - 1) / 12), rel=1e-5)


# -- Compiled code ---------------------------------------------------------------------------------------------------


@pytest.fixture
def compilations():
    """How often something was compiled so far, as a list that grows."""
    seen = []
    listener = lambda event, duration, **_: seen.append(event) if "backend_compile" in event else None  # noqa: E731
    jax.clear_caches()  # of earlier tests
    jax.monitoring.register_event_duration_secs_listener(listener)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listener)


@each_algorithm_slowly
@pytest.mark.parametrize("network", ["standard", "own"])
def test_nothing_is_compiled_after_the_first_epoch(algo, network, compilations, tmp_path):
    """Episodes of many lengths, and blocks of updates with a last partial one: 70 = 50 + 20."""
    counts = []

    class Counting(Matrix if network == "own" else Walk):
        def step(self, action):
            counts.append(len(compilations))
            return super().step(action)

    steps = 40 if algo in ON_POLICY else 140
    changes = dict(steps_per_epoch=steps, epochs=4)
    if algo in OFF_POLICY:
        changes |= dict(update_every=70, start_steps=20, update_after=20, num_test_episodes=0)
    if network == "own":
        changes |= dict(actor_critic=OWN[algo], ac_kwargs={})
    before = len(compilations)
    train("jax", algo, Counting, tmp_path / "run", seed=3, **changes)
    assert len(counts) == 4 * steps and counts[steps - 1] > before, "the first epoch has to compile something"
    assert len(compilations) == counts[steps + 1] == counts[-1]


def test_a_second_run_uses_what_was_compiled_for_the_first(compilations, tmp_path):
    train("jax", "sac", Walk, tmp_path / "first", seed=1)
    before = len(compilations)
    train("jax", "sac", Walk, tmp_path / "second", seed=2)
    assert len(compilations) == before


@pytest.mark.parametrize("algo", ["VPG", "SAC"])
def test_compiler_options_of_the_user_come_first(algo, monkeypatch):
    wanted = learn.COMPILER_OPTIONS[algo]
    assert learn.compiler_options(wanted) == wanted
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=256")
    assert wanted.keys() - learn.compiler_options(wanted).keys() == {"xla_cpu_prefer_vector_width"}


def test_compiler_options_that_xla_does_not_know_are_left_out():
    assert learn.compiler_options({"xla_cpu_make_it_fast": True}) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are looked up in /proc")
@pytest.mark.parametrize("variables, threads, found", [({}, 1, 1), ({}, 3, 3), ({"NPROC": "2"}, 3, 2)])
def test_a_run_has_as_many_threads_as_it_was_given(variables, threads, found):
    """Unless the user has said so in the environment, which stays as it was."""
    code = f"""if True:
        import os
        from pathlib import Path
        from spinup.algos.jax.learn import start_xla
        before = dict(os.environ)
        start_xla({threads})
        names = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
        print(sum("XLAEigen" in name for name in names), dict(os.environ) == before)
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | variables)
    assert run.stdout == f"{found} True\n"


def test_importing_sets_no_flags_and_starts_no_backend():
    code = """if True:
        import os
        before = dict(os.environ)
        import jax
        config = dict(jax.config.values)
        import spinup
        for algo in ("vpg", "trpo", "ppo", "ddpg", "td3", "sac"):
            getattr(spinup, algo + "_jax")
        from jax._src import xla_bridge
        print(dict(os.environ) == before, dict(jax.config.values) == config, xla_bridge.backends_are_initialized())
    """
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True True False\n"


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_memory_does_not_grow(algo, tmp_path):
    """Over 200 epochs. The first ones do not count: code is compiled, buffers are made."""
    import psutil

    memory = []

    class Measured(Walk):
        def step(self, action):
            memory.append(psutil.Process().memory_info().rss)
            return super().step(action)

    changes = dict(epochs=220, steps_per_epoch=40, save_freq=20)
    if algo == "sac":
        changes |= dict(num_test_episodes=0)
    train("jax", algo, Measured, tmp_path / "run", **changes)
    assert len(memory) == 220 * 40
    assert np.median(memory[-400:]) - np.median(memory[800:1200]) < 4 * 2**20


def test_a_policy_delay_of_five(tmp_path):
    """LossPi is reported by the updates that had a policy step, and no others: NaN where there was none."""
    changes = dict(policy_delay=50, update_every=4, epochs=2, steps_per_epoch=20, start_steps=4, update_after=4)
    directory = train("jax", "td3", Walk, tmp_path / "run", **changes)
    assert np.isnan(column(directory, "LossPi")).tolist() == [False, True]


def test_the_state_of_a_page_is_pure():
    """An update gives a new state and leaves the old one as it was."""
    subject = backends.JAX.make("sac", OBS, ACTIONS, ac_kwargs=dict(hidden_sizes=(4,)))
    before, arrays = subject.params(), subject.agent.arrays
    subject.update(three_batches(subject))
    copies = [np.asarray(x) for x in arrays if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    assert all(np.isfinite(x).all() for x in copies)
    assert all(
        (learn.named_parameters(subject.agent.structure.join(arrays).ac)[k] == x).all() for k, x in before.items()
    )
