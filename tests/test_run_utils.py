"""Output directories of experiments, and the user's defaults."""

import os
import shutil
import time
from datetime import datetime
from importlib import util

import pytest

from spinup import user_config
from spinup.utils import run_utils
from spinup.utils.run_utils import setup_logger_kwargs


def moment(*when):
    return datetime(*when).timetuple()


@pytest.mark.parametrize(
    "kwargs, parts",
    [
        (dict(), ("demo",)),
        (dict(seed=0), ("demo", "demo_s0")),
        (dict(seed="a"), ("demo", "demo_sa")),
        (dict(datestamp=True), ("2024-02-03_demo",)),
        (dict(datestamp=True, seed=5), ("2024-02-03_demo", "2024-02-03_04-05-06-demo_s5")),
    ],
)
def test_setup_logger_kwargs(tmp_path, monkeypatch, kwargs, parts):
    monkeypatch.setattr(time, "localtime", lambda: moment(2024, 2, 3, 4, 5, 6))
    expected = {"output_dir": str(tmp_path.joinpath(*parts)), "exp_name": "demo"}
    assert setup_logger_kwargs("demo", data_dir=str(tmp_path), **kwargs) == expected
    assert not list(tmp_path.iterdir())


def test_setup_logger_kwargs_defaults_come_from_user_config(tmp_path, monkeypatch):
    monkeypatch.setattr(run_utils, "DEFAULT_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(run_utils, "FORCE_DATESTAMP", True)
    output_dir = setup_logger_kwargs("demo", data_dir="")["output_dir"]
    assert output_dir == str(tmp_path / time.strftime("%Y-%m-%d_demo"))


def test_R02_the_clock_is_read_once(monkeypatch):
    """One second before midnight both stamps show the old day, however long the call takes."""
    readings = iter([moment(2024, 12, 31, 23, 59, 59), moment(2025, 1, 1, 0, 0, 0)])
    monkeypatch.setattr(time, "localtime", lambda: next(readings))
    output_dir = setup_logger_kwargs("x", 0, "d", datestamp=True)["output_dir"]
    assert output_dir == os.path.join("d", "2024-12-31_x", "2024-12-31_23-59-59-x_s0")


def load_user_config(path=user_config.__file__):
    """A fresh copy of the module, which reads the environment again."""
    spec = util.spec_from_file_location("user_config_copy", path)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def clean_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SPINUP_")]:
        monkeypatch.delenv(name)


def test_user_config_defaults(clean_environment):
    config = load_user_config()
    backends = config.DEFAULT_BACKEND
    assert backends == dict.fromkeys(["vpg", "trpo", "ppo", "ddpg", "td3", "sac"], "pytorch")
    assert config.FORCE_DATESTAMP is False
    assert config.DEFAULT_SHORTHAND is True
    assert config.WAIT_BEFORE_LAUNCH == 5


@pytest.mark.parametrize(
    "variable, text, setting, value",
    [
        ("SPINUP_BACKEND", "jax", "DEFAULT_BACKEND", dict.fromkeys(user_config.ALGOS, "jax")),
        ("SPINUP_DATA_DIR", "results", "DEFAULT_DATA_DIR", os.path.abspath("results")),
        ("SPINUP_DATA_DIR", "~/results", "DEFAULT_DATA_DIR", os.path.expanduser("~/results")),
        ("SPINUP_FORCE_DATESTAMP", "1", "FORCE_DATESTAMP", True),
        ("SPINUP_FORCE_DATESTAMP", "", "FORCE_DATESTAMP", False),
        ("SPINUP_DEFAULT_SHORTHAND", "False", "DEFAULT_SHORTHAND", False),
        ("SPINUP_WAIT_BEFORE_LAUNCH", "0", "WAIT_BEFORE_LAUNCH", 0),
    ],
)
def test_R01_environment_variables(clean_environment, monkeypatch, variable, text, setting, value):
    monkeypatch.setenv(variable, text)
    assert getattr(load_user_config(), setting) == value


@pytest.mark.parametrize(
    "variable",
    ["SPINUP_BACKEND", "SPINUP_FORCE_DATESTAMP", "SPINUP_DEFAULT_SHORTHAND", "SPINUP_WAIT_BEFORE_LAUNCH"],
)
def test_R01_wrong_values_are_named(clean_environment, monkeypatch, variable):
    monkeypatch.setenv(variable, "nonsense")
    with pytest.raises(ValueError, match=f"{variable} must be .* not 'nonsense'"):
        load_user_config()


@pytest.mark.parametrize(
    "place, has_pyproject, beside_package",
    [("checkout", True, True), ("somewhere", False, False), ("site-packages", True, False)],
)
def test_data_dir_is_never_in_an_installation(
    clean_environment, monkeypatch, tmp_path, place, has_pyproject, beside_package
):
    package = tmp_path / place / "spinup"
    package.mkdir(parents=True)
    shutil.copy(user_config.__file__, package)
    if has_pyproject:
        (tmp_path / place / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    data_dir = load_user_config(package / "user_config.py").DEFAULT_DATA_DIR
    assert data_dir == str((tmp_path / place if beside_package else tmp_path) / "data")
