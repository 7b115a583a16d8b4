"""What cannot be done is refused in one line before anything is written; numbers that go bad stop the run."""

import inspect
import math
import re
from functools import partial

import backends
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers import (
    ALGOS,
    BACKENDS,
    OFF_POLICY,
    ON_POLICY,
    Scripted,
    Walk,
    column,
    core,
    each,
    each_algorithm,
    each_family,
    each_in_pytorch,
    each_off_policy,
    each_on_policy,
    function,
    importable,
    parameters,
    refused,
    remembered,
    saved_model,
    train,
)

from spinup.training.buffers import ReplayBuffer
from spinup.training.errors import NonFiniteError, UserError
from spinup.training.hyperparams import NOT_NUMBERS, NUMBERS, check

torch = pytest.importorskip("torch")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "run"


def refused_run(backend, algo, env_fn, directory, /, *words, **changes):
    return refused(lambda: train(backend, algo, env_fn, directory, **changes), directory, *words)


# -- Hyperparameters -------------------------------------------------------------------------------------------------


def arguments_of(algo):
    return inspect.signature(function(BACKENDS[0], algo)).parameters


@pytest.mark.parametrize("algo", ALGOS)
def test_every_argument_of_every_algorithm_has_a_rule_or_is_no_number(algo):
    assert set(arguments_of(algo)) <= set(NUMBERS) | set(NOT_NUMBERS)


def bad_values(name):
    """What no argument of this kind can be."""
    rule = NUMBERS[name]
    values = ["ten", [1], {}, 1 + 2j, object(), np.ones((2, 2)), math.nan, math.inf, -math.inf]
    values += [x for x in (None, True) if x not in rule.also]
    if rule.kind == "int":
        values += [rule.low - 1, rule.low + 0.5]
    if rule.kind == "float":
        values += [-1e-9 if rule.low == 0 else rule.low - 1]
        values += [0, 0.0] if rule.open_low else []
        values += [rule.high + 1e-9, 10**400] if math.isfinite(rule.high) else []
    if rule.kind == "choice":
        values += ["TRPO", 7]
    return values


def label(value):
    return re.sub(r"\s+| at 0x.*", "", repr(value))[:12]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "name, value",
    [pytest.param(name, value, id=f"{name}-{label(value)}") for name in NUMBERS for value in bad_values(name)],
)
def test_hyperparameters_out_of_range_are_refused(backend, name, value, directory):
    algo = next(algo for algo in ALGOS if name in arguments_of(algo))
    env_fn = remembered(Walk)
    message = refused_run(backend, algo, env_fn, directory, f"{name}=", "must be ", **{name: value})
    remedy = message.rpartition("must be ")[2]
    assert remedy == NUMBERS[name].allowed() and len(message) < 200
    assert env_fn.made == []


@pytest.mark.parametrize(
    "name, allowed",
    [
        ("gamma", "a number between 0 and 1"),
        ("epochs", "a whole number, at least 1"),
        ("pi_lr", "a number, at least 0"),
        ("clip_ratio", "a number above 0"),
        ("backtrack_coeff", "a number above 0 and at most 1"),
        ("target_kl", "a number above 0, or None"),
        ("alpha", "a number, at least 0, or 'auto'"),
        ("algo", "'trpo' or 'npg'"),
        ("normalize_obs", "False or True"),
    ],
)
def test_the_remedy_says_what_is_allowed(name, allowed):
    with pytest.raises(UserError) as caught:
        check({name: "nonsense"})
    assert str(caught.value) == f"{name}='nonsense': must be {allowed}"


@pytest.mark.parametrize("name", NUMBERS)
def test_the_ends_of_a_range_are_allowed(name):
    rule = NUMBERS[name]
    ends = [rule.low + (1e-9 if rule.open_low else 0), rule.high] if rule.kind != "choice" else []
    for value in [x for x in ends if math.isfinite(x)] + list(rule.also):
        assert check({name: value}) == {name: value}


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.float32(3), np.array(3)])
def test_whole_numbers_of_any_type_become_ints(value):
    checked = check(dict(epochs=value))["epochs"]
    assert checked == 3 and type(checked) is int


def test_an_array_of_one_number_becomes_that_number():
    checked = check(dict(gamma=np.array(0.5)))["gamma"]
    assert checked == 0.5 and type(checked) is float


