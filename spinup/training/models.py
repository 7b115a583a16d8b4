"""Models as data: weights in safetensors, and in the header of the same file a JSON text that says what they are.

Reading such a file runs nothing that is in it.
"""

import json
import os
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from gymnasium import spaces

from spinup.training.errors import UserError, one_line

HEADER = "spinup"  # the key of the JSON text among the metadata


class Model(NamedTuple):
    arrays: dict[str, np.ndarray]  # name -> weights
    description: dict[str, Any]  # what they belong to


def write_model(file: BinaryIO, model: Model) -> None:
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(x) for name, x in model.arrays.items()}
    file.write(save(arrays, metadata={HEADER: json.dumps(model.description, allow_nan=False)}))


def read_model(path: str | os.PathLike[str]) -> Model:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            description = json.loads(file.metadata()[HEADER])
            return Model({name: file.get_tensor(name) for name in file.keys()}, description)  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; a run writes it when it saves its model") from None
    except (SafetensorError, OSError, TypeError, KeyError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a model of spinup ({one_line(error)}): train it again") from None


def describe_space(space: spaces.Space) -> dict[str, Any]:
    """A Box, Discrete or MultiDiscrete space as JSON."""
    match space:
        case spaces.Box():
            low, high = ([str(x) for x in bound.ravel()] for bound in (space.low, space.high))  # "inf" is not JSON
            return dict(type="Box", low=low, high=high, shape=list(space.shape), dtype=str(space.dtype))
        case spaces.Discrete():
            return dict(type="Discrete", n=int(space.n), start=int(space.start))
        case spaces.MultiDiscrete():
            return dict(type="MultiDiscrete", nvec=space.nvec.tolist(), start=space.start.tolist())
    raise TypeError(f"cannot describe {space}")


def space_from(description: dict[str, Any]) -> spaces.Space:
    """The space that was described."""
    match description["type"]:
        case "Box":
            dtype, shape = np.dtype(description["dtype"]), description["shape"]
            low, high = (np.array(description[bound], float).reshape(shape) for bound in ("low", "high"))
            return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)
        case "Discrete":
            return spaces.Discrete(description["n"], start=description["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(description["nvec"], start=description["start"])
    raise ValueError(f"unknown space {description['type']!r}")
