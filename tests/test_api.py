"""What programs written for the original rely on: names, signatures, columns, files, contracts of networks."""

import importlib
import inspect
import json
import subprocess
import sys
from collections import Counter

import backends
import numpy as np
import pytest
from gymnasium import spaces
from helpers import (
    ALGOS,
    BACKENDS,
    OFF_POLICY,
    ON_POLICY,
    Matrix,
    Scripted,
    Walk,
    column,
    core,
    each,
    each_algorithm,
    each_in_pytorch,
    each_on_policy,
    function,
    header,
    importable,
    page,
    parameters,
    saved_model,
    short,
    train,
)

import spinup

torch = pytest.importorskip("torch")
nn = torch.nn

REQUIRED = inspect.Parameter.empty
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_on_policy_in_pytorch = each(*ON_POLICY, backends=["pytorch"])  # tests/test_jax.py has the twins for JAX
each_off_policy_in_pytorch = each(*OFF_POLICY, backends=["pytorch"])

# -- Signatures of the public functions ------------------------------------------------------------------------------

AC = "MLPActorCritic of core"
SIGNATURES = {
    "vpg": dict(
        env_fn=REQUIRED, actor_critic=AC, ac_kwargs=dict(), seed=0, steps_per_epoch=4000, epochs=50, gamma=0.99,
        pi_lr=3e-4, vf_lr=1e-3, train_v_iters=80, lam=0.97, max_ep_len=1000, logger_kwargs=dict(), save_freq=10,
    ),
    "ppo": dict(
        env_fn=REQUIRED, actor_critic=AC, ac_kwargs=dict(), seed=0, steps_per_epoch=4000, epochs=50, gamma=0.99,
        clip_ratio=0.2, pi_lr=3e-4, vf_lr=1e-3, train_pi_iters=80, train_v_iters=80, lam=0.97, max_ep_len=1000,
        target_kl=0.01, logger_kwargs=dict(), save_freq=10,
    ),
    "trpo": dict(
        env_fn=REQUIRED, actor_critic=AC, ac_kwargs=dict(), seed=0, steps_per_epoch=4000, epochs=50, gamma=0.99,
        delta=0.01, vf_lr=1e-3, train_v_iters=80, damping_coeff=0.1, cg_iters=10, backtrack_iters=10,
        backtrack_coeff=0.8, lam=0.97, max_ep_len=1000, logger_kwargs=dict(), save_freq=10, algo="trpo",
    ),
    "ddpg": dict(
        env_fn=REQUIRED, actor_critic=AC, ac_kwargs=dict(), seed=0, steps_per_epoch=4000, epochs=100,
        replay_size=int(1e6), gamma=0.99, polyak=0.995, pi_lr=1e-3, q_lr=1e-3, batch_size=100, start_steps=10000,
        update_after=1000, update_every=50, act_noise=0.1, num_test_episodes=10, max_ep_len=1000,
        logger_kwargs=dict(), save_freq=1,
    ),
    "td3": dict(
        env_fn=REQUIRED, actor_critic=AC, ac_kwargs=dict(), seed=0, steps_per_epoch=4000, epochs=100,
        replay_size=int(1e6), gamma=0.99, polyak=0.995, pi_lr=1e-3, q_lr=1e-3, batch_size=100, start_steps=10000,
        update_after=1000, update_every=50, act_noise=0.1, target_noise=0.2, noise_clip=0.5, policy_delay=2,
        num_test_episodes=10, max_ep_len=1000, logger_kwargs=dict(), save_freq=1,
    ),
    "sac": dict(
        env_fn=REQUIRED, actor_critic=AC, ac_kwargs=dict(), seed=0, steps_per_epoch=4000, epochs=100,
        replay_size=int(1e6), gamma=0.99, polyak=0.995, lr=1e-3, alpha=0.2, batch_size=100, start_steps=10000,
        update_after=1000, update_every=50, num_test_episodes=10, max_ep_len=1000, logger_kwargs=dict(), save_freq=1,
    ),
}  # fmt: skip
OURS = dict(num_envs=1, device="cpu", threads=None)


def parameters_of(f):
    return inspect.signature(f).parameters.values()


