"""The command line in its plain form: one algorithm, single values."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from spinup import run
from spinup.algos.pytorch import nets


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
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(arguments, expected, monkeypatch, capsys, tmp_path):
    status = call(monkeypatch, *arguments.split(), "--data_dir", str(tmp_path / "data"))
    error = capsys.readouterr().err
    assert status == 2
    assert expected in error
    assert error.startswith("spinup: ") and error.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", run.COMMANDS)
def test_help_names_every_argument(command, monkeypatch, capsys):
    assert call(monkeypatch, command, "--help") == 0
    text = capsys.readouterr().out
    for name in ("seed", "gamma", "epochs", "num_envs", "threads"):
        assert f"\n    {name}: " in text


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_help_names_the_algorithms(arguments, monkeypatch, capsys):
    assert call(monkeypatch, *arguments) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in run.BASE_ALGO_NAMES)


@pytest.mark.parametrize(
    "name, expected", [("relu", "ReLU"), ("Tanh", "Tanh"), ("torch.nn.ELU", "ELU"), ("nn.SiLU", "SiLU")]
)
def test_activations_by_name(name, expected):
    assert run.activation(name) is getattr(torch.nn, expected)


@pytest.mark.parametrize(
    "text, value",
    [("0.99", 0.99), ("1e-3", 1e-3), ("[64,64]", [64, 64]), ("True", True), ("auto", "auto"), ("x()", "x()")],
)
def test_R12_values_are_data(text, value):
    assert run.parse_value(text) == value
