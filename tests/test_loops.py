"""The training loops, with an agent that learns nothing and writes down everything, and environments on a timetable."""

import math
import random
from types import SimpleNamespace

import backends
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers import (
    OFF_POLICY,
    Scripted,
    Walk,
    column,
    core,
    each,
    each_algorithm,
    each_off_policy,
    importable,
    parameters,
    remembered,
    same,
    saved_model,
    table,
    train,
    without,
)

from spinup.training.errors import NonFiniteError, UserError
from spinup.training.off_policy import OffPolicyLoop
from spinup.training.on_policy import OnPolicyLoop

FAMILIES = ["on-policy", "off-policy"]
each_family = pytest.mark.parametrize("family", FAMILIES)
nan = math.nan


# -- The stub --------------------------------------------------------------------------------------------------------


def V(obs):
    """Large enough to be told apart from rewards, and different in every state."""
    return 100 + 2 * obs[:, 1]


class Stub:
    """Fulfils both protocols of `spinup.training.agent`. It always acts the same and keeps what it is given."""

    def __init__(self, config, observation_space, action_space):
        self.policy = self
        self.action_shape = action_space.shape
        self.updates = 0  # calls of update or update_many: the version of the "parameters"
        self.rollouts, self.blocks, self.saved, self.modes = [], [], [], []
        self.broken_after = math.inf
        self.closed = False

    # Acting
    def sample(self, obs, rng):
        return np.full((len(obs), *self.action_shape), 0.5, dtype=np.float32)

    def mode(self, obs):
        self.modes.append(obs.copy())
        return np.full((len(obs), *self.action_shape), 0.25, dtype=np.float32)

    # Learning
    def value(self, obs):
        return V(obs)

    def value_and_logp(self, obs, act):
        return V(obs), np.zeros(len(obs), dtype=np.float32)

    def update(self, data):
        self.updates += 1
        self.rollouts.append({key: x.copy() for key, x in data.items()})
        return dict(LossPi=float(self.updates))

    def update_many(self, batches):
        self.updates += 1
        self.blocks.append((self.loop.steps, len(batches["rew"])))
        self.batch = batches
        return dict(QVals=batches["rew"].ravel(), LossPi=np.full(len(batches["rew"]), float(self.updates)))

    # The rest
    def start(self):
        pass

    def parameter_counts(self):
        return dict(pi=1, v=2)

    def check_finite(self):
        if self.updates > self.broken_after:
            raise NonFiniteError("the parameter pi is not finite any more")

    def setup_saver(self, logger):
        logger.save_state = lambda state, itr: self.saved.append((self.loop.steps, self.updates, state, itr))

    def close(self):
        self.closed = True


def run(family, env_fn, tmp_path, *, make_agent=Stub, expect=None, prepare=lambda loop: None, **changes):
    """Run a loop with a stub. Returns what there is to look at; `expect` is an error that it must end with."""
    directory = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
    config = dict(env_fn=env_fn, seed=0, steps_per_epoch=10, epochs=2, gamma=0.5, max_ep_len=1000, save_freq=1)
    config |= dict(num_envs=1, threads=1, logger_kwargs=dict(output_dir=str(directory), quiet=True))
    if family == "on-policy":
        loop = OnPolicyLoop(config | dict(lam=0.5) | changes, make_agent, ["LossPi"])
    else:
        config |= dict(replay_size=1000, batch_size=3, start_steps=0, update_after=0, update_every=1)
        loop = OffPolicyLoop(config | dict(num_test_episodes=0) | changes, make_agent, ["QVals"], ["LossPi"])
    loop.agent.loop = loop
    prepare(loop)
    error = None
    if expect is None:
        loop.run()
    else:
        with pytest.raises(expect) as caught:
            loop.run()
        error = caught.value
    return SimpleNamespace(loop=loop, agent=loop.agent, directory=directory, error=error)


def one_each(*envs):
    envs = iter(envs)
    return lambda: next(envs)


def test_the_stub_follows_the_protocols(tmp_path):
    for family in FAMILIES:
        result = run(family, Scripted, tmp_path)
        assert column(result.directory, "Epoch") == ([0, 1] if family == "on-policy" else [1, 2])
        assert result.agent.closed
        assert result.loop.logger.output_file.closed


# -- Episodes --------------------------------------------------------------------------------------------------------