@each_algorithm
def test_positional_arguments_are_frozen(backend, algo):
    positional = [p for p in parameters_of(function(backend, algo)) if p.kind is p.POSITIONAL_OR_KEYWORD]
    expected = SIGNATURES[algo] | dict(actor_critic=core(backend, algo).MLPActorCritic)
    assert [(p.name, p.default) for p in positional] == list(expected.items())
    assert [type(p.default) for p in positional] == [type(default) for default in expected.values()]


@each_algorithm
def test_our_arguments_come_after_and_by_keyword_only(backend, algo):
    ours = {p.name: p.default for p in parameters_of(function(backend, algo)) if p.kind is p.KEYWORD_ONLY}
    expected = OURS | (dict(normalize_obs=False) if algo in ON_POLICY else {})
    missing = expected.keys() - ours.keys()
    assert not missing and {name: ours[name] for name in expected} == expected
    kinds = {p.kind for p in parameters_of(function(backend, algo))}
    assert len(kinds) == 2  # no *args, no **kwargs: a misspelt argument is an error


@each_algorithm
def test_docstrings_explain_every_argument(backend, algo):
    f = function(backend, algo)
    text, _, arguments = f.__doc__.partition("\nArgs:\n")
    assert len(text.strip().splitlines()[0]) > 20
    explained = {
        line.strip().partition(": ")[0]: line
        for line in arguments.splitlines()
        if line[:4].isspace() and line[4] != " "
    }
    assert list(explained) == [p.name for p in parameters_of(f)]
    assert all(len(line) > len(name) + 20 for name, line in explained.items())


@each_algorithm
def test_functions_return_none_and_leave_the_threads_as_they_were(backend, algo, tmp_path):
    before = torch.get_num_threads()
    result = function(backend, algo)(
        Walk, **short(algo, threads=before + 1, logger_kwargs=dict(output_dir=tmp_path / "run", quiet=True))
    )
    assert result is None and torch.get_num_threads() == before


@each_algorithm
def test_arguments_can_be_given_by_position(backend, algo, tmp_path):
    """The first seven mean the same in VPG, TRPO and PPO, the first six in the others."""
    ac = core(backend, algo).MLPActorCritic
    arguments = short(algo, logger_kwargs=dict(output_dir=str(tmp_path / "run"), quiet=True))
    for name in ("ac_kwargs", "steps_per_epoch", "epochs"):
        del arguments[name]
    function(backend, algo)(Walk, ac, dict(hidden_sizes=(4,)), 5, 20, 3, **arguments)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["seed"], config["steps_per_epoch"], config["epochs"]) == (5, 20, 3)
    assert column(tmp_path / "run", "TotalEnvInteracts") == [20, 40, 60]


# -- Names -----------------------------------------------------------------------------------------------------------


@each_algorithm
def test_names_at_the_top(backend, algo):
    named = getattr(spinup, f"{algo}_{backend}")
    assert named is getattr(page(backend, algo), algo) and named.__name__ == algo
    assert f"{algo}_{backend}" in spinup.__all__ and f"{algo}_{backend}" in dir(spinup)


def test_old_names_mean_the_default_back_end():
    from spinup.user_config import DEFAULT_BACKEND

    for algo in ALGOS:
        assert getattr(spinup, algo) is function(DEFAULT_BACKEND[algo], algo)


def test_loggers_and_version_are_at_the_top():
    from spinup.utils import logx

    assert spinup.Logger is logx.Logger and spinup.EpochLogger is logx.EpochLogger
    assert isinstance(spinup.__version__, str)


@pytest.mark.parametrize("name", ["nonsense", "ppo_nonsense", "nonsense_pytorch", "ppo_"])
def test_names_that_do_not_exist(name):
    with pytest.raises(AttributeError, match=f"module 'spinup' has no attribute '{name}'"):
        getattr(spinup, name)


