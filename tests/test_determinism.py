"""Same seed, same machine, same versions: the same table to the last byte, but for the column Time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gymnasium import spaces
from helpers import OFF_POLICY, Walk, each, each_algorithm, parameters, saved_model, train, without

from spinup.training.envs import env_fn_from_name

TESTS = Path(__file__).parent


def model(backend, directory):
    return {name: p.tolist() for name, p in parameters(backend, saved_model(backend, directory)).items()}


def outcome(backend, directory):
    """Everything that a run computed: its table as text, and its weights."""
    return without(directory), model(backend, directory)


@each_algorithm
@pytest.mark.parametrize("num_envs", [1, 4])
def test_A13_same_seed_same_run(backend, algo, num_envs, tmp_path):
    runs = [
        outcome(backend, train(backend, algo, Walk, tmp_path / name, seed=seed, num_envs=num_envs))
        for name, seed in [("first", 3), ("second", 3), ("other", 4)]
    ]
    assert runs[0] == runs[1]
    (table, weights), (other_table, other_weights) = runs[0], runs[2]
    assert table[0] == other_table[0]
    assert all(row != other for row, other in zip(table[1:], other_table[1:], strict=True))
    assert all(weights[name] != other_weights[name] for name in weights if "log_std" not in name)


@each_algorithm
def test_A13_the_table_is_the_same_to_the_last_byte(backend, algo, tmp_path):
    """Bytes, not numbers: also how they are written."""

    def raw(name):
        directory = train(backend, algo, Walk, tmp_path / name)
        lines = (directory / "progress.txt").read_bytes().splitlines(keepends=True)
        assert lines[0].endswith(b"\tTime\n")
        return [line.rpartition(b"\t")[0] for line in lines]

    assert raw("first") == raw("second")


@each("vpg", "trpo", "ppo")
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 2])], ids=["Discrete", "MultiDiscrete"])
def test_A13_same_seed_same_run_with_other_actions(backend, algo, space, tmp_path):
    class Env(Walk):
        def __init__(self):
            super().__init__(space)

        def step(self, action):
            return super().step(action if isinstance(space, spaces.Discrete) else action.sum())

    runs = [without(train(backend, algo, Env, tmp_path / str(i), normalize_obs=True)) for i in range(2)]
    assert runs[0] == runs[1]


@each("ppo", "sac")
def test_A13_same_seed_same_run_on_envpool(backend, algo, tmp_path):
    pytest.importorskip("envpool")
    env_fn = env_fn_from_name("envpool:Pendulum-v1")
    runs = [without(train(backend, algo, env_fn, tmp_path / str(i), num_envs=2, seed=i // 2)) for i in range(3)]
    assert runs[0] == runs[1] != runs[2]


@each(*OFF_POLICY)
def test_A13_seeds_decide_evaluations_too(backend, algo, tmp_path):
    """Without learning, everything in the columns of the tests comes from the seeds of the evaluation."""
    changes = dict(update_after=1000, num_test_episodes=3, start_steps=1000)
    runs = [without(train(backend, algo, Walk, tmp_path / str(i), seed=i // 2, **changes)) for i in range(3)]
    tests = [[row[i] for i, name in enumerate(run[0]) if "Test" in name] for run in runs for row in run[1:]]
    assert tests[:2] == tests[2:4] and not set(tests[0]) & set(tests[4])
    assert tests[0] != tests[1]  # and every evaluation has new ones


RUN = "import sys; from helpers import *; train(sys.argv[1], sys.argv[2], Walk, sys.argv[3], threads=None)"


def in_a_fresh_process(backend, algo, directory, hash_seed):
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)}
    subprocess.run([sys.executable, "-c", RUN, backend, algo, str(directory)], env=env, check=True)
    return directory


def check_fresh_processes(backend, algo, tmp_path):
    fresh = [outcome(backend, in_a_fresh_process(backend, algo, tmp_path / f"fresh{i}", i)) for i in range(2)]
    one_after_the_other = [
        outcome(backend, train(backend, algo, Walk, tmp_path / f"here{i}", threads=None)) for i in range(2)
    ]
    assert fresh[0] == fresh[1] == one_after_the_other[0] == one_after_the_other[1]


@each("ppo", "sac")
def test_A13_fresh_processes_and_runs_one_after_the_other_agree(backend, algo, tmp_path):
    check_fresh_processes(backend, algo, tmp_path)


@pytest.mark.slow
@each("vpg", "trpo", "ddpg", "td3")
def test_A13_fresh_processes_and_runs_one_after_the_other_agree_for_all(backend, algo, tmp_path):
    check_fresh_processes(backend, algo, tmp_path)


@pytest.mark.slow
@each_algorithm
def test_A13_same_seed_same_run_with_networks_of_the_usual_size(backend, algo, tmp_path):
    """Large enough for libraries to share the work among threads."""
    changes = dict(ac_kwargs={}, steps_per_epoch=100, threads=2)
    if algo in OFF_POLICY:
        changes |= dict(batch_size=100)
    runs = [outcome(backend, train(backend, algo, Walk, tmp_path / str(i), **changes)) for i in range(2)]
    assert runs[0] == runs[1]