@each_family
def test_A06_A27_episodes_carry_on_over_epoch_ends(family, tmp_path):
    """Episodes of 7 steps, rewards 1, 2, ..., 7, epochs of 5 steps: one ends in the 2nd, none in the 4th epoch..."""
    env = Scripted((7, "terminated"), reward=lambda episode, t: float(t))
    result = run(family, one_each(env, Scripted()), tmp_path, steps_per_epoch=5, epochs=6)
    lengths = [nan, 7, 7, nan, 7, 7]  # ends after steps 7, 14, 21, 28 of 30
    assert same(column(result.directory, "EpLen"), lengths)
    assert same(column(result.directory, "AverageEpRet"), [28 * n / 7 for n in lengths])
    for name in ("StdEpRet", "MaxEpRet", "MinEpRet"):
        assert same([math.isnan(x) for x in column(result.directory, name)], [math.isnan(n) for n in lengths])
    assert env.episode == 4 and len(env.actions) == 30  # no other resets than those of five episodes


@each_family
def test_returns_of_all_episodes_that_finished_in_an_epoch(family, tmp_path):
    script = [(2, "terminated"), (5, "truncated"), (3, "terminated")]
    env_fn = lambda: Scripted(*script, reward=lambda episode, t: 10.0 * episode + t)  # noqa: E731
    result = run(family, env_fn, tmp_path, epochs=1)
    # 1+2, 11+...+15, 21+22+23
    returns, lengths = [3, 65, 66], [2, 5, 3]
    expected = dict(
        AverageEpRet=np.mean(returns), StdEpRet=np.std(returns), MaxEpRet=66, MinEpRet=3, EpLen=np.mean(lengths)
    )
    assert {name: column(result.directory, name)[0] for name in expected} == pytest.approx(expected, rel=1e-6)


@each_family
def test_returns_are_added_up_in_double_precision(family, tmp_path):
    result = run(family, lambda: Scripted((10, "terminated"), reward=lambda *_: 0.1), tmp_path, epochs=1)
    assert column(result.directory, "AverageEpRet")[0] == pytest.approx(1.0, abs=1e-12)


@each_family
def test_episodes_of_several_environments_are_counted_apart(family, tmp_path):
    envs = one_each(*(Scripted((n, "terminated"), reward=lambda *_, n=n: float(n)) for n in (2, 3, 4, 99)))
    result = run(family, envs, tmp_path, num_envs=3, steps_per_epoch=12, epochs=1)
    # four steps of each: 2 + 2, 3 and 1 to go, 4
    assert column(result.directory, "EpLen")[0] == pytest.approx((2 + 2 + 3 + 4) / 4)
    assert column(result.directory, "AverageEpRet")[0] == pytest.approx((4 + 4 + 9 + 16) / 4)


@each_family
def test_max_ep_len_cuts_episodes(family, tmp_path):
    env = Scripted()
    result = run(family, one_each(env, Scripted()), tmp_path, max_ep_len=4)
    assert column(result.directory, "EpLen") == [4, 4]
    assert env.episode == 5 and env.t == 0  # 20 steps are 5 full episodes, the sixth has begun


@each_family
def test_A13_only_the_first_reset_of_training_is_seeded(family, tmp_path):
    env = Scripted((4, "terminated"))
    run(family, one_each(env, Scripted()), tmp_path)
    first, *rest = env.seeds
    assert type(first) is int and rest == [None] * 5


# -- Where paths end, and what stands in for the rest ----------------------------------------------------------------

CUT_3 = [15, 28, 54]  # 1 + 0.5 * (1 + 0.5 * (1 + 0.5 * V)), V = 100 + 2 * 3 of the true final state
TERMINAL_3 = [1.75, 1.5, 1]


@pytest.mark.parametrize(
    "script, max_ep_len, ret",
    [
        pytest.param([(3, "terminated")], 1000, TERMINAL_3, id="A04-terminal-on-the-last-step-of-the-epoch"),
        pytest.param([(3, "terminated")], 3, TERMINAL_3, id="A04-terminal-at-max_ep_len"),
        pytest.param([(3, "terminated, truncated")], 1000, TERMINAL_3, id="A04-terminal-and-truncated-at-once"),
        pytest.param([(3, "truncated")], 1000, CUT_3, id="A05-time-limit-of-the-environment"),
        pytest.param([(3, "truncated")], 3, CUT_3, id="A05-time-limit-equal-to-max_ep_len"),
        pytest.param([], 3, CUT_3, id="max_ep_len"),
        pytest.param([], 1000, CUT_3, id="epoch-end"),
        # A fourth step belongs to the next episode, cut by the end of the epoch after one step: 1 + 0.5 * 102.
        pytest.param([(3, "terminated")], 1000, [*TERMINAL_3, 52], id="A04-terminal-inside-the-epoch"),
        pytest.param([(3, "truncated")], 1000, [*CUT_3, 52], id="A05-time-limit-inside-the-epoch"),
        pytest.param([], 3, [*CUT_3, 52], id="max_ep_len-inside-the-epoch"),
        pytest.param([(1, "terminated"), (2, "truncated")], 1000, [1, 27.5, 53, 1], id="one-after-the-other"),
    ],
)
def test_A04_A05_returns_of_paths(script, max_ep_len, ret, tmp_path):
    steps = len(ret)
    result = run("on-policy", lambda: Scripted(*script), tmp_path, steps_per_epoch=steps, max_ep_len=max_ep_len)
    assert result.agent.rollouts[0]["ret"].tolist() == ret