HELPERS = ["combined_shape", "mlp", "count_vars", "MLPActorCritic"]
ON_POLICY_CORE = [
    *(*HELPERS, "discount_cumsum", "Actor", "MLPCategoricalActor", "MLPGaussianActor", "MLPCritic"),
    *("Box", "Discrete", "Normal", "Categorical"),
]
CORE = {
    **dict.fromkeys(ON_POLICY, ON_POLICY_CORE),
    **{algo: [*HELPERS, "MLPActor", "MLPQFunction"] for algo in ("ddpg", "td3")},
    "sac": [*HELPERS, "LOG_STD_MAX", "LOG_STD_MIN", "SquashedGaussianMLPActor", "MLPQFunction"],
}
IMPORTS = {"pytorch": ["np", "torch", "nn"], "jax": ["np", "jax", "jnp", "eqx"]}
PAGES = {
    "vpg": ["vpg", "VPGBuffer"],
    "ppo": ["ppo", "PPOBuffer"],
    "trpo": ["trpo", "GAEBuffer"],
    **{algo: [algo, "ReplayBuffer"] for algo in OFF_POLICY},
}


@each_algorithm
def test_names_of_core_and_of_the_page(backend, algo):
    """By attribute and with `import *`."""
    names_of_core = CORE[algo] + IMPORTS[backend] + (["F"] if (backend, algo) == ("pytorch", "sac") else [])
    for module, names in ((core(backend, algo), names_of_core), (page(backend, algo), [*PAGES[algo], "core"])):
        starred = {}
        exec(f"from {module.__name__} import *", starred)
        for name in names:
            assert starred[name] is getattr(module, name)


NETWORK = dict(observation_space=REQUIRED, action_space=REQUIRED)
GAUSSIAN = dict(obs_dim=REQUIRED, act_dim=REQUIRED, hidden_sizes=REQUIRED, activation=REQUIRED)
CONSTRUCTORS = {
    "mlp": dict(sizes=REQUIRED, activation=REQUIRED, output_activation="identity"),
    "combined_shape": dict(length=REQUIRED, shape=None),
    "discount_cumsum": dict(x=REQUIRED, discount=REQUIRED),
    "count_vars": dict(module=REQUIRED),
    "MLPCategoricalActor": GAUSSIAN,
    "MLPGaussianActor": GAUSSIAN,
    "MLPCritic": dict(obs_dim=REQUIRED, hidden_sizes=REQUIRED, activation=REQUIRED),
    "MLPActor": GAUSSIAN | dict(act_limit=REQUIRED),
    "SquashedGaussianMLPActor": GAUSSIAN | dict(act_limit=REQUIRED),
    "MLPQFunction": GAUSSIAN,
    "VPGBuffer": dict(obs_dim=REQUIRED, act_dim=REQUIRED, size=REQUIRED, gamma=0.99, lam=0.95),
    "PPOBuffer": dict(obs_dim=REQUIRED, act_dim=REQUIRED, size=REQUIRED, gamma=0.99, lam=0.95),
    "GAEBuffer": dict(obs_dim=REQUIRED, act_dim=REQUIRED, size=REQUIRED, info_shapes=None, gamma=0.99, lam=0.95),
    "ReplayBuffer": dict(obs_dim=REQUIRED, act_dim=REQUIRED, size=REQUIRED),
}


@each_algorithm
def test_signatures_of_networks_and_buffers(backend, algo):
    """As in the original; more arguments may follow if they have defaults. In JAX, also the random key."""
    hidden = dict(hidden_sizes=(64, 64), activation="tanh") if algo in ON_POLICY else {}
    hidden = hidden or dict(hidden_sizes=(256, 256), activation="relu")
    expected = CONSTRUCTORS | dict(MLPActorCritic=NETWORK | hidden)
    activation = backends.get(backend).activation
    for module, names in ((core(backend, algo), CORE[algo]), (page(backend, algo), PAGES[algo])):
        for name in expected.keys() & set(names):
            found = [(p.name, p.default) for p in parameters_of(getattr(module, name))]
            wanted = [(key, activation(x) if isinstance(x, str) else x) for key, x in expected[name].items()]
            assert found[: len(wanted)] == wanted, name
            others = {key: default for key, default in found[len(wanted) :] if (backend, key) != ("jax", "key")}
            assert REQUIRED not in others.values(), name


@each_backend
def test_log_std_limits(backend):
    assert (core(backend, "sac").LOG_STD_MIN, core(backend, "sac").LOG_STD_MAX) == (-20, 2)


# -- Networks --------------------------------------------------------------------------------------------------------

OBS, ACT = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (1,))


