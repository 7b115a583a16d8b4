"""Configurations as JSON, and files that are either complete or not there."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, BinaryIO

MAX_DEPTH = 5  # objects inside objects
MAX_VALUES = 10_000  # in one configuration
MAX_TEXT = 1000  # characters that describe one object


def is_json_serializable(v: Any) -> bool:
    """Whether ``json.dumps`` accepts ``v``."""
    try:
        json.dumps(v)
        return True
    except Exception:
        return False


def convert_json(obj: Any) -> Any:
    """Turn any object into something that ``json.dumps`` accepts, as readable as possible.

    * Numbers, text and None stay as they are, also those of NumPy; arrays and tensors become lists.
    * Dicts, lists, tuples and sets are converted element by element, into new ones. Keys become strings.
    * Functions, classes and modules become their names, a ``partial`` the name of its function.
    * Other objects become ``{str(obj): {attribute: value, ...}}`` without the private attributes, or
      ``str(obj)`` if they have no public ones. Memory addresses are left out: same run, same text.

    It always comes to an end: cycles are named, and what is very large or deep is summarised.
    """
    return _Converter().convert(obj)


class _Converter:
    """One walk through everything that can be reached from an object."""

    def __init__(self) -> None:
        self.on_path: set[int] = set()  # identities of the objects that we are inside of
        self.depth = 0
        self.values_left = MAX_VALUES

    def convert(self, obj: Any) -> Any:
        if obj is None or type(obj) in (bool, int, float, str):
            return obj
        try:
            return self._convert(obj)
        except Exception:  # an object whose attributes or text raise must not stop the run that describes it
            return f"<{type(obj).__name__}>"

    def _convert(self, obj: Any) -> Any:
        if isinstance(obj, functools.partial):
            return self.convert(obj.func)
        name = getattr(obj, "__name__", None)
        if isinstance(name, str) and "lambda" not in name:
            return name
        if hasattr(obj, "tolist") and hasattr(obj, "shape") and not isinstance(obj, type):
            return self._convert_array(obj)
        if isinstance(obj, (int, float, str)):
            return obj

        if id(obj) in self.on_path:
            return f"<cycle: {type(obj).__name__}>"
        self.on_path.add(id(obj))
        try:
            if isinstance(obj, (dict, list, tuple, set, frozenset, deque)):
                return self._convert_container(obj)
            return self._convert_object(obj)
        finally:
            self.on_path.discard(id(obj))

    def _convert_array(self, array: Any) -> Any:
        if not self._afford(math.prod(array.shape)):
            return f"<{type(array).__name__} of shape {tuple(array.shape)}>"
        values = array.tolist()
        return values if is_json_serializable(values) else self.convert(values)

    def _convert_container(self, container: Any) -> Any:
        if not self._afford(len(container)):
            return f"<{type(container).__name__} of {len(container)} items>"
        if isinstance(container, dict):
            return {self._key(k): self.convert(v) for k, v in container.items()}
        items = [self.convert(v) for v in container]
        return sorted(items, key=str) if isinstance(container, (set, frozenset)) else items

    def _convert_object(self, obj: Any) -> Any:
        public = {k: v for k, v in getattr(obj, "__dict__", {}).items() if not k.startswith("_")}
        if not public or self.depth >= MAX_DEPTH or not self._afford(len(public)):
            return _text(obj)
        self.depth += 1
        try:
            return {_text(obj): {k: self.convert(v) for k, v in public.items()}}
        finally:
            self.depth -= 1

    def _key(self, key: Any) -> str:
        """A dict key as text, as ``json.dumps`` does it, also for the types that it refuses."""
        if isinstance(key, str):
            return key
        value = self.convert(key)
        return value if isinstance(value, str) else json.dumps(value)

    def _afford(self, n: int) -> bool:
        """Take ``n`` from the number of values that may still be written, if there are so many."""
        if n > self.values_left:
            return False
        self.values_left -= n
        return True


def _text(obj: Any) -> str:
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", str(obj))
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` only when it has been written completely.

    If the block raises, or the process is killed inside it, an older file of that name is as it was.
    """
    # The temporary name must not look like the final one to a program that lists the directory.
    temporary = os.path.join(os.path.dirname(os.path.abspath(path)), f".partial-{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, f"cannot write: {error.strerror or error}", os.fspath(path)) from error
    finally:
        with contextlib.suppress(OSError):  # it is gone after a success
            os.remove(temporary)