@each_family
@pytest.mark.parametrize("seed", [2**32, 2**63 - 1, 2**64 - 1, 2**64, 10**400], ids=lambda n: f"{len(bin(n)) - 2} bits")
def test_large_seeds_are_used_or_refused(backend, algo, seed, directory):
    """Some generators take 32 bits, some 64; nobody should have to know."""
    try:
        train(backend, algo, Walk, directory, seed=seed, epochs=1)
    except UserError as error:
        assert "seed" in str(error) and not directory.exists()


# -- Schedules that do not come out even -----------------------------------------------------------------------------


@each_algorithm
def test_num_envs_must_divide_the_epoch(backend, algo, directory):
    words = ["num_envs=3", "steps_per_epoch", "40", "multiple of 3"]
    refused_run(backend, algo, Walk, directory, *words, num_envs=3)


@each_on_policy
def test_A12_fewer_steps_than_processes(backend, algo, directory, monkeypatch):
    monkeypatch.setattr("spinup.training.on_policy.num_procs", lambda: 50)
    refused_run(backend, algo, Walk, directory, "steps_per_epoch=40", "number of processes, 50", "step")


@each_off_policy
def test_A36_several_processes_off_policy(backend, algo, directory, monkeypatch):
    monkeypatch.setattr("spinup.training.off_policy.num_procs", lambda: 2)
    refused_run(backend, algo, Walk, directory, "one process", "num_envs")


# -- Memory ----------------------------------------------------------------------------------------------------------


@each_off_policy
def test_a_replay_buffer_larger_than_memory_is_refused(backend, algo, directory):
    words = ["replay_size=1000000000000", "GiB", "this machine has", "smaller replay_size"]
    refused_run(backend, algo, Walk, directory, *words, replay_size=10**12)


def test_the_sizes_of_buffer_and_memory_are_named(monkeypatch):
    class Memory:
        total = 3 * 2**30

    monkeypatch.setattr("psutil.virtual_memory", lambda: Memory)
    # (2 * 5 + 1 + 2) float32 are 52 bytes per transition
    with pytest.raises(UserError, match=r"^replay_size=80000000 needs 3\.9 GiB, this machine has 3\.0 GiB: "):
        ReplayBuffer(5, 1, 80_000_000)
    assert ReplayBuffer(5, 1, 8).max_size == 8


def test_an_image_counts_with_all_of_its_pixels(monkeypatch):
    class Memory:
        total = 2**30

    monkeypatch.setattr("psutil.virtual_memory", lambda: Memory)
    with pytest.raises(UserError, match=r"needs 1\.5 GiB, this machine has 1\.0 GiB"):
        ReplayBuffer((100, 100, 2), (1,), 10_000)


# -- Environments and their spaces -----------------------------------------------------------------------------------

box = partial(spaces.Box, dtype=np.float32)
CORNERS = np.float32([[0, 0], [0, 1]])

UNSUPPORTED_ACTIONS = {
    "Dict": spaces.Dict(a=spaces.Discrete(2)),
    "Tuple": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]),
    "MultiBinary": spaces.MultiBinary(3),
    "Text": spaces.Text(4),
    "2-D Box": box(-1, 1, (2, 2)),
    "2-D Box with different bounds": box(CORNERS, CORNERS + 1),
    "0-D Box": box(-1, 1, ()),
}
UNSUPPORTED_OFF_POLICY = {
    "Discrete": spaces.Discrete(3),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "Box of integers": spaces.Box(0, 5, (2,), np.int32),
    "infinite bounds": box(-np.inf, np.inf, (2,)),
    "one infinite bound": box(np.float32([-1, -1]), np.float32([1, np.inf])),
}


@each_family
@pytest.mark.parametrize("space", UNSUPPORTED_ACTIONS.values(), ids=UNSUPPORTED_ACTIONS)
def test_unsupported_action_spaces(backend, algo, space, directory):
    message = refused_run(backend, algo, lambda: Scripted(action_space=space), directory, "action space ")
    assert any(remedy in message for remedy in ("use PPO", "take Box", "needs one dimension"))


def test_several_dimensions_of_choices_are_unsupported(directory):
    space = spaces.MultiDiscrete(np.array([[2, 2], [2, 2]]))
    refused_run("pytorch", "ppo", lambda: Scripted(action_space=space), directory, "action space ", "one dimension")