def make_network(backend, algo, action_space=ACT, **ac_kwargs):
    return core(backend, algo).MLPActorCritic(OBS, action_space, **ac_kwargs)


def linear(name, *indices):
    return {f"{name}.{i}.{part}" for i in indices for part in ("weight", "bias")}


def heads(*names):
    return {f"{name}.{part}" for name in names for part in ("weight", "bias")}


V = linear("v.v_net", 0, 2, 4)
STATE_DICTS = {
    **dict.fromkeys(ON_POLICY, {"pi.log_std"} | linear("pi.mu_net", 0, 2, 4) | V),
    "ddpg": linear("pi.pi", 0, 2, 4) | linear("q.q", 0, 2, 4),
    "td3": linear("pi.pi", 0, 2, 4) | linear("q1.q", 0, 2, 4) | linear("q2.q", 0, 2, 4),
    "sac": linear("pi.net", 0, 2)
    | heads("pi.mu_layer", "pi.log_std_layer")
    | linear("q1.q", 0, 2, 4)
    | linear("q2.q", 0, 2, 4),
}


@each_algorithm
def test_names_of_parameters(backend, algo):
    """State dicts of the original fit without exceptions, and ours into its networks."""
    assert set(parameters(backend, make_network(backend, algo))) == STATE_DICTS[algo]


@each_on_policy
def test_names_of_parameters_of_a_discrete_policy(backend, algo):
    names = set(parameters(backend, make_network(backend, algo, spaces.Discrete(2))))
    assert names == linear("pi.logits_net", 0, 2, 4) | V


# By hand, for 3 observations and 1 action: two layers of 64 have 3*64+64 + 64*64+64 = 4416, of 256 they have 66816.
COUNTS = {
    **{algo: dict(pi=4482, v=4481) for algo in ON_POLICY},  # 4416 + 65, and one log_std
    "ddpg": dict(pi=67073, q=67329),  # 66816 + 257; the critic has one input more
    "td3": dict(pi=67073, q1=67329, q2=67329),
    "sac": dict(pi=67330, q1=67329, q2=67329),  # two heads
}


@each_algorithm
def test_parameter_counts(backend, algo, tmp_path, capsys):
    ac = make_network(backend, algo)
    count_vars = core(backend, algo).count_vars
    assert {name: count_vars(getattr(ac, name)).item() for name in COUNTS[algo]} == COUNTS[algo]
    assert count_vars(ac) == sum(COUNTS[algo].values())
    assert count_vars(()).item() == 0 if backend == "jax" else count_vars(nn.Identity()).item() == 0


@each_algorithm
def test_parameter_counts_are_logged(backend, algo, tmp_path, capsys):
    train(backend, algo, Walk, tmp_path / "run", epochs=1)
    # 2 observations, 1 action, 8 hidden units: 24 + 9 for a value, and a log_std, 32 + 9 for Q, 24 + 2 * 9 for SAC's pi
    pi = {"sac": 42, "ddpg": 33, "td3": 33}.get(algo, 34)
    others = {"ddpg": "q: 41", "td3": "q1: 41, \tq2: 41", "sac": "q1: 41, \tq2: 41"}.get(algo, "v: 33")
    assert f"\nNumber of parameters: \tpi: {pi}, \t{others}\n" in capsys.readouterr().out


@each_on_policy_in_pytorch
@pytest.mark.parametrize(
    "space, shape", [(ACT, (1,)), (spaces.Discrete(4), ()), (spaces.MultiDiscrete([2, 3]), (2,))], ids=str
)
def test_on_policy_networks(backend, algo, space, shape):
    ac = make_network(backend, algo, space)
    for obs, batch in ((torch.zeros(3), ()), (torch.zeros(5, 3), (5,)), (np.zeros((5, 3)), (5,)), (np.zeros(3), ())):
        a, v, logp = ac.step(obs)
        assert (a.shape, v.shape, logp.shape) == ((*batch, *shape), batch, batch)
        assert all(isinstance(x, np.ndarray) for x in (v, logp, a, ac.act(obs)))
        assert ac.act(obs).shape == a.shape
    obs = torch.zeros(5, 3)
    pi, none = ac.pi(obs)
    assert none is None and pi.sample().shape == (5, *shape)
    _, logp = ac.pi(obs, torch.as_tensor(a[None].repeat(5, 0)))
    assert logp.shape == ac.v(obs).shape == (5,) and logp.requires_grad


