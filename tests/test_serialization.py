"""Configurations as JSON, and atomic files."""

import argparse
import collections
import enum
import functools
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import types

import gymnasium as gym
import numpy as np
import pytest
import torch

from spinup.utils.serialization_utils import MAX_VALUES, atomic_write, convert_json, is_json_serializable


class Point:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __str__(self):
        return "Point"

    def method(self):
        pass


class Colour(enum.Enum):
    RED = 1


class Rude:
    """Raises whatever one asks of it."""

    @property
    def __name__(self):
        raise RuntimeError

    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "value, expected",
    [
        ({"a": [1, 2.5, "x", None, True]}, {"a": [1, 2.5, "x", None, True]}),
        (Point, "Point"),
        (Point(x=1).method, "method"),
        (len, "len"),
        (json, "json"),
        (torch.nn.ReLU, "ReLU"),
        (np.float32, "float32"),
        (functools.partial(len), "len"),
        (functools.partial(functools.partial(Point, x=1), y=2), "Point"),
        (Point(x=1, f=Point), {"Point": {"x": 1, "f": "Point"}}),
        (Point(), "Point"),
        (Colour.RED, "Colour.RED"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (1 + 2j, "(1+2j)"),
        ({3, 1, 2}, [1, 2, 3]),
        (collections.deque([1, 2]), [1, 2]),
        (argparse.Namespace(lr=1), {"Namespace(lr=1)": {"lr": 1}}),
        (types.SimpleNamespace(lr=1), {"namespace(lr=1)": {"lr": 1}}),
        (torch.device("cpu"), "cpu"),
        (torch.float32, "torch.float32"),
        (Rude(), "<Rude>"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_conversion(value, expected):
    result = convert_json(value)
    assert result == expected
    json.dumps(result)


def test_L06_dicts_and_lists_are_copied():
    config = {"a": [1, 2], "b": {"c": 3}}
    result = convert_json(config)
    assert result == config
    assert result is not config and result["a"] is not config["a"] and result["b"] is not config["b"]


def test_L11_tuple_becomes_list():
    assert convert_json((64, (Point, 1))) == [64, ["Point", 1]]


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.float32(1.5), 1.5),
        (np.float64(1.5), 1.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.array(2.0), 2.0),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1, Point], dtype=object), [1, "Point"]),
        (np.array([1j]), ["1j"]),
        (torch.tensor([1.0, 2.0], requires_grad=True), [1.0, 2.0]),
        (torch.tensor(3), 3),
        ((np.int64(1), np.float32(0.5)), [1, 0.5]),
    ],
    ids=repr,
)
def test_L12_numpy_and_torch_numbers_stay_numbers(value, expected):
    result = convert_json(value)
    assert result == expected
    assert json.loads(json.dumps(result)) == expected


def test_L13_cycles_are_named():
    parent, child = Point(name="parent"), Point(name="child")
    parent.child, child.parent = child, parent
    loop = [1]
    loop.append({"again": loop})
    assert convert_json(parent) == {
        "Point": {"name": "parent", "child": {"Point": {"name": "child", "parent": "<cycle: Point>"}}}
    }
    assert convert_json(loop) == [1, {"again": "<cycle: list>"}]


def test_L13_the_same_object_twice_is_no_cycle():
    shared = [1]
    assert convert_json([shared, shared]) == [[1], [1]]


def test_L13_no_private_attributes_and_no_addresses():
    assert convert_json(Point(x=1, _secret=2)) == {"Point": {"x": 1}}
    assert convert_json(object()) == "<object object>"
    assert convert_json(lambda: 0).endswith("<lambda>>")
    everything = [object(), lambda: 0, functools.partial(lambda: 0), Point(o=object()), threading.Lock()]
    assert " at 0x" not in json.dumps(convert_json(everything))


def test_L13_depth_is_limited():
    chain = Point(end=True)
    for _ in range(1000):
        chain = Point(inside=chain)
    assert len(json.dumps(convert_json(chain))) < 1000
    nested = []
    for _ in range(100_000):
        nested = [nested]
    convert_json(nested)


def test_L13_size_is_limited():
    config = {"buffer": np.zeros((10**6, 17)), "memory": collections.deque(range(10**6)), "lr": 1e-3}
    config["tree"] = [Point(**{f"a{i}": Point(x=list(range(100))) for i in range(100)}) for _ in range(100)]
    start = time.perf_counter()
    result = convert_json(config)
    assert time.perf_counter() - start < 2
    assert result["buffer"] == "<ndarray of shape (1000000, 17)>"
    assert result["memory"] == "<deque of 1000000 items>"
    assert result["lr"] == 1e-3
    assert len(json.dumps(result)) < 100 * MAX_VALUES


def test_mixed_key_types_can_be_sorted():
    config = {1: "a", "b": 2, None: 3, True and 2.5: 4, (1, 2): 5, np.int64(7): 6, Point: 7, Point(x=1): 8}
    result = convert_json(config)
    assert all(isinstance(key, str) for key in result)
    assert {"1", "b", "null", "2.5", "[1, 2]", "7", "Point"} <= set(result)
    json.dumps(result, sort_keys=True)


def test_nan_and_infinity_survive():
    assert json.dumps(convert_json([float("nan"), np.float32("inf")])) == "[NaN, Infinity]"


def test_environments_and_modules_survive():
    env = gym.make("CartPole-v1")
    text = json.dumps(convert_json({"env": env, "module": torch.nn.Linear(2, 2), "space": env.action_space}))
    assert "CartPole" in text and "Linear" in text and "Discrete(2)" in text
    assert " at 0x" not in text


def test_sets_do_not_depend_on_the_hash_seed():
    code = "from spinup.utils.serialization_utils import convert_json; print(convert_json(set('abcdef')))"
    run = functools.partial(subprocess.check_output, [sys.executable, "-c", code], text=True)
    assert run(env={**os.environ, "PYTHONHASHSEED": "1"}) == run(env={**os.environ, "PYTHONHASHSEED": "2"})


@pytest.mark.parametrize(
    "value, expected",
    [(1, True), ({"a": (1, None)}, True), (float("nan"), True), (object(), False), ({(1,): 2}, False)],
)
def test_is_json_serializable(value, expected):
    assert is_json_serializable(value) is expected


def test_L14_interrupts_are_not_swallowed(monkeypatch):
    def interrupted(value):
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        is_json_serializable(1)


def test_atomic_write_replaces_only_when_complete(tmp_path):
    path = tmp_path / "file"
    with atomic_write(path) as file:
        file.write(b"old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), atomic_write(path) as file:
            file.write(b"half of the n")
            raise error
        assert path.read_bytes() == b"old"
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_atomic_write_names_the_file_when_the_disk_is_full(tmp_path):
    resource = pytest.importorskip("resource")  # Windows has no such limits
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError) as caught, atomic_write(path) as file:
            file.write(bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
