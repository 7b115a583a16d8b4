"""The two ways in which a run ends early on purpose. Both say in one line what is wrong and what to do."""

from typing import Any


def one_line(thing: Any) -> str:
    """The text of something, for a message of one line."""
    return " ".join(str(thing).split())


class UserError(ValueError):
    """Something that was asked for cannot be done. Raised before anything is written to disk."""


class NonFiniteError(FloatingPointError):
    """A NaN or an infinity turned up in an observation, a reward, a loss or a parameter."""