@each_off_policy_in_pytorch
def test_off_policy_networks(backend, algo):
    ac = make_network(backend, algo, spaces.Box(-1, 1, (2,)))
    for obs, batch in ((torch.zeros(3), ()), (torch.zeros(5, 3), (5,)), (np.zeros((5, 3)), (5,)), (np.zeros(3), ())):
        a = ac.act(obs)
        assert isinstance(a, np.ndarray) and a.shape == (*batch, 2)
    obs = torch.zeros(5, 3)
    for q in COUNTS[algo].keys() - {"pi"}:
        assert getattr(ac, q)(obs, torch.zeros(5, 2)).shape == (5,)
    if algo == "sac":
        a, logp = ac.pi(obs)
        assert a.shape == (5, 2) and logp.shape == (5,) and a.requires_grad and logp.requires_grad
        assert ac.pi(obs, deterministic=True, with_logprob=False)[1] is None
        assert (ac.act(obs, True) == ac.act(obs, deterministic=True)).all()
        assert (ac.act(obs) != ac.act(obs)).any()
    else:
        assert ac.pi(obs).shape == (5, 2) and (ac.act(obs) == ac.act(obs)).all()


@each_in_pytorch
@pytest.mark.parametrize("batch", [(), (5,)], ids=["single", "batch"])
def test_actions_are_writable(backend, algo, batch):
    ac = make_network(backend, algo)
    a = ac.act(torch.zeros(*batch, 3))
    before = a.copy()
    a += 1
    assert (a == before + 1).all()


# -- Files -----------------------------------------------------------------------------------------------------------


def four(name):
    return [f"{statistic}{name}" for statistic in ("Average", "Std", "Max", "Min")]


START = ["Epoch", *four("EpRet"), "EpLen", *four("VVals"), "TotalEnvInteracts"]
DELTAS = ["LossPi", "LossV", "DeltaLossPi", "DeltaLossV"]
START_OFF = ["Epoch", *four("EpRet"), *four("TestEpRet"), "EpLen", "TestEpLen", "TotalEnvInteracts"]
LOSSES = ["LossPi", "LossQ"]
COLUMNS = [
    ("vpg", {}, [*START, *DELTAS, "Entropy", "KL", "Time"]),
    ("ppo", {}, [*START, *DELTAS, "Entropy", "KL", "ClipFrac", "StopIter", "Time"]),
    ("trpo", {}, [*START, *DELTAS, "KL", "BacktrackIters", "Time"]),
    ("trpo", dict(algo="npg"), [*START, *DELTAS, "KL", "Time"]),
    ("ddpg", {}, [*START_OFF, *four("QVals"), *LOSSES, "Time"]),
    ("td3", {}, [*START_OFF, *four("Q1Vals"), *four("Q2Vals"), *LOSSES, "Time"]),
    ("sac", {}, [*START_OFF, *four("Q1Vals"), *four("Q2Vals"), *four("LogPi"), *LOSSES, "Time"]),
    (
        "sac",
        dict(alpha="auto"),
        [*START_OFF, *four("Q1Vals"), *four("Q2Vals"), *four("LogPi"), *LOSSES, "Alpha", "Time"],
    ),
]


@each_backend
@pytest.mark.parametrize(
    "algo, changes, columns", COLUMNS, ids=["-".join([algo, *changes.values()]) for algo, changes, _ in COLUMNS]
)
def test_columns(backend, algo, changes, columns, tmp_path):
    directory = train(backend, algo, Walk, tmp_path / "run", **changes)
    assert header(directory) == columns
    assert column(directory, "Epoch") == ([0, 1] if algo in ON_POLICY else [1, 2])
    for name in columns:
        assert np.isfinite(column(directory, name)).all(), name


