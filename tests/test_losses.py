"""The pages compute what the reference computes: losses, gradients, parameters after updates, every column.

Names of tests carry the tags of the register of the original's defects (A-01 and so on) that must not come back.
"""

from copy import deepcopy
from types import SimpleNamespace

import backends
import gymnasium as gym
import numpy as np
import pytest
import reference
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from helpers import importable
from numpy.testing import assert_allclose, assert_array_equal

from spinup.training import acting
from spinup.training.buffers import Rollout
from spinup.training.on_policy import OnPolicyLoop

OBS = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = {
    "box": Box(np.float32([-1, 0]), np.float32([1, 3])),  # bounds that differ, and are not symmetric
    "discrete": Discrete(4),
    "multi_discrete": MultiDiscrete([2, 3]),
}
HYPER = dict(
    vpg=dict(pi_lr=1e-2, vf_lr=1e-2, train_v_iters=3),
    ppo=dict(pi_lr=1e-2, vf_lr=1e-2, train_pi_iters=6, train_v_iters=3, clip_ratio=0.2, target_kl=0.05),
    trpo=dict(vf_lr=1e-2, train_v_iters=3, delta=0.01, damping_coeff=0.1, backtrack_iters=10, backtrack_coeff=0.8)
    | dict(cg_iters=60, algo="trpo"),
    ddpg=dict(gamma=0.9, polyak=0.9, pi_lr=1e-2, q_lr=1e-2),
    td3=dict(gamma=0.9, polyak=0.9, pi_lr=1e-2, q_lr=1e-2, target_noise=0.4, noise_clip=0.5, policy_delay=2),
    sac=dict(gamma=0.9, polyak=0.9, lr=1e-2, alpha=0.2),
)
BATCH = 24
TOLERANCE = dict(rtol=1e-5, atol=1e-5)

on_policy = pytest.mark.parametrize("algo", backends.ON_POLICY)
off_policy = pytest.mark.parametrize("algo", backends.OFF_POLICY)
box_and_discrete = pytest.mark.parametrize("space", ["box", "discrete"])


@pytest.fixture(params=backends.NAMES)
def backend(request):
    return backends.get(request.param)


@pytest.fixture
def make(backend):
    """make(algo, space, **hyperparameters): an algorithm with small networks, random in every parameter."""
    yield from maker(backend)


@pytest.fixture
def pytorch_make():
    """For what other back ends do not have."""
    yield from maker(backends.get("pytorch"))


def maker(backend):
    made = []

    def make(algo, /, space="box", ac_kwargs=dict(hidden_sizes=(4, 3)), **changes):
        subject = backend.make(algo, OBS, ACTIONS[space], ac_kwargs=ac_kwargs, **HYPER[algo] | changes)
        made.append(subject)
        rng = np.random.default_rng(1)
        subject.load({name: 0.5 * rng.standard_normal(p.shape) for name, p in subject.params().items()})
        return subject

    make.backend = backend
    yield make
    for subject in made:
        subject.close()


def oracle(algo, /, subject, **changes):
    """The reference with the same parameters and hyperparameters."""
    hyper = HYPER[algo] | changes
    if algo in backends.ON_POLICY:
        return reference.ALGORITHMS[algo](subject.params(), **hyper)
    expected = reference.ALGORITHMS[algo](subject.params(), ACTIONS["box"].low, ACTIONS["box"].high, **hyper)
    expected.targ = subject.targets()
    return expected


def rollout(subject, space="box", seed=0):
    """A batch whose old policy differs from the present one, so that some ratios leave the clipping range."""
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((BATCH, 3))
    act = rng.standard_normal((BATCH, 2)) if space == "box" else rng.integers(4, size=BATCH).astype(float)
    data = dict(obs=obs, act=act, adv=rng.standard_normal(BATCH), ret=rng.standard_normal(BATCH))
    logp = reference.policy(subject.params(), obs).logp(act) + 0.2 * rng.standard_normal(BATCH)
    return {key: backends.float32(x).astype(float) for key, x in (data | dict(logp=logp)).items()}


def on_policy_rollout(subject):
    """A batch whose old policy is the present one."""
    data = rollout(subject)
    return data | dict(logp=reference.policy(subject.params(), data["obs"]).logp(data["act"]))


def transitions(seed=0):
    rng = np.random.default_rng(seed)
    data = dict(obs=rng.standard_normal((BATCH, 3)), obs2=rng.standard_normal((BATCH, 3)))
    data |= dict(act=rng.uniform([-1, 0], [1, 3], (BATCH, 2)), rew=rng.standard_normal(BATCH))
    data |= dict(done=rng.integers(2, size=BATCH))
    return {key: backends.float32(x).astype(float) for key, x in data.items()}