@each_off_policy
@pytest.mark.parametrize("space", UNSUPPORTED_OFF_POLICY.values(), ids=UNSUPPORTED_OFF_POLICY)
def test_A28_unsupported_action_spaces_off_policy(backend, algo, space, directory):
    words = ["finite bounds", "RescaleAction"] if isinstance(space, spaces.Box) and space.dtype == np.float32 else []
    refused_run(backend, algo, lambda: Scripted(action_space=space), directory, "action space ", "PPO", *words)


class Observing(Scripted):
    def __init__(self, space):
        super().__init__()
        self.observation_space = space


@each_family
@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(box(0, 1, (2,)), None),
        spaces.Dict(a=spaces.Sequence(spaces.Discrete(2)), b=box(CORNERS, CORNERS + 1)),
        "not a space",
    ],
    ids=["Sequence", "Graph", "Dict with a Sequence", "text"],
)
def test_A37_unsupported_observation_spaces(backend, algo, space, directory):
    message = refused_run(backend, algo, lambda: Observing(space), directory, "observation space")
    assert "wrap the environment" in message or "give the environment" in message


@each_family
@pytest.mark.parametrize("shape", [(3,), (1,), (), (1, 2)], ids=str)
def test_observations_that_break_their_own_space_are_found_at_the_start(backend, algo, shape, directory):
    class Liar(Scripted):
        def _obs(self):
            return np.zeros(shape)

    words = ["environment 0", f"shape {shape}", "observation space promises (2,)", "agree"]
    refused_run(backend, algo, Liar, directory, *words)


class NotAnEnvironment:
    pass


@each_family
@pytest.mark.parametrize(
    "env_fn",
    ["CartPole-v1", None, Walk(), lambda: None, lambda: "CartPole-v1", NotAnEnvironment],
    ids=["text", "None", "environment", "makes None", "makes text", "makes something else"],
)
def test_something_that_makes_no_environment(backend, algo, env_fn, directory):
    refused_run(backend, algo, env_fn, directory, "env_fn")


@each_family
def test_an_environment_that_cannot_be_made_leaves_nothing_behind(backend, algo, directory):
    with pytest.raises(gym.error.Error):
        train(backend, algo, lambda: gym.make("NoSuchThing-v0"), directory)
    assert not directory.exists()


# -- Networks --------------------------------------------------------------------------------------------------------


def crooked(backend, algo, part, change):
    """Our own networks, with what one part gives put out of shape: pi, v, q, q1, q2, or the methods step and act."""
    return backends.get(backend).changed(core(backend, algo).MLPActorCritic, part, change)


def nth(n, change):
    """Change one item of a tuple."""
    return lambda out: tuple(change(x) if i == n else x for i, x in enumerate(out))


def column_vector(x):
    return x[..., None]


ON = [  # part of the network, change, what the message calls it, the shape it has and the one it must have
    ("v", column_vector, "v(obs)", "(3, 1)", "(3,)"),
    ("v", lambda v: v.mean(), "v(obs)", "()", "(3,)"),
    ("pi", nth(1, column_vector), "pi(obs, act)[1]", "(3, 1)", "(3,)"),
    ("pi", nth(1, lambda logp: logp.sum()), "pi(obs, act)[1]", "()", "(3,)"),
    ("step", nth(0, lambda a: a[None]), "step(obs)[0]", "(1, 2)", "(2,)"),
    ("step", nth(1, lambda v: v[None]), "step(obs)[1]", "(1,)", "()"),
    ("step", nth(2, lambda logp: logp[None]), "step(obs)[2]", "(1,)", "()"),
]
ONE_CRITIC = [("q", column_vector, "q(obs, act)", "(3, 1)", "(3,)")]
TWO_CRITICS = [(q, column_vector, f"{q}(obs, act)", "(3, 1)", "(3,)") for q in ("q1", "q2")]
DETERMINISTIC = [("pi", lambda a: a[:, 0], "pi(obs)", "(3,)", "(3, 2)")]
SQUASHED = [
    ("pi", nth(0, lambda a: a[:, :1]), "pi(obs)[0]", "(3, 1)", "(3, 2)"),
    ("pi", nth(1, column_vector), "pi(obs)[1]", "(3, 1)", "(3,)"),
]
ACT = [("act", lambda a: a[None], "act(obs)", "(1, 2)", "(2,)"), ("act", lambda a: a[:1], "act(obs)", "(1,)", "(2,)")]
CROOKED = {
    **dict.fromkeys(ON_POLICY, ON),
    "ddpg": ONE_CRITIC + DETERMINISTIC + ACT,
    "td3": TWO_CRITICS + DETERMINISTIC + ACT,
    "sac": TWO_CRITICS + SQUASHED + ACT,
}


