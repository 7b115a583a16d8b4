"""The command line: `python -m spinup.run ppo --env CartPole-v1 --epochs 20`."""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import spinup
from spinup.training import hyperparams
from spinup.training.envs import env_fn_from_name
from spinup.training.errors import NonFiniteError, UserError
from spinup.user_config import DEFAULT_BACKEND
from spinup.utils.run_utils import setup_logger_kwargs

BASE_ALGO_NAMES = ["vpg", "trpo", "ppo", "ddpg", "td3", "sac"]
BACKENDS = ["pytorch"]
COMMANDS = BASE_ALGO_NAMES + [f"{algo}_{backend}" for algo in BASE_ALGO_NAMES for backend in BACKENDS]

SUBSTITUTIONS = {
    "env": "env_name",
    "hid": "ac_kwargs:hidden_sizes",
    "act": "ac_kwargs:activation",
    "dt": "datestamp",
}
RUN_KEYS = ["env_name", "exp_name", "data_dir", "datestamp"]  # besides the algorithm's own arguments
TEXT_KEYS = ["env_name", "exp_name", "data_dir", "device"]  # never read as numbers
DICT_KEYS = ["ac_kwargs", "env_kwargs"]  # --env_kwargs:key value

HELP = f"""usage: python -m spinup.run ALGORITHM --env ENVIRONMENT [--ARGUMENT VALUE ...]

algorithms:
    {"  ".join(BASE_ALGO_NAMES)}
    (with _pytorch to name the back end)

Every argument of the algorithm is a flag: --clip_ratio 0.1 for PPO, --gamma 0.995 for all.
    python -m spinup.run ppo --help         shows them

Besides these:
    --env NAME             a Gymnasium id, module:Id, or envpool:Id
    --env_kwargs:KEY VALUE an argument of the environment
    --hid [64,64]          sizes of the hidden layers, short for --ac_kwargs:hidden_sizes
    --act relu             activation: a name in torch.nn, short for --ac_kwargs:activation
    --exp_name NAME        name of the experiment, and of its folder
    --data_dir DIR         where the folders go
    --dt                   put the date and time into the folder's name

example:
    python -m spinup.run ppo --env CartPole-v1 --epochs 20 --exp_name first
"""


def parse(arguments: list[str]) -> dict[str, Any]:
    """`--key value` pairs; a flag without a value is True."""
    config: dict[str, Any] = {}
    keys = [i for i, argument in enumerate(arguments) if argument.startswith("--")]
    if arguments and keys[:1] != [0]:
        raise UserError(f"{arguments[0]!r}: expected a flag such as --env first")
    for start, end in zip(keys, [*keys[1:], len(arguments)], strict=True):
        key, values = arguments[start][2:], arguments[start + 1 : end]
        key = SUBSTITUTIONS.get(key, key)
        if len(values) > 1:
            raise UserError(f"--{key} {' '.join(values)}: takes one value")
        value = values[0] if values else True
        config[key] = value if value is True or key in TEXT_KEYS else parse_value(value)
    return config


def parse_value(text: str) -> Any:
    """A Python literal (number, list, True, None, ...), or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def activation(name: Any) -> Any:
    """relu, ReLU, nn.ReLU and torch.nn.ReLU all name the same module."""
    nn = importlib.import_module("torch.nn")
    modules = {key.lower(): key for key in nn.modules.activation.__all__} | {"identity": "Identity"}
    short = str(name).removeprefix("torch.").removeprefix("nn.").lower()
    if short not in modules:
        near = get_close_matches(short, modules, n=1)
        raise UserError(f"--act {name}: no such activation in torch.nn{f', did you mean {near[0]}?' if near else ''}")
    return getattr(nn, modules[short])


def nested(config: dict[str, Any]) -> dict[str, Any]:
    """`a:b` becomes an entry b of a dict a."""
    result: dict[str, Any] = {}
    for key, value in config.items():
        outer, _, inner = key.partition(":")
        if inner:
            result.setdefault(outer, {})[inner] = value
        else:
            result[key] = value
    return result


def check_keys(config: dict[str, Any], function: Callable[..., Any]) -> None:
    own = [name for name in inspect.signature(function).parameters if name not in ("env_fn", "logger_kwargs")]
    known = {*own, *RUN_KEYS, *DICT_KEYS}
    for key in config:
        if key.partition(":")[0] not in known:
            near = get_close_matches(key, {*known, *SUBSTITUTIONS}, n=1, cutoff=0.5)
            hint = f"did you mean --{near[0]}?" if near else f"see `python -m spinup.run {function.__name__} --help`"
            raise UserError(f"unknown flag --{key}: {hint}")


def algorithm(command: str) -> Callable[..., Any]:
    name = command if "_" in command else f"{command}_{DEFAULT_BACKEND[command]}"
    return getattr(spinup, name)


def run(command: str, arguments: list[str]) -> None:
    function = algorithm(command)
    if "--help" in arguments or "-h" in arguments:
        print(function.__doc__)
        return
    config = parse(arguments)
    check_keys(config, function)
    if "env_name" not in config:
        raise UserError("which environment? Give it a name, as in --env CartPole-v1")
    config = nested(config)
    if "activation" in config.get("ac_kwargs", {}):
        config["ac_kwargs"]["activation"] = activation(config["ac_kwargs"]["activation"])
    hidden_sizes = config.get("ac_kwargs", {}).get("hidden_sizes")
    if isinstance(hidden_sizes, int):
        config["ac_kwargs"]["hidden_sizes"] = hidden_sizes = [hidden_sizes]
    if hidden_sizes is not None and not (
        isinstance(hidden_sizes, (list, tuple)) and all(isinstance(h, int) and h > 0 for h in hidden_sizes)
    ):
        raise UserError(f"--hid {hidden_sizes}: give the sizes of the hidden layers as a list, such as [64,64]")
    env_fn = env_fn_from_name(config.pop("env_name"), **config.pop("env_kwargs", {}))
    exp_name = config.pop("exp_name", f"cmd_{command}" if "_" in command else f"cmd_{function.__name__}")
    logger_kwargs = setup_logger_kwargs(
        exp_name, config.get("seed", 0), config.pop("data_dir", None), config.pop("datestamp", False)
    )
    hyperparams.check(config)
    function(env_fn, logger_kwargs=logger_kwargs, **config)
    print(f"\nThe log and the saved policy are in {logger_kwargs['output_dir']}")


def main() -> None:
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "help"), sys.argv[2:]
    if command in ("help", "--help", "-h"):
        print(HELP)
        return
    try:
        if command not in COMMANDS:
            near = get_close_matches(command, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {' '.join(BASE_ALGO_NAMES)}"
            raise UserError(f"unknown command {command!r}: {hint}")
        run(command, arguments)
    except UserError as error:
        sys.exit(_complain(error, 2))
    except (NonFiniteError, ModuleNotFoundError) as error:
        sys.exit(_complain(error, 1))
    except KeyboardInterrupt:
        sys.exit(130)


def _complain(error: Exception, status: int) -> int:
    print(f"spinup: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