def test_A05_the_time_limit_of_a_real_wrapper_is_no_terminal_state(tmp_path):
    env_fn = lambda: gym.wrappers.TimeLimit(Scripted(), 3)  # noqa: E731
    result = run("on-policy", env_fn, tmp_path, steps_per_epoch=4)
    assert result.agent.rollouts[0]["ret"].tolist() == [*CUT_3, 52]
    result = run("off-policy", env_fn, tmp_path)
    assert not result.loop.buffer.done_buf.any() and column(result.directory, "EpLen") == [3, 3]


def test_a_path_goes_on_in_the_next_epoch(tmp_path):
    """Epochs of 2 steps: the second begins with the third step of the episode and knows its values."""
    result = run("on-policy", lambda: Scripted((3, "terminated")), tmp_path, steps_per_epoch=2)
    first, second = result.agent.rollouts
    assert first["ret"].tolist() == [1 + 0.5 * 53, 53]  # V = 104 after two steps
    assert second["obs"].tolist() == [[0, 2], [1, 0]]
    assert second["ret"].tolist() == [1, 52]


def test_advantages_of_paths(tmp_path):
    """gamma = lam = 0.5, by hand: delta_t = 1 + 0.5 V(s_{t+1}) - V(s_t), adv_t = delta_t + 0.25 adv_{t+1}."""
    result = run("on-policy", lambda: Scripted((2, "terminated")), tmp_path, steps_per_epoch=3)
    deltas = [1 + 51 - 100, 1 - 102, 1 + 51 - 100]  # the third step is a path of its own, cut after it
    adv = np.array([deltas[0] + 0.25 * deltas[1], deltas[1], deltas[2]])
    expected = (adv - adv.mean()) / adv.std()
    assert result.agent.rollouts[0]["adv"] == pytest.approx(expected, rel=1e-5)


def test_rollouts_hold_what_was_seen_and_done(tmp_path):
    env = Scripted((3, "terminated"))
    result = run("on-policy", lambda: env, tmp_path, steps_per_epoch=5, epochs=1)
    (data,) = result.agent.rollouts
    assert data["obs"].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]  # never a final observation
    assert data["act"].tolist() == [[0.5]] * 5 == [a.tolist() for a in env.actions]
    assert {key: x.dtype for key, x in data.items()} == dict.fromkeys(data, np.dtype(np.float32))
    assert set(data) == {"obs", "act", "ret", "adv", "logp"}


def test_A20_buffers_keep_the_action_of_the_policy_and_the_environment_gets_the_clipped_one(tmp_path):
    env = Scripted(action_space=spaces.Box(-0.125, 0.125, (1,)))
    result = run("on-policy", lambda: env, tmp_path, epochs=1)
    assert set(result.agent.rollouts[0]["act"].ravel()) == {0.5}
    assert {float(a[0]) for a in env.actions} == {0.125}


def test_rollouts_of_several_environments(tmp_path):
    """Steps of both environments alternate; each has paths of its own."""
    envs = one_each(Scripted((1, "terminated")), Scripted((2, "truncated")))
    result = run("on-policy", envs, tmp_path, num_envs=2, steps_per_epoch=6)
    data = result.agent.rollouts[0]
    assert data["obs"].tolist() == [[0, 0], [0, 0], [1, 0], [0, 1], [2, 0], [1, 0]]
    # First: terminal each time. Second: 1 + 0.5 * (1 + 0.5 * 104), then the epoch ends: 1 + 0.5 * 102.
    assert data["ret"].tolist() == [1, 27.5, 1, 53, 1, 52]


def test_rewards_of_several_environments_are_kept_apart(tmp_path):
    envs = one_each(*(Scripted(reward=lambda episode, t, k=k: k + 1.0) for k in range(3)))
    result = run("on-policy", envs, tmp_path, num_envs=3, steps_per_epoch=6)
    assert result.loop.rollout.rew.tolist() == [[1, 2, 3], [1, 2, 3]]