@each_algorithm
def test_A15_config_json_holds_the_arguments_and_no_logger(backend, algo, tmp_path):
    directory = train(backend, algo, Walk, tmp_path / "run", seed=7)
    text = (directory / "config.json").read_text()
    config = json.loads(text)
    assert config.keys() - {"exp_name"} == {p.name for p in parameters_of(function(backend, algo))}
    expected = short(algo, seed=7) | dict(env_fn="Walk", ac_kwargs=dict(hidden_sizes=[8]), num_envs=1, device="cpu")
    assert {name: config[name] for name in expected} == expected
    assert config["logger_kwargs"] == dict(output_dir=str(directory), quiet=True)
    assert "Logger" not in text and "0x" not in text


@each_algorithm
def test_A14_dicts_of_the_caller_stay_as_they_are(backend, algo, tmp_path):
    ac_kwargs = dict(hidden_sizes=[8])
    logger_kwargs = dict(output_dir=str(tmp_path / "run"), quiet=True)
    before = dict(ac_kwargs), dict(logger_kwargs)
    function(backend, algo)(Walk, **short(algo, ac_kwargs=ac_kwargs, logger_kwargs=logger_kwargs))
    assert (ac_kwargs, logger_kwargs) == before
    defaults = {p.name: p.default for p in parameters_of(function(backend, algo))}
    assert defaults["ac_kwargs"] == defaults["logger_kwargs"] == {}


@each_in_pytorch
def test_files_of_a_run(backend, algo, tmp_path):
    directory = train(backend, algo, Walk, tmp_path / "run")
    assert {"config.json", "progress.txt", "vars.pkl", "pyt_save"} <= {path.name for path in directory.iterdir()}
    model = saved_model(backend, directory)
    assert type(model) is core(backend, algo).MLPActorCritic
    assert model.act(torch.zeros(2)).shape == (1,)


@each_in_pytorch
def test_a_saved_model_acts_as_the_trained_network(backend, algo, tmp_path):
    networks = []

    def actor_critic(*args, **kwargs):
        networks.append(core(backend, algo).MLPActorCritic(*args, **kwargs))
        return networks[-1]

    directory = train(backend, algo, Walk, tmp_path / "run", actor_critic=actor_critic)
    obs, actions = torch.linspace(-1, 1, 10).reshape(5, 2), []
    for ac in (saved_model(backend, directory), networks[0]):
        torch.manual_seed(0)
        actions.append(ac.act(obs))
    assert (actions[0] == actions[1]).all()


# -- A user's own networks -------------------------------------------------------------------------------------------


def features(obs, dims):
    return obs.flatten(obs.dim() - dims)


class OwnPart(nn.Module):
    """One linear layer on the observation, and on the action if there is one."""

    def __init__(self, obs_shape, inputs, outputs):
        super().__init__()
        self.dims, self.layer = len(obs_shape), nn.Linear(inputs, outputs)

    def forward(self, obs, *act):
        return self.layer(torch.cat([features(obs, self.dims), *act], -1))


class OwnPolicy(OwnPart):
    def forward(self, obs, act=None):
        pi = torch.distributions.Normal(super().forward(obs), 0.5)
        return pi, None if act is None else pi.log_prob(act).sum(-1)


class OwnDeterministic(OwnPart):
    def forward(self, obs):
        return torch.tanh(super().forward(obs))


class OwnSquashed(OwnPart):
    def forward(self, obs, deterministic=False):
        mu = super().forward(obs)
        u = mu if deterministic else mu + 0.5 * torch.randn_like(mu)
        return torch.tanh(u), -(2 * (u - mu) ** 2).sum(-1)


class OwnScalar(OwnPart):
    def forward(self, obs, *act):
        return super().forward(obs, *act).squeeze(-1)


class Own(nn.Module):
    """A user's own actor-critic: nothing of ours is in it. It notes what it is given."""

    seen = []  # method, type, dtype, shape, last number, of each call
    made = []

    def __init__(self, observation_space, action_space, bonus=0):
        super().__init__()
        self.shape, self.size = observation_space.shape, int(np.prod(observation_space.shape))
        self.bonus = bonus
        self.build()
        Own.made.append(self)

    def note(self, method, obs, *others):
        assert isinstance(obs, torch.Tensor) and obs.dtype == torch.float32
        Own.seen.append((method, tuple(obs.shape), float(obs.flatten()[-1]), *others))


