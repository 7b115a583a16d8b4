"""Deep reinforcement learning that people can read, trust and run.

Every public name is loaded when it is first used, so `import spinup` pulls in no deep-learning framework:

    from spinup import ppo_pytorch      # one back end by name
    from spinup import ppo              # the default back end, see `spinup.user_config`
"""

import importlib
import importlib.util
from typing import Any

from spinup.version import __version__

_ALGORITHMS = ("vpg", "trpo", "ppo", "ddpg", "td3", "sac")
_BACKENDS = {  # name: what people call it, what it imports
    "pytorch": ("PyTorch", ("torch",)),
    "jax": ("JAX", ("jax", "jaxlib", "equinox", "optax")),
}
BACKENDS = tuple(_BACKENDS)
_OTHER = {"Logger": "spinup.utils.logx", "EpochLogger": "spinup.utils.logx"}

# What `from spinup import *` brings: no more than can be imported here.
_installed = [backend for backend, (_, packages) in _BACKENDS.items() if all(map(importlib.util.find_spec, packages))]

__all__ = [
    "BACKENDS",
    "__version__",
    *_OTHER,
    *(_ALGORITHMS if _installed else ()),
    *(f"{algo}_{backend}" for algo in _ALGORITHMS for backend in _installed),
]


def __getattr__(name: str) -> Any:
    if name in _OTHER:
        return getattr(importlib.import_module(_OTHER[name]), name)
    algo, separator, backend = name.partition("_")
    if algo in _ALGORITHMS and not separator:
        from spinup.user_config import DEFAULT_BACKEND

        backend = DEFAULT_BACKEND[algo]
    if algo not in _ALGORITHMS or backend not in _BACKENDS:
        raise AttributeError(f"module 'spinup' has no attribute {name!r}")
    title, packages = _BACKENDS[backend]
    try:
        return getattr(importlib.import_module(f"spinup.algos.{backend}.{algo}.{algo}"), algo)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in packages:
            message = f"spinup.{name} needs {title}: pip install 'spinup[{backend}]'"
            raise ModuleNotFoundError(message, name=error.name) from None
        raise


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