def test_A23_off_policy_buffers_store_terminal_states_only(tmp_path):
    """Episodes of 3: terminal, cut by the environment, terminal and cut; then 4 and 5 steps with max_ep_len = 4."""
    script = [(3, "terminated"), (3, "truncated"), (3, "terminated, truncated"), (4, "terminated"), (5, "terminated")]
    env = Scripted(*script)
    result = run("off-policy", lambda: env, tmp_path, steps_per_epoch=17, epochs=1, max_ep_len=4)
    buffer = result.loop.buffer
    assert buffer.size == 17
    ends = {2: True, 5: False, 8: True, 12: True, 16: False}
    assert {i: bool(buffer.done_buf[i]) for i in ends} == ends
    assert buffer.done_buf.sum() == 3
    episodes = [(e, length) for e, length in enumerate([3, 3, 3, 4, 4])]
    # Every transition, the last of an episode included, leads to the true next state.
    assert buffer.obs_buf[:17].tolist() == [[e, t] for e, length in episodes for t in range(length)]
    assert buffer.obs2_buf[:17].tolist() == [[e, t + 1] for e, length in episodes for t in range(length)]
    assert buffer.rew_buf[:17].tolist() == [1] * 17
    assert buffer.act_buf[:17].ravel().tolist() == [0.5] * 17 == [float(a[0]) for a in env.actions]


def test_off_policy_transitions_of_several_environments(tmp_path):
    envs = one_each(Scripted((1, "terminated")), Scripted((2, "truncated")), Scripted())
    result = run("off-policy", envs, tmp_path, num_envs=2, steps_per_epoch=6, epochs=1)
    buffer = result.loop.buffer
    assert buffer.obs_buf[:6].tolist() == [[0, 0], [0, 0], [1, 0], [0, 1], [2, 0], [1, 0]]
    assert buffer.obs2_buf[:6].tolist() == [[0, 1], [0, 1], [1, 1], [0, 2], [2, 1], [1, 1]]
    assert buffer.done_buf[:6].tolist() == [1, 0, 1, 0, 1, 0]