def two_actions():
    return Walk(box(-1, 1, (2,)))


@pytest.mark.parametrize(
    "backend, algo, part, change, what, has, must",
    [
        pytest.param(backend, algo, *case, id=f"{backend}-{algo}-{case[2]}-{case[3]}".replace(" ", ""))
        for backend in BACKENDS
        for algo in ALGOS
        for case in CROOKED[algo]
        if backend == "pytorch" or case[0] not in ("step", "act")  # methods that others are not asked for
    ],
)
def test_networks_with_outputs_of_a_wrong_shape(backend, algo, part, change, what, has, must, directory):
    if backend == "jax" and algo == "sac":
        what = what.replace("pi(obs)", "pi(obs, key)")
    words = ["actor_critic: ", what, f"has the shape {has}", f"must have {must}"]
    refused_run(backend, algo, two_actions, directory, *words, actor_critic=crooked(backend, algo, part, change))


@each_in_pytorch
def test_networks_that_take_one_observation_only_are_refused_for_several_environments(backend, algo, directory):
    """(8,) for four observations, instead of (4, 2)."""
    method = "step" if algo in ON_POLICY else "act"
    flat = nth(0, np.ravel) if algo in ON_POLICY else np.ravel
    changes = dict(actor_critic=crooked(backend, algo, method, flat), num_envs=4)
    refused_run(backend, algo, two_actions, directory, "actor_critic: ", f"{method}(obs)", **changes)


@each(*OFF_POLICY, backends=["pytorch"])
def test_the_message_tells_one_observation_from_a_batch_of_three(backend, algo, directory):
    """Also when actions have three dimensions."""
    env_fn = lambda: Walk(box(-1, 1, (3,)))  # noqa: E731
    network = crooked(backend, algo, "act", lambda a: a[None])
    message = refused_run(backend, algo, env_fn, directory, "(1, 3)", "(3,)", actor_critic=network)
    assert "without batch axis" in message


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "algo, change",
    [("sac", lambda out: out[0]), ("ddpg", lambda a: (a, a[:, 0])), ("td3", lambda a: (a, a[:, 0]))],
    ids=["sac-without-logp", "ddpg-with-logp", "td3-with-logp"],
)
def test_a_policy_of_the_other_kind_is_refused(backend, algo, change, directory):
    """Otherwise it fails thousands of steps later, when the random phase is over."""
    network = crooked(backend, algo, "pi", change)
    refused_run(backend, algo, two_actions, directory, "actor_critic", "pi(obs", actor_critic=network)


@each_algorithm
def test_a_factory_that_spoils_a_network_of_ours(backend, algo, directory):
    """It returns our own class, with a critic that gives (B, 1)."""
    adapter, critic = backends.get(backend), {"ddpg": "q", "td3": "q1", "sac": "q1"}.get(algo, "v")

    def make(*args, **kwargs):
        ac = core(backend, algo).MLPActorCritic(*args, **kwargs)
        inner = {"v": "v_net"}.get(critic, "q")
        net = getattr(getattr(ac, critic), inner)
        if critic == "v":
            return adapter.with_part(ac, critic, net)
        return adapter.with_part(ac, critic, adapter.on_both(net))

    refused_run(backend, algo, Walk, directory, "actor_critic", "has the shape (3, 1)", actor_critic=make)


