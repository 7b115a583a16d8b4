"""The command line: `python -m spinup.run ppo --env CartPole-v1 --epochs 20`."""

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import spinup
from spinup.training import hyperparams
from spinup.training.envs import env_fn_from_name
from spinup.training.errors import NonFiniteError, UserError, one_line
from spinup.utils.mpi_tools import stop_all_ranks

BASE_ALGO_NAMES = ["vpg", "trpo", "ppo", "ddpg", "td3", "sac"]
COMMANDS = BASE_ALGO_NAMES + [f"{algo}_{backend}" for algo in BASE_ALGO_NAMES for backend in spinup.BACKENDS]

SUBSTITUTIONS = {
    "env": "env_name",
    "hid": "ac_kwargs:hidden_sizes",
    "act": "ac_kwargs:activation",
    "dt": "datestamp",
}
LONG_FORMS = {long: short for short, long in SUBSTITUTIONS.items()}
RUN_KEYS = ["env_name", "exp_name", "data_dir", "datestamp"]  # besides the algorithm's own arguments
TEXT_KEYS = ["env_name", "exp_name", "data_dir", "device"]  # never read as numbers
DICT_KEYS = ["ac_kwargs", "env_kwargs"]  # --env_kwargs:key value
YES_OR_NO = ["datestamp", "normalize_obs"]  # alone, they mean yes
WORDS = {"true": True, "false": False, "none": None}
NOT_ON_THE_COMMAND_LINE = ["env_fn", "actor_critic", "logger_kwargs"]
LONGEST_NAME = 100  # file systems allow 255 bytes, and date and seed are added

RUN_FLAGS = """\
    --env NAME              a Gymnasium id, module:Id, or envpool:Id
    --env_kwargs:KEY VALUE  an argument of the environment
    --hid [64,64]           sizes of the hidden layers, short for --ac_kwargs:hidden_sizes
    --act relu              activation, short for --ac_kwargs:activation
    --exp_name NAME         name of the experiment, and of its folder
    --data_dir DIR          where the folders go
    --dt                    put the date and time into the folder's name
"""

HELP = f"""usage: python -m spinup.run ALGORITHM --env ENVIRONMENT [--ARGUMENT VALUE ...]

algorithms:
    {"  ".join(BASE_ALGO_NAMES)}
    (with {" or ".join("_" + backend for backend in spinup.BACKENDS)} to name the back end)

Every argument of the algorithm is a flag: --clip_ratio 0.1 for PPO, --gamma 0.995 for all.
    python -m spinup.run ppo --help         shows them

Besides these:
{RUN_FLAGS}
example:
    python -m spinup.run ppo --env CartPole-v1 --epochs 20 --exp_name first
"""


def flag(key: str) -> str:
    """The flag as people type it."""
    return f"--{LONG_FORMS.get(key, key)}"


def parse(arguments: list[str]) -> dict[str, Any]:
    """`--key value` pairs. A flag without a value is True, where that makes sense."""
    config: dict[str, Any] = {}
    keys = [i for i, argument in enumerate(arguments) if argument.startswith("--")]
    if arguments and keys[:1] != [0]:
        raise UserError(f"{arguments[0]!r}: expected a flag such as --env first")
    for start, end in zip(keys, [*keys[1:], len(arguments)][: len(keys)], strict=True):
        key, values = arguments[start][2:], arguments[start + 1 : end]
        key = SUBSTITUTIONS.get(key, key)
        if key in config:
            raise UserError(f"{flag(key)}: given twice")
        if short := [value for value in values if re.fullmatch("-[a-zA-Z].*", value)]:
            raise UserError(f"{short[0]}: flags begin with two dashes")
        if len(values) > 1:
            raise UserError(f"{flag(key)} {' '.join(values)}: takes one value")
        if values:
            config[key] = values[0] if key in TEXT_KEYS else parse_value(values[0])
        elif key in YES_OR_NO or (":" in key and key not in LONG_FORMS):
            config[key] = True
        else:
            raise UserError(f"{flag(key)}: a value is missing")
    return config