# -- Counting steps --------------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("num_envs", [1, 4])
def test_A12_A24_total_env_interacts_is_the_number_of_steps_taken(family, num_envs, tmp_path):
    made = remembered(Scripted)
    result = run(family, made, tmp_path, num_envs=num_envs, steps_per_epoch=8, epochs=3)
    assert column(result.directory, "TotalEnvInteracts") == [8, 16, 24]
    assert [len(env.actions) for env in made.made[:num_envs]] == [24 // num_envs] * num_envs


@pytest.mark.parametrize(
    "steps, procs, num_envs, local", [(10, 3, 1, 3), (12, 3, 1, 4), (27, 3, 4, None), (26, 3, 4, 8)]
)
def test_A12_steps_that_do_not_divide_by_the_processes_are_left_out_and_not_claimed(
    steps, procs, num_envs, local, tmp_path, monkeypatch
):
    monkeypatch.setattr("spinup.training.on_policy.num_procs", lambda: procs)
    made = remembered(Scripted)
    if local is None:  # 27 steps over 3 processes are 9 each, which 4 environments cannot share
        with pytest.raises(UserError, match=r"num_envs=4 does not divide the 9 steps .* multiple of 12"):
            run("on-policy", made, tmp_path, steps_per_epoch=steps, num_envs=num_envs)
        return
    result = run("on-policy", made, tmp_path, steps_per_epoch=steps, num_envs=num_envs)
    assert sum(len(env.actions) for env in made.made) == 2 * local
    assert column(result.directory, "TotalEnvInteracts") == [procs * local, 2 * procs * local]


def test_A36_off_policy_algorithms_refuse_several_processes(tmp_path, monkeypatch):
    monkeypatch.setattr("spinup.training.off_policy.num_procs", lambda: 2)
    with pytest.raises(UserError, match=r"one process, .* use num_envs"):
        run("off-policy", Scripted, tmp_path)
    assert not list(tmp_path.iterdir())


# -- Random actions and updates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_steps", [0, 1, 7, 10, 11, 20, 30])
def test_A25_exact_number_of_random_actions(start_steps, tmp_path):
    env = Scripted()
    run("off-policy", one_each(env, Scripted()), tmp_path, start_steps=start_steps)
    policy = [float(a[0]) == 0.5 for a in env.actions]
    assert policy == [False] * min(start_steps, 20) + [True] * max(0, 20 - start_steps)


@pytest.mark.parametrize("start_steps, random_steps", [(0, 0), (4, 4), (5, 8), (8, 8)])
def test_A25_random_actions_of_several_environments_end_together(start_steps, random_steps, tmp_path):
    """At least start_steps; all environments change over at once."""
    made = remembered(Scripted)
    run("off-policy", made, tmp_path, start_steps=start_steps, num_envs=4, steps_per_epoch=20, epochs=1)
    assert sum(float(a[0]) != 0.5 for env in made.made[:4] for a in env.actions) == random_steps


def test_A13_random_actions_follow_from_the_seed_and_are_uniform_between_the_bounds(tmp_path):
    space = spaces.Box(np.float32([-1, 0]), np.float32([3, 0.5]))

    def actions(seed):
        env = Scripted(action_space=space)
        run("off-policy", one_each(env, env), tmp_path, seed=seed, start_steps=1000, steps_per_epoch=1000, epochs=1)
        return np.array(env.actions)

    first, second, other = actions(0), actions(0), actions(1)
    assert (first == second).all() and (first != other).any()
    unit = (first - space.low) / (space.high - space.low)
    assert unit.min() >= 0 and unit.max() <= 1
    # A uniform number has mean 1/2 and standard deviation 0.289; 1000 of them know the mean to 0.009.
    assert unit.mean(0) == pytest.approx([0.5, 0.5], abs=0.04) and unit.std(0) == pytest.approx([0.289] * 2, abs=0.02)
    assert abs(np.corrcoef(unit.T)[0, 1]) < 0.15


@pytest.mark.parametrize(
    "update_after, update_every, num_envs, blocks",
    [
        # (steps taken so far, gradient steps): a block after step t (from 0) if t >= update_after is a multiple
        (10, 4, 1, [(13, 4), (17, 4), (21, 4)]),
        (12, 4, 1, [(13, 4), (17, 4), (21, 4)]),
        (0, 8, 1, [(1, 8), (9, 8), (17, 8)]),
        (20, 1, 1, [(21, 1), (22, 1), (23, 1), (24, 1)]),
        (24, 1, 1, []),
        # With 4 environments, a block for each multiple among the four steps just taken.
        (10, 4, 4, [(16, 4), (20, 4), (24, 4)]),
        (12, 4, 4, [(16, 4), (20, 4), (24, 4)]),
        (0, 8, 4, [(4, 8), (12, 8), (20, 8)]),
        (20, 1, 4, [(24, 1)] * 4),
        (18, 2, 4, [(20, 2), (24, 2), (24, 2)]),
        (0, 3, 4, [(4, 3), (4, 3), (8, 3), (12, 3), (16, 3), (16, 3), (20, 3), (24, 3)]),
    ],
)
def test_A26_schedule_of_updates(update_after, update_every, num_envs, blocks, tmp_path):
    changes = dict(update_after=update_after, update_every=update_every, num_envs=num_envs)
    result = run("off-policy", Scripted, tmp_path, steps_per_epoch=12, **changes)
    assert result.agent.blocks == blocks


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("update_every", [1, 2, 5, 50])
def test_A26_one_update_per_step_in_the_long_run(num_envs, update_every, tmp_path):
    """Whatever the number of environments. Nothing is made up for the first `update_after` steps."""
    changes = dict(num_envs=num_envs, update_every=update_every, update_after=100)
    result = run("off-policy", Scripted, tmp_path, steps_per_epoch=300, epochs=1, **changes)
    assert sum(k for _, k in result.agent.blocks) == 200


def test_large_blocks_of_updates_come_in_pieces(tmp_path):
    result = run("off-policy", Scripted, tmp_path, steps_per_epoch=130, epochs=1, update_after=1, update_every=120)
    assert sum(k for _, k in result.agent.blocks) == 120 and {t for t, _ in result.agent.blocks} == {121}
    assert column(result.directory, "LossPi")[0] == pytest.approx(
        np.average(range(1, len(result.agent.blocks) + 1), weights=[k for _, k in result.agent.blocks])
    )


def test_minibatches_hold_stored_transitions(tmp_path):
    env_fn = lambda: Scripted((3, "terminated"), reward=lambda episode, t: 10.0 * episode + t)  # noqa: E731
    result = run("off-policy", env_fn, tmp_path, steps_per_epoch=30, epochs=1, batch_size=50, update_every=29)
    batch = result.agent.batch
    shapes = {key: x.shape for key, x in batch.items()}
    assert shapes == dict(obs=(29, 50, 2), act=(29, 50, 1), rew=(29, 50), obs2=(29, 50, 2), done=(29, 50))
    episode, t = batch["obs"][..., 0], batch["obs"][..., 1]
    assert (batch["rew"] == 10 * episode + t + 1).all()
    assert (batch["obs2"] == np.stack([episode, t + 1], axis=-1)).all()
    assert (batch["done"] == (t == 2)).all()
    assert len(set(batch["rew"].ravel())) == 30  # every one of the 30 transitions turns up in 1450 draws


def test_replay_buffers_forget_the_oldest(tmp_path):
    result = run("off-policy", Scripted, tmp_path, steps_per_epoch=13, epochs=1, replay_size=5)
    assert sorted(result.loop.buffer.obs_buf[:, 1]) == [8, 9, 10, 11, 12] and result.loop.buffer.size == 5


class Noisy(Stub):
    """A deterministic policy, for exploration by action noise."""

    def mode(self, obs):
        return np.zeros((len(obs), *self.action_shape), dtype=np.float32)


def noisy_actions(tmp_path, space, **changes):
    env = Scripted(action_space=space)
    changes |= dict(make_agent=Noisy, steps_per_epoch=500, epochs=1)
    result = run("off-policy", one_each(env, env), tmp_path, **changes)
    stored = result.loop.buffer.act_buf[:500]
    assert (stored == np.array(env.actions)).all()
    return stored


def test_A35_action_noise_is_in_units_of_the_action(tmp_path):
    space = spaces.Box(np.float32([-100, -1000]), np.float32([100, 3000]))
    actions = noisy_actions(tmp_path, space, act_noise=2.0)
    assert actions.mean(0) == pytest.approx([0, 0], abs=0.4) and actions.std(0) == pytest.approx([2, 2], abs=0.3)


def test_A28_noisy_actions_stay_within_the_bounds_of_each_dimension(tmp_path):
    space = spaces.Box(np.float32([-1, -0.25]), np.float32([0.5, 3]))
    actions = noisy_actions(tmp_path, space, act_noise=10.0)
    assert (actions.min(0) == space.low).all() and (actions.max(0) == space.high).all()


# -- Saving ----------------------------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize(
    "save_freq, epochs, on, off",
    [(1, 3, [0, 1, 2], [1, 2, 3]), (2, 5, [0, 2, 4], [2, 4, 5]), (2, 4, [0, 2, 3], [2, 4]), (10, 3, [0, 2], [3])],
)
def test_A07_models_are_saved_when_due_and_after_the_update(family, save_freq, epochs, on, off, tmp_path):
    result = run(family, Scripted, tmp_path, steps_per_epoch=5, epochs=epochs, save_freq=save_freq)
    # Steps and updates so far: one update in each epoch on-policy, one per step off-policy.
    expected = [(5 * (e + 1), e + 1) for e in on] if family == "on-policy" else [(5 * e, 5 * e) for e in off]
    assert [(steps, updates) for steps, updates, *_ in result.agent.saved] == expected
    assert all(state == {"env": result.loop.envs.envs[0]} and itr is None for *_, state, itr in result.agent.saved)


