"""The command line in its plain form: one algorithm, single values."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from spinup import run
from spinup.algos.pytorch import nets
from spinup.training.loop import default_threads


def spinup(*arguments, cwd=None):
    command = [sys.executable, "-m", "spinup.run", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def call(monkeypatch, *arguments):
    """The same in this process: much faster. Returns the exit status."""
    monkeypatch.setattr(sys, "argv", ["spinup", *arguments])
    try:
        run.main()
    except SystemExit as end:
        return end.code
    return 0


def test_a_run_from_the_command_line(tmp_path):
    done = spinup(
        *("ppo", "--env", "CartPole-v1", "--epochs", "2", "--steps_per_epoch", "200", "--seed", "3", "--hid", "[16,8]"),
        *("--act", "relu", "--gamma", "0.95", "--exp_name", "first", "--data_dir", str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "first" / "first_s3"
    assert str(folder) in done.stdout
    config = json.loads((folder / "config.json").read_text())
    assert (config["gamma"], config["seed"], config["exp_name"]) == (0.95, 3, "first")
    assert config["env_fn"] == "CartPole-v1"
    assert config["ac_kwargs"] == {"hidden_sizes": [16, 8], "activation": "ReLU"}
    assert np.genfromtxt(folder / "progress.txt", names=True)["TotalEnvInteracts"].tolist() == [200, 400]
    model = torch.load(folder / "pyt_save" / "model.pt")
    assert isinstance(model, nets.MLPActorCritic)
    assert model.pi.logits_net[0].out_features == 16
    assert model.act(np.zeros(4, dtype=np.float32)) in (0, 1)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ("pppo --env CartPole-v1", "did you mean ppo?"),
        ("ppo", "--env CartPole-v1"),
        ("ppo CartPole-v1", "expected a flag"),
        ("ppo --env Cartpole-v1", "did you mean 'CartPole-v1'?"),
        ("ppo --env HalfCheetah-v2", "did you mean 'HalfCheetah-v5'?"),
        ("ppo --env nosuchmodule:Thing-v0", "cannot import 'nosuchmodule'"),
        ("ppo --env CartPole-v1 --gama 0.9", "did you mean --gamma?"),
        ("ppo --env CartPole-v1 --gamma 1.5", "gamma=1.5: must be a number between 0 and 1"),
        ("ppo --env CartPole-v1 --epochs many", "epochs='many'"),
        ("ppo --env CartPole-v1 --seed 1 2", "takes one value"),
        ("ppo --env CartPole-v1 --hid wide", "sizes of the hidden layers"),
        ("ppo --env CartPole-v1 --act rellu", "did you mean relu?"),
        ("ppo --env CartPole-v1 --ac_kwargs:width 3", "width"),
        ("ppo --env CartPole-v1 --num_envs 3", "num_envs=3 does not divide"),
        ("ppo --env CartPole-v1 --device tpu", "device='tpu'"),
        ("sac --env CartPole-v1", "use PPO, VPG or TRPO"),
        ("trpo --env CartPole-v1 --algo trop", "'trpo' or 'npg'"),
        ("ppo_tf9 --env CartPole-v1", "unknown command 'ppo_tf9'"),
        ("ppo --env", "--env: a value is missing"),
        ("ppo --env CartPole-v1 --hid", "--hid: a value is missing"),
        ("ppo --env CartPole-v1 --exp_name", "--exp_name: a value is missing"),
        ("ppo --env CartPole-v1 --seed", "--seed: a value is missing"),
        ("ppo --env CartPole-v1 --gamma 0.9 --gamma 0.8", "--gamma: given twice"),
        ("ppo --env CartPole-v1 --gamma 0.9 -x 3", "-x: flags begin with two dashes"),
        ("ppo --env CartPole-v1 --hid [True]", "sizes of the hidden layers"),
        ("ppo --env CartPole-v1 --hid [10000000000]", "no network can be made"),
        ("ppo --env CartPole-v1 --ac_kwargs garbage", "--ac_kwargs garbage: set one argument after the other"),
        ("ppo --env CartPole-v1 --ac_kwargs 5 --ac_kwargs:hidden_sizes 8", "--ac_kwargs 5"),
        ("ppo --env CartPole-v1 --ac_kwargs: 1", "unknown flag --ac_kwargs:"),
        ("ppo --env CartPole-v1 --gamma:x 1", "unknown flag --gamma:x"),
        ("ppo --env CartPole-v1 --env_kwargs garbage", "--env_kwargs garbage"),
        ("ppo --env CartPole-v1 --logger_kwargs {}", "unknown flag --logger_kwargs"),
        ("ppo --env :CartPole-v1", "is no name of a module"),
        ("ppo --env ..rel:X-v0", "is no name of a module"),
        ("ppo --env CartPole-v1 --act MultiheadAttention", "no such activation"),
        ("ppo --env CartPole-v1 --act GLU", "no such activation"),
        ("ppo_jax --env CartPole-v1 --act rellu", "did you mean relu?"),
        ("ppo --env CartPole-v1 --device meta", "device='meta'"),
        ("ppo --env CartPole-v1 --steps_per_epoch 1e15", "steps_per_epoch=1000000000000000 needs"),
        ("sac --env Pendulum-v1 --batch_size 1e12", "batch_size=1000000000000 is more than the replay buffer holds"),
        ("ppo --env CartPole-v1 --threads 100000", "threads=100000: must be"),
        ("ppo --env CartPole-v1 --seed -1", "between 0 and 9007199254740992"),
        ("ppo --env CartPole-v1 --dt maybe", "--dt maybe: must be True or False"),
        ("ppo --env CartPole-v1 --exp_name ../../x", "--exp_name '../../x'"),
        ("ppo --env CartPole-v1 --exp_name ..", "--exp_name '..'"),
        ("ppo --env CartPole-v1 --exp_name " + 300 * "x", "1 to 100 letters"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(arguments, expected, monkeypatch, capsys, tmp_path):
    status = call(monkeypatch, *arguments.split(), "--data_dir", str(tmp_path / "data"))
    error = capsys.readouterr().err
    assert status == 2
    assert expected in error
    assert error.startswith("spinup: ") and error.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("directory", ["/dev/null", "/proc/nope"])
def test_a_data_directory_that_cannot_be_made(directory, monkeypatch, capsys):
    assert call(monkeypatch, "ppo", "--env", "CartPole-v1", "--data_dir", directory) == 2
    error = capsys.readouterr().err
    assert f"output_dir='{directory}/" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "variable, value",
    [
        ("SPINUP_BACKEND", "foo"),
        ("SPINUP_FORCE_DATESTAMP", "perhaps"),
        ("SPINUP_WAIT_BEFORE_LAUNCH", "soon"),
        ("SPINUP_DATA_DIR", "/proc/nope"),
    ],
)
def test_a_bad_environment_variable_is_one_line(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    done = spinup("ppo", "--env", "CartPole-v1")
    assert done.returncode == 2 and value in done.stderr and done.stderr.count("\n") == 1


def test_a_thread_count_in_the_environment_that_is_no_number_is_ignored(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "abc")
    assert default_threads() >= 1


def test_the_version(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("spinup ")


def test_a_run_with_jax_from_the_command_line(monkeypatch, tmp_path):
    arguments = "ppo_jax --env CartPole-v1 --epochs 1 --steps_per_epoch 50 --hid 8 --act relu --dt false --exp_name x"
    assert call(monkeypatch, *arguments.split(), "--data_dir", str(tmp_path)) == 0
    config = json.loads((tmp_path / "x" / "x_s0" / "config.json").read_text())
    assert config["ac_kwargs"] == {"hidden_sizes": [8], "activation": "relu"}
    assert (tmp_path / "x" / "x_s0" / "jax_save" / "model.safetensors").exists()


@pytest.mark.parametrize("command", run.COMMANDS)
def test_help_names_every_argument(command, monkeypatch, capsys):
    assert call(monkeypatch, command, "--help") == 0
    text = capsys.readouterr().out
    for name in ("seed", "gamma", "epochs", "num_envs", "threads"):
        assert f"\n    --{name}: " in text
    assert "--env NAME" in text and "env_fn" not in text


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_help_names_the_algorithms(arguments, monkeypatch, capsys):
    assert call(monkeypatch, *arguments) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in run.BASE_ALGO_NAMES)


@pytest.mark.parametrize(
    "name, expected", [("relu", "ReLU"), ("Tanh", "Tanh"), ("torch.nn.ELU", "ELU"), ("nn.SiLU", "SiLU")]
)
def test_activations_by_name(name, expected):
    assert run.activation(name, "pytorch") is getattr(torch.nn, expected)


@pytest.mark.parametrize("name", ["tanh", "jnp.tanh", "leaky_relu", "jax.nn.silu", "Softplus"])
def test_activations_by_name_in_jax(name):
    from spinup.algos.jax import nets

    assert run.activation(name, "jax") is nets.ACTIVATIONS[name.rpartition(".")[2].replace("_", "").lower()]


@pytest.mark.parametrize(
    "text, value",
    [("0.99", 0.99), ("1e-3", 1e-3), ("[64,64]", [64, 64]), ("True", True), ("auto", "auto"), ("x()", "x()")],
)
def test_R12_values_are_data(text, value):
    assert run.parse_value(text) == value