class OwnOnPolicy(Own):
    def build(self):
        self.pi, self.v = OwnPolicy(self.shape, self.size, 1), OwnScalar(self.shape, self.size, 1)

    def step(self, obs):
        self.note("step", obs)
        with torch.no_grad():
            pi, _ = self.pi(obs)
            a = pi.sample()
            return a.numpy(), self.v(obs).numpy(), pi.log_prob(a).sum(-1).numpy()

    def act(self, obs):
        return self.step(obs)[0]


class OwnDDPG(Own):
    def build(self):
        self.pi = OwnDeterministic(self.shape, self.size, 1)
        self.q = OwnScalar(self.shape, self.size + 1, 1)

    def act(self, obs):
        self.note("act", obs)
        with torch.no_grad():
            return self.pi(obs).numpy()


class OwnTD3(OwnDDPG):
    def build(self):
        super().build()
        self.q1, self.q2 = self.q, OwnScalar(self.shape, self.size + 1, 1)
        del self.q


class OwnSAC(OwnTD3):
    def build(self):
        super().build()
        self.pi = OwnSquashed(self.shape, self.size, 1)

    def act(self, obs, deterministic=False):
        self.note("act", obs, deterministic)
        with torch.no_grad():
            return self.pi(obs, deterministic)[0].numpy()


OWN = {**dict.fromkeys(ON_POLICY, OwnOnPolicy), "ddpg": OwnDDPG, "td3": OwnTD3, "sac": OwnSAC}


@pytest.fixture
def own():
    """algorithm -> class, and what networks of that class have seen so far."""
    Own.seen.clear()
    Own.made.clear()
    yield OWN
    Own.made.clear()


@each_in_pytorch
@pytest.mark.parametrize("num_envs, shape", [(1, (1, 2)), (4, (4, 1, 2))])
def test_a_users_network_acts_on_observations_in_their_shape(backend, algo, num_envs, shape, own, tmp_path):
    """Single and without batch axis for one environment, as ever; in one batch for several."""
    directory = train(
        backend, algo, Matrix, tmp_path / "run", actor_critic=own[algo], num_envs=num_envs, ac_kwargs=dict(bonus=3)
    )
    evaluations = int(sum(column(directory, "TestEpLen"))) if algo in OFF_POLICY else 0
    steps = (80 if algo in ON_POLICY else 80 - 12) // num_envs  # the first 12 are random
    counts = Counter(call[1] for call in Own.seen)
    expected = Counter({shape: steps}) + Counter({(1, 2): evaluations})
    assert sum((counts - expected).values()) <= 2  # a trial or two, of the shapes of the outputs
    assert not expected - counts
    assert [ac.bonus for ac in Own.made] == [3]
    if algo == "sac":
        flags = [call[3] for call in Own.seen if call[1] == (1, 2)]
        assert flags.count(True) == evaluations  # the best action in evaluations only


@each_in_pytorch
def test_a_users_network_learns_and_is_saved(backend, algo, own, tmp_path):
    directory = train(backend, algo, Matrix, tmp_path / "run", actor_critic=own[algo], ac_kwargs={})
    trained, saved = Own.made[0], saved_model(backend, directory)
    assert type(saved) is own[algo]
    torch.manual_seed(0)  # as the run was seeded
    untrained = own[algo](Matrix.observation_space, ACT)
    weights = [ac.state_dict() for ac in (untrained, trained, saved)]
    for before, after, kept in zip(*(w.values() for w in weights), strict=True):
        assert (after != before).all() and (after == kept).all()


@each_in_pytorch
def test_a_users_class_based_on_ours_is_used_as_it_is(backend, algo, tmp_path):
    """The shortcut for networks of ours must not bypass what the user has changed."""
    base, calls = core(backend, algo).MLPActorCritic, []

    @importable
    class Counting(base):
        def step(self, obs):
            calls.append("step")
            return super().step(obs)

        def act(self, obs, *deterministic):
            calls.append("act")
            return super().act(obs, *deterministic)

    train(backend, algo, Walk, tmp_path / "run", actor_critic=Counting)
    assert calls.count("step" if algo in ON_POLICY else "act") >= (80 if algo in ON_POLICY else 68)


# -- Normalised observations -----------------------------------------------------------------------------------------