@each_in_pytorch
def test_a_part_that_is_a_method(backend, algo, directory):
    name = {"ddpg": "q", "td3": "q1", "sac": "q1"}.get(algo, "v")
    base = core(backend, algo).MLPActorCritic

    @importable
    class Methodical(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.inner = getattr(self, name)
            delattr(self, name)

    setattr(Methodical, name, lambda self, *inputs: self.inner(*inputs))
    refused_run(backend, algo, Walk, directory, f"`{name}` must be a module", actor_critic=Methodical)


@each_family
@pytest.mark.parametrize(
    "ac_kwargs",
    [dict(hidden_sizes=64), dict(hidden_sizes=["64"]), dict(hidden_sizes=[-64]), dict(activation="relu"), None, "x"],
    ids=repr,
)
def test_arguments_that_make_no_network(backend, algo, ac_kwargs, directory):
    refused_run(backend, algo, Walk, directory, "ac_kwargs=", ac_kwargs=ac_kwargs)


@each_family
@pytest.mark.parametrize("actor_critic", [None, "mlp", 3])
def test_an_actor_critic_that_cannot_be_called(backend, algo, actor_critic, directory):
    refused_run(backend, algo, Walk, directory, f"actor_critic={actor_critic!r}", actor_critic=actor_critic)


@each_family
@pytest.mark.parametrize("wrong", [dict(outputdir="x"), None, 5])
def test_arguments_that_no_logger_takes(backend, algo, wrong, directory):
    run = lambda: function(backend, algo)(Walk, logger_kwargs=wrong)  # noqa: E731
    refused(run, directory, "logger_kwargs=")


@each_family
def test_an_output_directory_that_is_a_file(backend, algo, tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UserError, match="cannot be made: File exists"):
        train(backend, algo, Walk, tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


@each_family
def test_a_vector_of_environments_is_refused(backend, algo, directory):
    env_fn = lambda: gym.vector.SyncVectorEnv([Walk, Walk])  # noqa: E731
    refused_run(backend, algo, env_fn, directory, "vector of environments", "num_envs")


@each_off_policy
def test_a_batch_larger_than_the_replay_buffer_is_refused(backend, algo, directory):
    refused_run(backend, algo, Walk, directory, "batch_size=101", "replay_size", batch_size=101)


@each_on_policy
def test_a_rollout_larger_than_memory_is_refused(backend, algo, directory):
    refused_run(backend, algo, Walk, directory, "steps_per_epoch=1000000000000 needs", "GiB", steps_per_epoch=10**12)


@each_in_pytorch
def test_a_network_that_lacks_a_part_is_refused(backend, algo, directory):
    missing = {"ddpg": "q", "td3": "q2", "sac": "q2"}.get(algo, "v")

    @importable
    class Incomplete(core(backend, algo).MLPActorCritic):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            delattr(self, missing)

    refused_run(backend, algo, two_actions, directory, "actor_critic", missing, actor_critic=Incomplete)


@each_family
def test_a_misspelt_argument_of_the_network(backend, algo, directory):
    words = ["ac_kwargs", "hidden_size"]
    refused_run(backend, algo, Walk, directory, *words, ac_kwargs=dict(hidden_size=(8,)))


@each_family
@pytest.mark.parametrize("callable_kind", ["partial", "lambda", "object"])
def test_a_misspelt_argument_of_any_callable_that_makes_networks(backend, algo, callable_kind, directory):
    """Functions have a name to put into the message, partials and objects have none."""
    AC = core(backend, algo).MLPActorCritic

    class Maker:
        def __call__(self, observation_space, action_space, hidden_sizes=(8,)):
            return AC(observation_space, action_space, hidden_sizes)

    make = {"partial": partial(AC), "lambda": lambda obs, act, hidden_sizes=(8,): AC(obs, act), "object": Maker()}
    changes = dict(actor_critic=make[callable_kind], ac_kwargs=dict(hidden_size=(8,)))
    refused_run(backend, algo, Walk, directory, "ac_kwargs", "hidden_size", **changes)


@each_family
def test_a_network_that_cannot_be_saved_is_refused_or_trained_all_the_same(backend, algo, directory):
    """Classes defined inside functions cannot be pickled. That must not turn up after the first epoch."""

    class Local(core(backend, algo).MLPActorCritic):
        pass

    try:
        train(backend, algo, Walk, directory, actor_critic=Local)
    except UserError as error:
        assert not directory.exists() and "\n" not in str(error) and "actor_critic" in str(error)
    else:
        assert column(directory, "TotalEnvInteracts") == [40, 80]


@each_algorithm
@pytest.mark.parametrize("device", ["gpu", "cuda:99", "", None, 7.5, "cpu0"], ids=repr)
def test_unknown_devices(backend, algo, device, directory):
    refused_run(backend, algo, Walk, directory, f"device={device!r}", "cpu", device=device)


# -- A refusal changes nothing in the process either -----------------------------------------------------------------


@each_family
@pytest.mark.parametrize("reason", ["hyperparameter", "device", "network", "observation"])
def test_a_refused_run_leaves_the_number_of_threads_alone(backend, algo, reason, directory):
    class Liar(Scripted):
        def _obs(self):
            return np.zeros(7)

    changes = {
        "hyperparameter": dict(gamma=2),
        "device": dict(device="gpu"),
        "network": dict(actor_critic=crooked(backend, algo, "pi", nth(1, column_vector))),
        "observation": {},
    }[reason]
    before = torch.get_num_threads()
    try:
        refused_run(backend, algo, Liar if reason == "observation" else Walk, directory, threads=before + 1, **changes)
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)


# -- Numbers that go bad while training ------------------------------------------------------------------------------


class GoesBad(Scripted):
    """From step 51 on, in the second epoch of 40 steps, something is wrong. An evaluation does not get that far."""

    def __init__(self, what, value, then=lambda: None):
        super().__init__((7, "terminated"))
        self.what, self.value, self.then = what, value, then

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if len(self.actions) >= 51:
            obs = np.array([0, self.value]) if self.what == "observation" else obs
            reward = self.value if self.what == "reward" else reward
            self.then()
        return obs, reward, *rest


def stopped(backend, algo, env_fn, directory, /, **changes):
    """The message of a run that stops in the second epoch. What was saved after the first one must be whole."""
    changes = dict(epochs=3, save_freq=1) | changes
    with pytest.raises(NonFiniteError) as caught:
        train(backend, algo, env_fn, directory, **changes)
    message = str(caught.value)
    assert "\n" not in message and re.match(r"stopped in epoch [12] after \d+ steps: ", message)
    assert column(directory, "TotalEnvInteracts") == [40]

    assert all(np.isfinite(p).all() for p in parameters(backend, saved_model(backend, directory)).values())
    return message


@each_algorithm
@pytest.mark.parametrize("what", ["observation", "reward"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_bad_number_of_the_environment_stops_the_run(backend, algo, what, value, directory):
    message = stopped(backend, algo, lambda: GoesBad(what, value), directory)
    assert "after 50 steps" in message and re.search(r"environment 0 \(seed \d+\)", message)
    assert what in message and str(value) in message


@each_algorithm
@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_loss_that_is_not_finite_stops_the_run_before_the_weights_change(backend, algo, num_envs, directory):
    """A reward of 1e30 is finite, its square is not in single precision."""
    changes = dict(num_envs=num_envs)
    with backends.get(backend).recorded() as runs:
        if num_envs == 2:
            changes |= dict(steps_per_epoch=80)
            with pytest.raises(NonFiniteError) as caught:
                train(backend, algo, lambda: GoesBad("reward", 1e30), directory, **changes)
            message = str(caught.value)
        else:
            message = stopped(backend, algo, lambda: GoesBad("reward", 1e30), directory, **changes)
    assert re.search(r"Loss(Pi|V|Q) is (inf|nan)", message)
    assert all(np.isfinite(p).all() for p in runs[0].params().values())


@each_algorithm
def test_a_parameter_that_is_not_finite_stops_the_run(backend, algo, directory):
    """Found at the next update, or when the model is saved."""
    network = backends.get(backend).with_extra_parameter(core(backend, algo).MLPActorCritic)
    with backends.get(backend).recorded() as runs:
        rot = lambda: runs[0].load(runs[0].params() | {"extra": np.full(2, math.nan)})  # noqa: E731
        message = stopped(backend, algo, lambda: GoesBad(None, None, rot), directory, actor_critic=network)
    assert "the parameter extra" in message and 50 < int(re.search(r"after (\d+) steps", message)[1]) <= 80
    # The model on disk is that of the first epoch: the same as if the run had ended there.
    good = train(backend, algo, lambda: GoesBad(None, None), directory.parent / "good", actor_critic=network, epochs=1)
    before, saved = (parameters(backend, saved_model(backend, d)) for d in (good, directory))
    assert saved.keys() == before.keys() and all((saved[name] == before[name]).all() for name in before)


@each_algorithm
def test_a_gradient_that_is_not_finite_stops_the_run_before_the_weights_change(backend, algo, directory):
    """sqrt(0) is finite, its slope is not."""
    adapter, critic = backends.get(backend), {"ddpg": "q", "td3": "q1", "sac": "q1"}.get(algo, "v")

    def make(*args, **kwargs):
        ac = core(backend, algo).MLPActorCritic(*args, **kwargs)
        return adapter.with_part(ac, critic, adapter.steep(getattr(ac, critic)))

    with adapter.recorded() as runs:
        message = stopped(backend, algo, lambda: GoesBad("observation", 1000.0), directory, actor_critic=make)
    assert "gradient" in message or "Loss" in message
    assert all(np.isfinite(p).all() for p in runs[0].params().values())
