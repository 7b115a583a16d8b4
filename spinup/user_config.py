"""Defaults of the command line and of experiments. Each can be set by an environment variable instead."""

from __future__ import annotations

import os

from spinup import BACKENDS
from spinup.training.errors import UserError

ALGOS = ("vpg", "trpo", "ppo", "ddpg", "td3", "sac")


def _backend() -> str:
    backend = os.environ.get("SPINUP_BACKEND") or "pytorch"
    if backend not in BACKENDS:
        raise UserError(f"SPINUP_BACKEND must be one of {', '.join(BACKENDS)}, not {backend!r}")
    return backend


def _data_dir() -> str:
    """``data`` beside the package for a checkout, else in the current directory; never ``site-packages``."""
    chosen = os.environ.get("SPINUP_DATA_DIR")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.basename(parent) in ("site-packages", "dist-packages")
    is_checkout = not installed and os.path.isfile(os.path.join(parent, "pyproject.toml"))
    return os.path.join(parent if is_checkout else os.getcwd(), "data")


def _flag(variable: str, default: bool) -> bool:
    value = (os.environ.get(variable) or str(default)).strip().lower()
    if value not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise UserError(f"{variable} must be 1 or 0, not {value!r}")
    return value in ("1", "true", "yes", "on")


def _seconds(variable: str, default: float) -> float:
    value = os.environ.get(variable)
    try:
        return float(value) if value else default
    except ValueError:
        raise UserError(f"{variable} must be a number of seconds, not {value!r}") from None


# Back end of a command that names none, such as `python -m spinup.run ppo`. SPINUP_BACKEND sets all of them.
DEFAULT_BACKEND = dict.fromkeys(ALGOS, _backend())

# Where the output of experiments goes. SPINUP_DATA_DIR
DEFAULT_DATA_DIR = _data_dir()

# Whether every output folder carries date and time. SPINUP_FORCE_DATESTAMP
FORCE_DATESTAMP = _flag("SPINUP_FORCE_DATESTAMP", False)

# Whether parameters of an experiment grid without a shorthand get one. SPINUP_DEFAULT_SHORTHAND
DEFAULT_SHORTHAND = _flag("SPINUP_DEFAULT_SHORTHAND", True)

# Seconds between the announcement of an experiment grid and its start; 0 for none. SPINUP_WAIT_BEFORE_LAUNCH
WAIT_BEFORE_LAUNCH = _seconds("SPINUP_WAIT_BEFORE_LAUNCH", 5)