def parse_value(text: str) -> Any:
    """A Python literal (number, list, True, None, ...), or else the text itself."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def activation(name: Any, backend: str) -> Any:
    """relu, ReLU, nn.ReLU and torch.nn.ReLU all name the same."""
    activations = importlib.import_module(f"spinup.algos.{backend}.nets").ACTIVATIONS
    plain = str(name).rpartition(".")[2].lower().replace("_", "")
    if plain not in activations:
        near = get_close_matches(plain, activations, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {' '.join(activations)}"
        raise UserError(f"--act {one_line(name)}: no such activation, {hint}")
    return activations[plain]


def nested(config: dict[str, Any]) -> dict[str, Any]:
    """`a:b` becomes an entry b of a dict a."""
    result: dict[str, Any] = {}
    for key, value in sorted(config.items(), key=lambda item: ":" in item[0]):  # dicts given whole come first
        outer, _, inner = key.partition(":")
        if inner:
            result.setdefault(outer, {})[inner] = value
        elif key in DICT_KEYS and not (isinstance(value, dict) and all(isinstance(name, str) for name in value)):
            raise UserError(f"--{key} {one_line(value)}: set one argument after the other, as in --{key}:KEY VALUE")
        else:
            result[key] = value
    return result


def check_keys(config: dict[str, Any], function: Callable[..., Any]) -> None:
    own = [name for name in inspect.signature(function).parameters if name not in NOT_ON_THE_COMMAND_LINE]
    known = {*own, *RUN_KEYS, *DICT_KEYS}
    for key in config:
        outer, colon, inner = key.partition(":")
        if outer not in known or (colon and (outer not in DICT_KEYS or not inner)):
            near = get_close_matches(key, {*known, *SUBSTITUTIONS}, n=1, cutoff=0.5)
            hint = f"did you mean --{near[0]}?" if near else f"see `python -m spinup.run {function.__name__} --help`"
            raise UserError(f"unknown flag --{key}: {hint}")


def check_texts(config: dict[str, Any]) -> None:
    """What becomes part of a path, and the switches."""
    name = config.get("exp_name", "unnamed")
    if not name.strip(". ") or not name.isprintable() or any(c in name for c in "/\\:") or len(name) > LONGEST_NAME:
        raise UserError(
            f"--exp_name {name[:LONGEST_NAME]!r}: a folder is named like this, so use 1 to {LONGEST_NAME} letters,"
            " digits, and signs other than / \\ :"
        )
    if not config.get("data_dir", "data").strip():
        raise UserError("--data_dir '': name a directory")
    for key in YES_OR_NO:
        if not isinstance(config.get(key, False), bool):
            raise UserError(f"{flag(key)} {one_line(config[key])}: must be True or False")


def algorithm(command: str) -> tuple[Callable[..., Any], str]:
    """The public function that a command names, and its back end."""
    from spinup.user_config import DEFAULT_BACKEND  # reads environment variables, which may be wrong

    algo, _, backend = command.partition("_")
    backend = backend or DEFAULT_BACKEND[algo]
    return getattr(spinup, f"{algo}_{backend}"), backend


def network_arguments(ac_kwargs: dict[str, Any], backend: str) -> dict[str, Any]:
    """`ac_kwargs` with the activation itself in place of its name, and hidden sizes that make sense."""
    if "activation" in ac_kwargs:
        ac_kwargs["activation"] = activation(ac_kwargs["activation"], backend)
    if "hidden_sizes" in ac_kwargs:
        sizes = ac_kwargs["hidden_sizes"]
        sizes = [sizes] if isinstance(sizes, int) else sizes
        if not (isinstance(sizes, (list, tuple)) and all(type(size) is int and size > 0 for size in sizes)):
            raise UserError(f"--hid {one_line(sizes)}: give the sizes of the hidden layers as a list, such as [64,64]")
        ac_kwargs["hidden_sizes"] = sizes
    return ac_kwargs


def run(command: str, arguments: list[str]) -> None:
    from spinup.utils.run_utils import setup_logger_kwargs  # reads the user's configuration as well

    function, backend = algorithm(command)
    if {"--help", "-h", "help"} & set(arguments):
        title = (function.__doc__ or "").partition("\n\n")[0]
        print(f"{title}\n\nFlags:\n{hyperparams.explained(function, '--', NOT_ON_THE_COMMAND_LINE)}\n{RUN_FLAGS}")
        return
    config = parse(arguments)
    check_keys(config, function)
    check_texts(config)
    config = nested(config)
    if "env_name" not in config:
        raise UserError("which environment? Give it a name, as in --env CartPole-v1")
    if "ac_kwargs" in config:
        config["ac_kwargs"] = network_arguments(config["ac_kwargs"], backend)
    hyperparams.check(config)
    env_fn = env_fn_from_name(config.pop("env_name"), **config.pop("env_kwargs", {}))
    exp_name = config.pop("exp_name", f"cmd_{command}" if "_" in command else f"cmd_{function.__name__}")
    logger_kwargs = setup_logger_kwargs(
        exp_name, config.get("seed", 0), config.pop("data_dir", None), config.pop("datestamp", False)
    )
    function(env_fn, logger_kwargs=logger_kwargs, **config)
    print(f"\nThe log and the saved policy are in {logger_kwargs['output_dir']}")


def main() -> None:
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "help").lower(), sys.argv[2:]
    if command == "--version":
        print(f"spinup {spinup.__version__}")
        return
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
        _end(error, 2)
    except (NonFiniteError, ModuleNotFoundError) as error:
        _end(error, 1)
    except KeyboardInterrupt:
        _end("interrupted", 130)


def _end(message: Any, status: int) -> None:
    print(f"spinup: {message}", file=sys.stderr, flush=True)
    stop_all_ranks(status)  # they would wait for this one for ever
    sys.exit(status)


if __name__ == "__main__":
    main()