@each_algorithm
def test_A07_the_saved_model_is_the_final_one(backend, algo, tmp_path):
    with backends.get(backend).recorded() as runs:
        directory = train(backend, algo, Walk, tmp_path / "run")
    trained, saved = runs[0].params(), parameters(backend, saved_model(backend, directory))
    assert saved.keys() == trained.keys()
    assert all((saved[name] == trained[name]).all() for name in saved)


@each_family
def test_broken_parameters_never_replace_good_ones(family, tmp_path):
    def prepare(loop):
        loop.agent.broken_after = 1 if family == "on-policy" else 5

    result = run(family, Scripted, tmp_path, steps_per_epoch=5, epochs=3, prepare=prepare, expect=NonFiniteError)
    assert len(result.agent.saved) == 1
    epoch = 1 if family == "on-policy" else 2  # as the table would have counted it
    assert str(result.error) == f"stopped in epoch {epoch} after 10 steps: the parameter pi is not finite any more"
    assert len(table(result.directory)) == 2  # the header and the good epoch


# -- Evaluation ------------------------------------------------------------------------------------------------------


def test_evaluation_takes_the_best_action_in_an_environment_of_its_own(tmp_path):
    training, testing = Scripted(), Scripted((3, "terminated"), (2, "truncated"), reward=lambda e, t: 10.0 * e + t)
    result = run("off-policy", one_each(training, testing), tmp_path, num_test_episodes=2)
    assert len(training.actions) == 20 and {float(a[0]) for a in training.actions} == {0.5}
    assert len(testing.actions) == 10 and {float(a[0]) for a in testing.actions} == {0.25}
    # 1+2+3 and 11+12; 21+22+23 and 31+32
    assert column(result.directory, "AverageTestEpRet") == [(6 + 23) / 2, (66 + 63) / 2]
    assert column(result.directory, "MaxTestEpRet") == [23, 66]
    assert column(result.directory, "TestEpLen") == [2.5, 2.5]
    # It acts on what it sees, and every episode has a seed of its own.
    seen = [obs.tolist() for obs in result.agent.modes[:5]]
    assert seen == [[[0, 0]], [[0, 1]], [[0, 2]], [[1, 0]], [[1, 1]]]
    assert len(set(testing.seeds)) == 4 and None not in testing.seeds
    assert not set(testing.seeds) & set(training.seeds)