def noises(algo, seed=0):
    """The noise of one update, in the order in which it is used."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((BATCH, 2)) for _ in range(dict(ddpg=0, td3=1, sac=2)[algo])]


def assert_close(actual, expected):
    """Dicts of arrays with the same keys."""
    assert sorted(actual) == sorted(expected)
    for key in expected:
        assert_allclose(actual[key], expected[key], **TOLERANCE, err_msg=key)


def assert_loss(value_and_gradient, loss, p, prefix):
    value, gradient = value_and_gradient
    assert_allclose(value, loss(p), **TOLERANCE)
    assert_allclose(gradient, reference.grad_of(loss, p, prefix), **TOLERANCE)


def assert_updates(subject, expected, batches, noise=None):
    """The same parameters, targets and columns after one update for each batch."""
    noise = noise or [[] for _ in batches]
    columns = subject.update(batches, [sample for samples in noise for sample in samples])
    expected_columns = [expected.update(data, *samples) for data, samples in zip(batches, noise, strict=True)]
    for key, values in columns.items():
        one_by_one = [np.ravel(update[key]) for update in expected_columns if key in update]
        assert_allclose(values, np.concatenate(one_by_one), **TOLERANCE, err_msg=key)
    assert_close(subject.params(), expected.p)
    if hasattr(expected, "targ"):
        assert_close(subject.targets(), expected.targ)
    return columns


# -- Losses and their gradients -------------------------------------------------------------------------------------


@on_policy
@box_and_discrete
def test_on_policy_losses_and_gradients(make, algo, space):
    subject = make(algo, space)
    expected, data = oracle(algo, subject), rollout(subject, space)
    assert_loss(subject.loss("loss_pi", data), lambda p: expected.loss_pi(p, data), expected.p, "pi.")
    assert_loss(subject.loss("loss_v", data), lambda p: reference.loss_v(p, data), expected.p, "v.")


@off_policy
def test_off_policy_losses_and_gradients(make, algo):
    subject = make(algo)
    expected, data, noise = oracle(algo, subject), transitions(), noises(algo)
    y = expected.backup(data, *noise[:1])
    loss_q, loss_pi = subject.loss("loss_q", data, noise[:1]), subject.loss("loss_pi", data, noise[1:])
    assert_loss(loss_q, lambda p: reference.squared_errors(p, expected.critics, data, y), expected.p, "q")
    assert_loss(loss_pi, lambda p: expected.loss_pi(p, data, *noise[1:]), expected.p, "pi.")


# -- Whole updates --------------------------------------------------------------------------------------------------

COLUMNS = dict(  # of progress.txt, as far as the page reports them
    vpg={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL"},
    ppo={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "Entropy", "KL", "ClipFrac", "StopIter"},
    trpo={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "KL", "BacktrackIters"},
    npg={"LossPi", "LossV", "DeltaLossPi", "DeltaLossV", "KL"},
    ddpg={"QVals", "LossPi", "LossQ"},
    td3={"Q1Vals", "Q2Vals", "LossPi", "LossQ"},
    sac={"Q1Vals", "Q2Vals", "LogPi", "LossPi", "LossQ"},
)


@pytest.mark.parametrize("algo", [*backends.ON_POLICY, "npg"])
@box_and_discrete
def test_A01_A02_three_on_policy_updates(make, algo, space):
    """A-01 A-02 A-03 A-16: parameters and every column; the deltas and the KL from after the last step."""
    page, changes = ("trpo", dict(algo="npg")) if algo == "npg" else (algo, {})
    subject = make(page, space, **changes)
    batches = [rollout(subject, space, seed) for seed in range(3)]
    columns = assert_updates(subject, oracle(page, subject, **changes), batches)
    assert set(columns) == COLUMNS[algo]
    assert np.abs(columns["KL"]).min() > 1e-4 and np.abs(columns["DeltaLossV"]).min() > 1e-4


@off_policy
def test_A21_A32_three_off_policy_updates(make, algo):
    """A-21 A-32: critics, policy, targets, in this order."""
    subject = make(algo)
    batches, noise = [transitions(seed) for seed in range(3)], [noises(algo, seed) for seed in range(3)]
    assert set(assert_updates(subject, oracle(algo, subject), batches, noise)) == COLUMNS[algo]


def test_three_sac_updates_with_learned_temperature(make):
    subject = make("sac", alpha="auto")
    batches, noise = [transitions(seed) for seed in range(3)], [noises("sac", seed) for seed in range(3)]
    columns = assert_updates(subject, oracle("sac", subject, alpha="auto"), batches, noise)
    assert set(columns) == COLUMNS["sac"] | {"Alpha"}
    assert len(set(columns["Alpha"])) == 3


@pytest.mark.parametrize("log_std, grows", [(-4, True), (-2.6, True), (-2.2, False), (-1, False)])
def test_temperature_grows_while_entropy_is_below_target(make, log_std, grows):
    """The target is -dim(A) = -2; the entropy of two narrow normals is 2 (log_std + 1.42), here -2.4 and -1.6 too."""
    subject = make("sac", alpha="auto")
    zero = {name: 0 * p for name, p in subject.params().items()}
    subject.load(zero | {"pi.log_std_layer.bias": np.full(2, log_std)})
    alpha = subject.update([transitions()], noises("sac"))["Alpha"]
    assert (alpha > 1) == grows and alpha != 1


# -- On-policy, piece by piece --------------------------------------------------------------------------------------


def test_A03_entropy_adds_up_over_action_dimensions(make):
    subject = make("ppo")
    log_std = subject.params()["pi.log_std"]
    columns = subject.update([rollout(subject)])
    assert_allclose(columns["Entropy"], log_std.sum() + np.log(2 * np.pi * np.e), **TOLERANCE)


@pytest.mark.parametrize("target_kl, steps", [(1e-6, 1), (0.06, 3), (1e9, 6), (None, 6)])
def test_A08_A09_stop_iter_counts_steps(make, target_kl, steps):
    subject, same_without_kl = make("ppo", target_kl=target_kl), make("ppo", target_kl=None, train_pi_iters=steps)
    data = on_policy_rollout(subject)
    assert subject.update([data])["StopIter"] == steps
    same_without_kl.update([data])
    assert_close(subject.params(), same_without_kl.params())


@pytest.mark.parametrize(
    "algo, zero, kept",
    [
        ("vpg", "train_v_iters", "v."),
        ("ppo", "train_v_iters", "v."),
        ("trpo", "train_v_iters", "v."),
        ("ppo", "train_pi_iters", "pi."),
        ("trpo", "backtrack_iters", "pi."),
    ],
)
def test_A10_zero_iterations(make, algo, zero, kept):
    subject = make(algo, **{zero: 0})
    before = subject.params()
    columns = subject.update([rollout(subject)])
    assert all(np.isfinite(x).all() for x in columns.values())
    for name, x in subject.params().items():
        assert np.array_equal(x, before[name]) == name.startswith(kept), name


@box_and_discrete
def test_A17_kl_is_old_relative_to_new(make, space):
    subject = make("trpo", space, algo="npg", delta=0.5)
    data = rollout(subject, space)
    old = reference.policy(subject.params(), data["obs"])
    kl = subject.update([data])["KL"]
    new = reference.policy(subject.params(), data["obs"])
    assert_allclose(kl, old.kl(new), **TOLERANCE)
    assert abs(old.kl(new) - new.kl(old)) > 1e-3


@box_and_discrete
@pytest.mark.parametrize("damping_coeff", [0, 0.1])
def test_hessian_vector_product(make, space, damping_coeff):
    subject = make("trpo", space, damping_coeff=damping_coeff)
    data = rollout(subject, space)
    H = oracle("trpo", subject, damping_coeff=damping_coeff).hessian(data)
    for v in np.eye(len(H))[:: len(H) // 5]:
        assert_allclose(subject.hessian_vector_product(data, v), H @ v, **TOLERANCE)


@pytest.mark.parametrize("size", [1, 1e-2, 1e-4])
def test_conjugate_gradient(make, size):
    """Exact after as many iterations as there are dimensions, whatever the size of the gradient."""
    rng = np.random.default_rng(0)
    A, g = rng.standard_normal((6, 6)), rng.standard_normal(6)
    H = A @ A.T + np.eye(6)
    x = make("trpo").conjugate_gradient(H, size * g, 7)
    assert_allclose(x / size, reference.conjugate_gradient(H, g), **TOLERANCE)


def test_A18_conjugate_gradient_ends_at_the_solution(make):
    """More iterations than dimensions, and none at all to do."""
    subject, H = make("trpo"), np.diag([1.0, 2.0])
    assert_allclose(subject.conjugate_gradient(H, np.array([1.0, 1.0]), 100), [1, 0.5], **TOLERANCE)
    assert_array_equal(subject.conjugate_gradient(H, np.zeros(2), 10), np.zeros(2))


def test_A18_zero_gradient_leaves_the_policy_alone(make):
    subject = make("trpo")
    before = subject.params()
    columns = subject.update([rollout(subject) | dict(adv=np.zeros(BATCH))])
    assert all(np.isfinite(x).all() for x in columns.values())
    for name in reference.part(before, "pi."):
        assert_array_equal(subject.params()[name], before[name])


@box_and_discrete
@pytest.mark.parametrize("delta", [1e-3, 0.1, 2.0])
def test_line_search_never_leaves_the_trust_region(make, space, delta):
    """Also with few trials, where it has to give up; what it reports is what holds."""
    backtracks = []
    for seed in range(8):
        subject = make("trpo", space, delta=delta, damping_coeff=1e-3, backtrack_iters=2)
        data = rollout(subject, space, seed)
        before, old = subject.params(), reference.policy(subject.params(), data["obs"])
        columns = subject.update([data])
        after = subject.params()
        kl = old.kl(reference.policy(after, data["obs"]))
        change = reference.trpo_loss_pi(after, data) - reference.trpo_loss_pi(before, data)
        assert kl <= delta * (1 + 1e-5) and change <= 1e-6
        assert_allclose([columns["KL"][0], columns["DeltaLossPi"][0]], [kl, change], **TOLERANCE)
        backtracks.append(columns["BacktrackIters"][0])
    assert set(backtracks) <= {0, 1}


def test_multi_discrete_choices_add_up(make):
    """log-probability, entropy and KL of independent choices are sums over the choices."""
    subject = make("ppo", "multi_discrete", train_pi_iters=1, target_kl=None)
    rng = np.random.default_rng(0)
    obs, act = backends.float32(rng.standard_normal((BATCH, 3))), rng.integers([2, 3], size=(BATCH, 2))

    def choices():
        logits = reference.mlp(subject.params(), "pi.logits_net", obs, np.tanh)
        return [reference.Categorical(logits[:, :2]), reference.Categorical(logits[:, 2:])]

    def logp(choices):
        return sum(choice.logp(a) for choice, a in zip(choices, act.T, strict=True))

    old = choices()
    assert_allclose(subject.agent.value_and_logp(obs, backends.float32(act))[1], logp(old), **TOLERANCE)
    data = dict(obs=obs, act=act, adv=rng.standard_normal(BATCH), ret=rng.standard_normal(BATCH), logp=logp(old))
    columns = subject.update([data])
    assert_allclose(columns["Entropy"], sum(choice.entropy() for choice in old), **TOLERANCE)
    assert_allclose(columns["KL"], np.mean(logp(old) - logp(choices())), **TOLERANCE)

    subject = make("trpo", "multi_discrete", algo="npg")
    old = choices()
    kl = subject.update([data])["KL"]
    assert_allclose(kl, sum(before.kl(after) for before, after in zip(old, choices(), strict=True)), **TOLERANCE)


# -- Off-policy, piece by piece -------------------------------------------------------------------------------------


def test_A21_policy_delay_counts_over_the_whole_run(make):
    """However the updates are cut into blocks."""
    blocks = [transitions(seed) for seed in range(5)]
    noise = [noises("td3", seed)[0] for seed in range(5)]
    in_one, in_blocks = make("td3"), make("td3")
    in_one.update(blocks, noise)
    policy_steps = []
    for block in (slice(0, 1), slice(1, 2), slice(2, 5)):
        before = in_blocks.targets()
        policy_steps.append(len(in_blocks.update(blocks[block], noise[block]).get("LossPi", [])))
        moved = any((before[name] != x).any() for name, x in in_blocks.targets().items())
        assert moved == (policy_steps[-1] > 0)
    assert policy_steps == [1, 0, 2]
    assert_close(in_blocks.params(), in_one.params())


@off_policy
def test_A22_the_policy_step_computes_no_gradient_for_the_critics(pytorch_make, algo):
    subject = pytorch_make(algo)
    critics = {name: p for name, p in subject.ac.named_parameters() if name.startswith("q")}
    computed = []
    for name, p in critics.items():
        p.register_hook(lambda gradient, name=name: computed.append(name))
    subject.update([transitions()], noises(algo))
    assert sorted(computed) == sorted(critics), "once each, by the critics' own step"
    assert all(p.grad is None and p.requires_grad for p in critics.values())


def test_adam_is_that_of_pytorch():
    import torch

    from spinup.algos.pytorch.learn import Adam

    shapes, rng = [(3, 2), (4,), ()], np.random.default_rng(0)
    ours, theirs = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    adam, torch_adam = Adam(ours, 0.1), torch.optim.Adam(theirs, 0.1, fused=True)
    for _ in range(5):
        grads = [torch.as_tensor(rng.normal(size=shape), dtype=torch.float32) for shape in shapes]
        adam.step(grads)
        for p, g in zip(theirs, grads, strict=True):
            p.grad = g
        torch_adam.step()
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


def test_A30_sac_policy_with_a_single_observation(make):
    subject = make("sac")
    obs, noise = np.array([0.5, -1.0, 2.0]), np.array([0.3, -0.2])
    a, logp = subject.sampled_action(obs, noise)
    expected = reference.squashed(subject.params(), obs, noise, *(ACTIONS["box"].low, ACTIONS["box"].high))
    assert a.shape == (2,) and logp.shape == ()
    assert_allclose(a, expected[0], **TOLERANCE)
    assert_allclose(logp, expected[1], **TOLERANCE)


def test_A32_sac_policy_step_sees_the_new_critics(make):
    """With the policy first and the critics second, it would end up elsewhere."""
    subject = make("sac")
    right, wrong = oracle("sac", subject), oracle("sac", subject)
    for seed in range(3):
        data, (noise_q, noise_pi) = transitions(seed), noises("sac", seed)
        subject.update([data], [noise_q, noise_pi])
        right.update(data, noise_q, noise_pi)
        y = wrong.backup(data, noise_q)
        wrong.update_policy(lambda p, data=data, noise=noise_pi: wrong.loss_pi(p, data, noise))
        wrong.update_critics(data, y)
        wrong.update_targets()
    assert_close(subject.params(), right.p)
    assert abs(reference.flatten(right.p, "pi.") - reference.flatten(wrong.p, "pi.")).max() > 1e-3


def test_td3_target_actions_stay_within_the_bounds(make):
    """A policy at its upper bounds: half of the noise would lead beyond."""
    subject = make("td3")
    params = subject.params()
    params["pi.pi.4.bias"] = np.full(2, 10.0)
    subject.load(params)
    subject.load_targets(params)
    expected, data, noise = oracle("td3", subject), transitions(), noises("td3")
    y = expected.backup(data, *noise)
    loss = lambda p: reference.squared_errors(p, expected.critics, data, y)  # noqa: E731
    assert_loss(subject.loss("loss_q", data, noise), loss, expected.p, "q")


@pytest.mark.parametrize("algo, parts", [("ddpg", {"pi", "q"}), ("td3", {"pi", "q1", "q2"}), ("sac", {"q1", "q2"})])
def test_A33_targets_are_kept_for_what_needs_them(make, algo, parts):
    assert {name.partition(".")[0] for name in make(algo).targets()} == parts


@pytest.mark.parametrize("bias", [-30.0, 30.0])
def test_squashed_log_probability_far_out(make, bias):
    """Where 1 - tanh(u)^2 has long been zero in floating point; log_std is clipped there as well."""
    subject = make("sac")
    p = {name: 0 * x for name, x in subject.params().items()}
    p |= {"pi.mu_layer.bias": np.array([bias, -bias]), "pi.log_std_layer.bias": np.array([bias, bias])}
    subject.load(p)
    noise = [np.full((BATCH, 2), 0.5), np.full((BATCH, 2), 0.1)]
    expected = reference.squashed(p, transitions()["obs"], noise[1], ACTIONS["box"].low, ACTIONS["box"].high)[1]
    assert_allclose(subject.update([transitions()], noise)["LogPi"], expected, **TOLERANCE)


# -- Acting: the NumPy mirror of a policy ---------------------------------------------------------------------------

SPLITS = dict(discrete=[], multi_discrete=[2])  # where the logits of the second choice begin
MIRRORED = [("ppo", "box"), ("ppo", "discrete"), ("ppo", "multi_discrete"), ("ddpg", "box"), ("sac", "box")]


def is_mirror(policy):
    return type(policy).__module__ == acting.__name__


def update_randomly(subject, algo, space):
    """Three updates on made-up data."""
    if algo == "ppo":
        shape = {"box": (BATCH, 2), "discrete": (BATCH,), "multi_discrete": (BATCH, 2)}[space]
        data = dict(transitions(), act=np.ones(shape), adv=transitions()["rew"], ret=transitions()["rew"])
        obs, act = backends.float32(data["obs"]), backends.float32(data["act"])
        data["logp"] = subject.agent.value_and_logp(obs, act)[1]
        subject.update([{key: data[key] for key in ("obs", "act", "adv", "ret", "logp")}] * 3)
    else:
        subject.update([transitions(seed) for seed in range(3)], 3 * noises(algo))


@pytest.mark.parametrize("algo, space", MIRRORED)
@pytest.mark.parametrize(
    "activation",
    [pytest.param(f, marks=() if f in ("relu", "tanh") else pytest.mark.slow) for f in acting.ACTIVATIONS],
)
def test_mirror_follows_the_policy(make, algo, space, activation):
    subject = make(algo, space, ac_kwargs=dict(hidden_sizes=(8, 5), activation=make.backend.activation(activation)))
    assert_mirrored(subject, algo, space)


@pytest.mark.parametrize("space", ["box", "discrete"])
def test_mirror_follows_the_normalizer(make, space):
    subject = make("ppo", space, normalize_obs=True)
    assert_mirrored(subject, "ppo", space)


def assert_mirrored(subject, algo, space):
    obs = 3 * np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    before = subject.own_output(obs)
    for _ in range(2):
        mirror = subject.agent.policy
        assert is_mirror(mirror)
        if space != "box":
            choices = np.split(mirror.logits_net(obs), SPLITS[space], axis=-1)
            logp = np.concatenate([reference.log_softmax(logits) for logits in choices], -1)
            assert_allclose(logp, subject.own_output(obs), **TOLERANCE)
        else:
            assert_allclose(mirror.mode(obs), subject.own_output(obs), **TOLERANCE)
            if algo != "ddpg":  # its noise is the loop's
                noise = np.random.default_rng(1).standard_normal((7, 2), dtype=np.float32)
                sample = mirror.sample(obs, np.random.default_rng(1))
                assert_allclose(sample, subject.own_output(obs, noise), **TOLERANCE)
        update_randomly(subject, algo, space)
    assert abs(subject.own_output(obs) - before).max() > 1e-3


@pytest.mark.parametrize("space", ["discrete", "multi_discrete"])
def test_mirror_samples_from_the_softmax(make, space):
    subject, n = make("ppo", space), 20_000
    obs = np.tile(np.float32([1, -0.5, 2]), (n, 1))
    sample = subject.agent.policy.sample(obs, np.random.default_rng(0)).reshape(n, -1)
    all_p = np.exp(subject.own_output(obs[:1]))[0]
    for choice, p in zip(sample.T, np.split(all_p, SPLITS[space]), strict=True):
        frequency = np.bincount(choice, minlength=len(p)) / n
        assert np.all(abs(frequency - p) < 4 * np.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_copy_for_acting_follows_the_parameters(pytorch_make, algo):
    """Networks on another device have a copy on the CPU."""
    subject = pytorch_make(algo)
    agent = subject.agent
    agent.ac_cpu = deepcopy(agent.ac)
    update_randomly(subject, algo, "box")
    pairs = zip(agent.ac.parameters(), agent.ac_cpu.parameters(), strict=True)
    assert all((p == copy).all() for p, copy in pairs)


def add_one(module, args, output):
    return output + 1


@pytest.mark.parametrize("what", ["hook", "no bias", "two layers in a row"])
def test_a_changed_network_is_left_to_the_module(pytorch_make, what):
    """A factory may change what it makes of our own class."""
    from torch import nn

    from spinup.algos.pytorch import nets

    def actor_critic(observation_space, action_space, **ac_kwargs):
        ac = nets.MLPActorCritic(observation_space, action_space, **ac_kwargs)
        if what == "hook":
            ac.pi.mu_net[0].register_forward_hook(add_one)
        elif what == "no bias":
            ac.pi.mu_net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Tanh())
        else:
            ac.pi.mu_net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        return ac

    subject, obs = pytorch_make("ppo", actor_critic=actor_critic), np.ones((5, 3), np.float32)
    assert not is_mirror(subject.agent.policy)
    assert_allclose(subject.agent.policy.mode(obs).shape, (5, 2))


def test_a_network_may_end_without_an_activation(pytorch_make):
    from torch import nn

    from spinup.algos.pytorch import nets

    def actor_critic(observation_space, action_space, **ac_kwargs):
        ac = nets.MLPActorCritic(observation_space, action_space, **ac_kwargs)
        ac.pi.mu_net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        return ac

    subject, obs = pytorch_make("ppo", actor_critic=actor_critic), np.ones((5, 3), np.float32)
    assert is_mirror(subject.agent.policy)
    assert_allclose(subject.agent.policy.mode(obs), subject.own_output(obs), **TOLERANCE)


@pytest.mark.parametrize("algo, part", [(algo, part) for algo in backends.ON_POLICY for part in ("pi.mu_net.0", "v")])
def test_frozen_parameters_stay_as_they_are(pytorch_make, algo, part):
    """One layer of the policy, or the whole value function."""
    from spinup.algos.pytorch import nets

    def actor_critic(*args, **kwargs):
        ac = nets.MLPActorCritic(*args, **kwargs)
        ac.get_submodule(part).requires_grad_(False)
        return ac

    subject = pytorch_make(algo, actor_critic=actor_critic)
    before = subject.params()
    subject.update([rollout(subject)])
    for name, x in subject.params().items():
        assert np.array_equal(x, before[name]) == name.startswith(part), name


@pytest.mark.parametrize("name", ["Mish", "my_tanh", "elu", "leaky_relu", "softplus"])
def test_unknown_activation_is_left_to_the_module(pytorch_make, name):
    from torch import nn

    class Tanh(nn.Tanh):
        def forward(self, x):
            return 2 * super().forward(x)

    activations = dict(Mish=nn.Mish, my_tanh=Tanh, elu=lambda: nn.ELU(2.0), leaky_relu=lambda: nn.LeakyReLU(0.2))
    activations["softplus"] = lambda: nn.Softplus(beta=2)
    subject = pytorch_make("ppo", ac_kwargs=dict(hidden_sizes=(8,), activation=activations[name]))
    assert not is_mirror(subject.agent.policy)
    assert subject.agent.policy.mode(np.ones((2, 3), np.float32)).shape == (2, 2)


def test_policy_of_a_subclass_is_left_to_the_module(pytorch_make):
    """Its methods may do anything; here, within an otherwise standard actor-critic."""
    from spinup.algos.pytorch import nets

    @importable
    class Doubled(nets.MLPGaussianActor):
        def _distribution(self, obs):
            pi = super()._distribution(obs)
            return type(pi)(2 * pi.mean, pi.stddev)

    def actor_critic(observation_space, action_space, **ac_kwargs):
        ac = nets.MLPActorCritic(observation_space, action_space, **ac_kwargs)
        ac.pi = Doubled(3, 2, (4,), nets.nn.Tanh)
        return ac

    assert not is_mirror(pytorch_make("ppo", actor_critic=actor_critic).agent.policy)


# -- Buffers --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["vpg", "ppo"])
def buffer_class(backend, request):
    return getattr(backend.page(request.param), f"{request.param.upper()}Buffer")


def test_on_policy_buffer(buffer_class):
    """Three paths: one cut off with a value, one terminal, one of a single step."""
    buf, rng = buffer_class((2,), (), 7, gamma=0.99, lam=0.95), np.random.default_rng(0)
    obs, act, rew, val, logp = rng.standard_normal((7, 2)), np.arange(7), *rng.standard_normal((3, 7))
    adv, ret = np.zeros(7), np.zeros(7)
    for start, end, last_val in [(0, 4, 0.7), (4, 6, 0), (6, 7, -0.3)]:
        for t in range(start, end):
            buf.store(obs[t], act[t], rew[t], val[t], logp[t])
        buf.finish_path(last_val) if last_val else buf.finish_path()
        adv[start:end], ret[start:end] = reference.gae(rew[start:end], val[start:end], last_val, 0.99, 0.95)
    data = {key: np.asarray(x) for key, x in buf.get().items()}
    assert {x.dtype for x in data.values()} == {np.dtype(np.float32)}
    assert_close(data, dict(obs=obs, act=act, ret=ret, adv=(adv - adv.mean()) / adv.std(), logp=logp))


def test_on_policy_buffer_takes_exactly_what_it_holds(buffer_class):
    buf = buffer_class(3, 2, 2)
    assert (buf.gamma, buf.lam, buf.act_buf.shape) == (0.99, 0.95, (2, 2))
    for _ in range(2):
        with pytest.raises(AssertionError):
            buf.get()
        buf.store(np.zeros(3), np.zeros(2), 1, 0, 0)
    with pytest.raises(AssertionError):
        buf.store(np.zeros(3), np.zeros(2), 1, 0, 0)
    buf.finish_path()
    buf.get()
    buf.store(np.zeros(3), np.zeros(2), 1, 0, 0)  # it is empty again


def test_A11_constant_advantages_are_zero(buffer_class):
    buf = buffer_class(1, 1, 3, gamma=0.0)
    for _ in range(3):
        buf.store([0], [0], 1, 0, 0)
    buf.finish_path()
    assert_array_equal(buf.get()["adv"], np.zeros(3))


def test_gae_buffer_keeps_statistics_in_alphabetical_order(backend):
    buf = backend.page("trpo").GAEBuffer(1, 1, 2, {"mu": (2,), "log_std": 2, "a": None})
    assert buf.sorted_info_keys == ["a", "log_std", "mu"]
    for t in range(2):
        buf.store([t], [t], t, 0, 0, [t, [t, 1], [t, 2]])
    buf.finish_path()
    data = buf.get()
    assert_array_equal(data["mu"], [[0, 2], [1, 2]])
    assert_array_equal(data["log_std"], [[0, 1], [1, 1]])
    assert_array_equal(data["a"], [0, 1])


@off_policy
def test_replay_buffer(backend, algo):
    buf = backend.page(algo).ReplayBuffer((2,), 1, size=4)
    for t in range(6):
        buf.store([t, t], t, 10 * t, [t + 1, t + 1], t % 2)
        assert (buf.ptr, buf.size, buf.max_size) == ((t + 1) % 4, min(t + 1, 4), 4)
    assert buf.sample_batch()["rew"].shape == (32,)
    np.random.seed(0)
    batch = {key: np.asarray(x) for key, x in buf.sample_batch(200).items()}
    assert set(batch) == {"obs", "act", "rew", "obs2", "done"}
    assert {x.dtype for x in batch.values()} == {np.dtype(np.float32)}
    t = batch["act"][:, 0]
    assert set(t) == {2, 3, 4, 5}  # the oldest two are gone
    assert_array_equal(batch["obs"], np.stack([t, t], 1))
    assert_array_equal(batch["obs2"], np.stack([t + 1, t + 1], 1))
    assert_array_equal(batch["rew"], 10 * t)
    assert_array_equal(batch["done"], t % 2)


@pytest.mark.parametrize("seed", range(3))
def test_A04_A05_rollout_with_random_paths(seed):
    """Paths of several environments that terminate, are truncated, or are cut by the end of the epoch."""
    rng, T, n, gamma, lam = np.random.default_rng(seed), 12, 3, 0.9, 0.8
    rollout = Rollout(T, n, (1,), ())
    val, logp, final = rng.standard_normal((T, n)), rng.standard_normal(T * n), rng.standard_normal((T, n))
    rollout.rew[:] = rng.standard_normal((T, n))
    over, terminated = rng.random((T, n)) < 0.3, rng.random((T, n)) < 0.5
    over[-1] = True
    adv, ret, start = np.zeros((T, n)), np.zeros((T, n)), np.zeros(n, int)
    for t, env in np.argwhere(over):
        path = slice(start[env], t + 1), env
        rollout.end_path(t, env, None if terminated[t, env] else final[t, env, None])
        last_val = 0 if terminated[t, env] else final[t, env]
        adv[path], ret[path] = reference.gae(rollout.rew[path], val[path], last_val, gamma, lam)
        start[env] = t + 1
    data = rollout.finish(val.ravel(), np.ravel(rollout.cut_obs), logp, gamma, lam)
    assert_allclose(data["adv"], ((adv - adv.mean()) / adv.std()).ravel(), **TOLERANCE)
    assert_allclose(data["ret"], ret.ravel(), **TOLERANCE)
    assert_array_equal(data["logp"], logp)


class Script(gym.Env):
    """Episodes of given lengths and endings; an observation is 1 for each episode so far and 0.1 for each step."""

    observation_space, action_space = Box(-np.inf, np.inf, (1,), np.float32), Discrete(2)
    script = [(2, "terminated"), (3, "terminated"), (1, "truncated"), (9, ""), (3, "terminated"), (9, ""), (1, "both")]

    def reset(self, seed=None, options=None):
        self.episode, self.t = getattr(self, "episode", -1) + 1, 0
        return self.seen(), {}

    def step(self, action):
        length, end = self.script[self.episode]
        self.t += 1
        over = self.t == length
        return (
            self.seen(),
            np.cos(self.t),
            over and end in ("terminated", "both"),
            over and end in ("truncated", "both"),
            {},
        )

    def seen(self):
        return np.array([self.episode + 0.1 * self.t], np.float32)


def test_A04_A05_only_a_terminal_state_is_worth_nothing():
    """Also on the last step of an epoch, at max_ep_len, and when a time limit strikes at the same moment."""
    agent = SimpleNamespace(
        policy=SimpleNamespace(sample=lambda obs, rng: np.zeros(len(obs), dtype=int)),
        value=lambda obs: np.sin(obs[:, 0]),
        value_and_logp=lambda obs, act: (np.sin(obs[:, 0]), np.zeros(len(obs))),
    )
    config = dict(
        env_fn=Script, seed=0, steps_per_epoch=8, epochs=2, max_ep_len=3, num_envs=1, threads=1, logger_kwargs={}
    )
    loop = OnPolicyLoop(config | dict(gamma=0.9, lam=0.8), lambda *_: agent, [])
    loop.prepare()
    loop.logger = SimpleNamespace(store=lambda **columns: None)
    epochs = [  # first observation, steps, last observation or None if it is terminal
        [(0.0, 2, None), (1.0, 3, None), (2.0, 1, 2.1), (3.0, 2, 3.2)],
        [(3.2, 1, 3.3), (4.0, 3, None), (5.0, 3, 5.3), (6.0, 1, None)],
    ]
    for paths in epochs:
        loop.collect()
        data = loop.evaluate_rollout()
        obs = [first + 0.1 * np.arange(steps) for first, steps, _ in paths]
        results = []
        for o, (first, _, last) in zip(obs, paths, strict=True):
            rew = np.cos(10 * (o - np.floor(first)) + 1)
            results.append(reference.gae(rew, np.sin(o), 0 if last is None else np.sin(last), 0.9, 0.8))
        adv, ret = (np.concatenate(parts) for parts in zip(*results, strict=True))
        assert_allclose(data["obs"][:, 0], np.concatenate(obs), **TOLERANCE)
        assert_allclose(data["ret"], ret, **TOLERANCE)
        assert_allclose(data["adv"], (adv - adv.mean()) / adv.std(), **TOLERANCE)