def moments(n):
    """Mean and standard deviation of 0, 1, ..., n - 1."""
    return (n - 1) / 2, np.sqrt((n**2 - 1) / 12)


@each_on_policy_in_pytorch
def test_statistics_of_observations_are_part_of_the_saved_model(backend, algo, tmp_path):
    """One episode of 80 steps: the second number of its observations counts the steps."""
    directory = train(backend, algo, Scripted, tmp_path / "run", normalize_obs=True, max_ep_len=1000)
    model = saved_model(backend, directory)
    mean, std = moments(80)
    assert model.normalizer.mean.tolist() == pytest.approx([0, mean], rel=1e-5)
    assert model.normalizer.std[1].item() == pytest.approx(std, rel=1e-5)
    assert {"normalizer.mean", "normalizer.std"} <= set(model.state_dict())
    # The policy and the value function of the saved model work on raw observations.
    obs = torch.tensor([[0.0, 10.0], [0.0, 70.0]])
    normalized = torch.stack([torch.zeros(2), (obs[:, 1] - mean) / std], -1)
    assert torch.allclose(model.pi(obs)[0].mean, model.ac.pi(normalized)[0].mean, atol=1e-4)
    assert torch.allclose(model.v(obs), model.ac.v(normalized), atol=1e-4)
    assert model.act(obs).shape == (2, 1) and model.step(obs)[1] == pytest.approx(model.v(obs).detach().numpy())


@each_on_policy_in_pytorch
def test_a_users_network_sees_normalized_observations(backend, algo, own, tmp_path):
    changes = dict(actor_critic=own[algo], ac_kwargs={}, normalize_obs=True, max_ep_len=1000)
    train(backend, algo, Scripted, tmp_path / "run", **changes)
    acted = [call[2] for call in Own.seen][-80:]
    assert acted[:40] == [min(t, 10) for t in range(40)]  # nothing known yet; values stay within +-10
    mean, std = moments(40)
    assert acted[40:] == pytest.approx([(t - mean) / std for t in range(40, 80)], rel=1e-4)


# -- Imports ---------------------------------------------------------------------------------------------------------

HEAVY = ["torch", "tensorflow", "jax", "mpi4py", "gymnasium", "envpool", "matplotlib", "pandas", "joblib"]


def fresh(code):
    """What a new Python process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_A39_importing_the_package_loads_nothing_heavy():
    assert fresh(f"import sys, spinup; print([m for m in {HEAVY} if m in sys.modules])") == "[]"


@pytest.mark.parametrize(
    "modules",
    [
        "spinup.utils.logx, spinup.utils.run_utils, spinup.utils.mpi_tools, spinup.user_config",
        "spinup.training.on_policy, spinup.training.off_policy, spinup.training.envs, spinup.training.acting",
    ],
    ids=["utils", "training"],
)
def test_A39_what_is_common_to_all_back_ends_loads_none(modules):
    frameworks = ["torch", "tensorflow", "jax", "mpi4py"]
    assert fresh(f"import sys, {modules}; print([m for m in {frameworks} if m in sys.modules])") == "[]"


@each_backend
def test_A39_a_missing_framework_is_named_with_its_remedy(backend):
    framework = {"pytorch": "torch", "jax": "jax"}[backend]
    code = f"""if True:
        import sys
        sys.modules["{framework}"] = None
        import spinup
        try:
            spinup.ppo_{backend}
        except ModuleNotFoundError as error:
            print(error)
    """
    message = fresh(code)
    assert f"spinup.ppo_{backend} needs" in message and f"pip install 'spinup[{backend}]'" in message


@each("ppo")
def test_A39_the_module_path_of_the_original_works(backend, algo):
    module = importlib.import_module(f"spinup.algos.{backend}.{algo}.{algo}")
    assert getattr(module, algo) is function(backend, algo) and module.core is core(backend, algo)


# -- Devices ---------------------------------------------------------------------------------------------------------


@each_in_pytorch
def test_A42_another_device(backend, algo, tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA here")
    directory = train(backend, algo, Walk, tmp_path / "run", device="cuda")
    model = saved_model(backend, directory)
    assert {p.device.type for p in model.parameters()} == {"cpu"}  # it opens anywhere
    assert np.isfinite(column(directory, "LossPi")).all()