def test_evaluation_respects_max_ep_len(tmp_path):
    testing = Scripted()
    result = run("off-policy", one_each(Scripted(), testing), tmp_path, num_test_episodes=2, max_ep_len=4)
    assert len(testing.actions) == 16 and column(result.directory, "TestEpLen") == [4, 4]


def test_evaluation_seeds_do_not_depend_on_the_number_of_episodes_before(tmp_path):
    """The first episode of a longer evaluation is the one of a shorter evaluation."""
    seeds = []
    for episodes in (1, 3):
        testing = Scripted((2, "terminated"))
        run("off-policy", one_each(Scripted(), testing), tmp_path, num_test_episodes=episodes, epochs=1)
        seeds.append(testing.seeds)
    assert seeds[0] == seeds[1][:1] and len(seeds[1]) == 3


def test_A13_evaluation_leaves_the_generators_of_training_alone(tmp_path):
    states = []
    for episodes in (0, 3):
        envs = one_each(Scripted(), Scripted((2, "terminated")))
        rngs = run("off-policy", envs, tmp_path, num_test_episodes=episodes, start_steps=5).loop.rngs._asdict()
        states.append({purpose: rng.bit_generator.state for purpose, rng in rngs.items()})
    changed = [purpose for purpose in states[0] if states[0][purpose] != states[1][purpose]]
    assert changed == ["evaluation"]


class GlobalRandomness(Scripted):
    """An environment without seeds: it draws from the generators that everybody shares."""

    def _obs(self):
        return super()._obs() + np.float32([np.random.normal(), random.random()])


EVALUATED = {
    "Walk": Walk,
    "Pendulum": lambda: gym.make("Pendulum-v1"),
    "global generators": lambda: GlobalRandomness((9, "terminated")),
}


@each_off_policy
@pytest.mark.parametrize("env_fn", EVALUATED.values(), ids=EVALUATED)
def test_A13_evaluation_consumes_no_randomness_of_training(backend, algo, env_fn, tmp_path):
    tables = [without(train(backend, algo, env_fn, tmp_path / str(n), num_test_episodes=n), ".*Test.*") for n in (0, 3)]
    assert tables[0] == tables[1]


@each(*OFF_POLICY, backends=["pytorch"])
def test_A13_evaluation_of_a_users_network_consumes_no_randomness_of_training(backend, algo, tmp_path):
    torch = pytest.importorskip("torch")

    @importable
    class Dithering(core(backend, algo).MLPActorCritic):
        """Random even when asked for the best action."""

        def act(self, obs, *deterministic):
            return super().act(obs, *deterministic) + 0.01 * torch.rand(1).numpy()

    tables = [
        without(train(backend, algo, Walk, tmp_path / str(n), num_test_episodes=n, actor_critic=Dithering), ".*Test.*")
        for n in (0, 3)
    ]
    assert tables[0] == tables[1]


def test_training_and_test_may_share_an_environment(tmp_path):
    """The evaluation ends the episode that was running; training begins a new one."""
    env = Scripted(reward=lambda episode, t: 1.0)
    result = run("off-policy", lambda: env, tmp_path, steps_per_epoch=5, epochs=3, max_ep_len=7, num_test_episodes=1)
    buffer = result.loop.buffer
    # Each epoch: 5 steps of training, an evaluation of 7, a restart. Training never gets to step 7.
    episodes = [0, 2, 4]
    assert buffer.obs_buf[:15].tolist() == [[e, t] for e in episodes for t in range(5)]
    assert buffer.obs2_buf[:15].tolist() == [[e, t + 1] for e in episodes for t in range(5)]
    assert all(map(math.isnan, column(result.directory, "EpLen")))
    assert column(result.directory, "TestEpLen") == [7, 7, 7]


