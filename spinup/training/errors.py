"""The two ways in which a run ends early on purpose. Both say in one line what is wrong and what to do."""

from typing import Any

LONGEST = 300  # characters of a thing that are shown


def one_line(thing: Any) -> str:
    """The text of something, for a message of one line."""
    text = " ".join(str(thing).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


class UserError(ValueError):
    """Something that was asked for cannot be done. Nearly always raised before anything is written to disk."""


class NonFiniteError(FloatingPointError):
    """A NaN or an infinity turned up in an observation, a reward, a loss or a parameter."""