def test_a_shared_environment_is_not_restarted_for_an_evaluation_of_no_episodes(tmp_path):
    env = Scripted((7, "terminated"))
    result = run("off-policy", lambda: env, tmp_path, steps_per_epoch=5, epochs=3)
    assert same(column(result.directory, "EpLen"), [nan, 7, 7])


def test_an_environment_shared_inside_wrappers_is_noticed(tmp_path):
    env = Scripted()
    env_fn = lambda: gym.wrappers.TimeLimit(env, 100)  # noqa: E731
    result = run("off-policy", env_fn, tmp_path, steps_per_epoch=5, epochs=2, max_ep_len=7, num_test_episodes=1)
    buffer = result.loop.buffer
    assert buffer.obs_buf[:10].tolist() == [[e, t] for e in (0, 2) for t in range(5)]
    assert buffer.obs2_buf[:10].tolist() == [[e, t + 1] for e in (0, 2) for t in range(5)]


# -- Nothing to report -----------------------------------------------------------------------------------------------


def test_A06_A27_an_epoch_in_which_nothing_happened(tmp_path):
    """No episode ends, nothing is learned, nothing is evaluated: NaN in the first row as in later ones."""
    result = run("off-policy", Scripted, tmp_path, update_after=100)
    empty = [name for name in table(result.directory)[0] if name not in ("Epoch", "TotalEnvInteracts", "Time")]
    assert len(empty) == 4 + 4 + 2 + 4 + 1  # EpRet, TestEpRet, EpLen and TestEpLen, QVals, LossPi
    for name in empty:
        assert all(map(math.isnan, column(result.directory, name))), name
    assert column(result.directory, "TotalEnvInteracts") == [10, 20]


@each_algorithm
def test_A06_A27_algorithms_log_nan_where_there_is_nothing(backend, algo, tmp_path):
    changes = dict(steps_per_epoch=5, max_ep_len=12, epochs=3)
    if algo in ("ddpg", "td3", "sac"):
        changes |= dict(start_steps=100, update_after=1000, num_test_episodes=0)
    directory = train(backend, algo, Scripted, tmp_path / "run", **changes)
    assert same(column(directory, "EpLen"), [nan, nan, 12])
    assert same(column(directory, "AverageEpRet"), [nan, nan, 12])
    finite = [math.isfinite(x) for x in column(directory, "LossPi")]
    assert finite == [algo in ("vpg", "trpo", "ppo")] * 3


# -- What ends a run early -------------------------------------------------------------------------------------------


@each_family
def test_an_error_of_the_environment_ends_the_run_in_good_order(family, tmp_path):
    class Broken(Scripted):
        def step(self, action):
            if len(self.actions) == 14:
                raise RuntimeError("boom")
            return super().step(action)

    result = run(family, Broken, tmp_path, expect=RuntimeError)
    assert result.error.args == ("boom",)
    (note,) = result.error.__notes__
    assert "step() of environment 0" in note and f"seed {result.loop.envs.seeds[0]}" in note
    assert result.agent.closed and result.loop.logger.output_file.closed
    assert len(table(result.directory)) == 2  # the header and the first epoch


@each_family
def test_a_bad_number_ends_the_run_naming_epoch_and_step_as_the_table_counts_them(family, tmp_path):
    """The 15th step, in the second epoch of 10 steps: Epoch 1 on-policy, Epoch 2 off-policy."""
    env = Scripted(reward=lambda episode, t: nan if t == 15 else 1.0)
    result = run(family, one_each(env, Scripted()), tmp_path, epochs=3, expect=NonFiniteError)
    seed, epoch = result.loop.envs.seeds[0], 1 if family == "on-policy" else 2
    assert (
        str(result.error) == f"stopped in epoch {epoch} after 14 steps: environment 0 (seed {seed}) gave the reward nan"
    )
    stored = result.agent.rollouts[0]["ret"] if family == "on-policy" else result.loop.buffer.rew_buf
    assert np.isfinite(stored).all()
    assert result.agent.closed and result.loop.logger.output_file.closed


def test_a_bad_number_in_the_evaluation_says_that_it_was_there(tmp_path):
    bad = Scripted(reward=lambda episode, t: nan if t == 3 else 1.0)
    envs = one_each(Scripted(), bad)
    result = run("off-policy", envs, tmp_path, num_test_episodes=1, expect=NonFiniteError)
    message = str(result.error)
    assert message.startswith("stopped in epoch 1 after 10 steps: ") and "reward nan" in message
    assert "evaluation" in message or "test" in message
