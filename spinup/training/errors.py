"""The two ways in which a run ends early on purpose. Both say in one line what is wrong and what to do."""


class UserError(ValueError):
    """Something that was asked for cannot be done. Raised before anything is written to disk."""


class NonFiniteError(FloatingPointError):
    """A NaN or an infinity turned up in an observation, a reward, a loss or a parameter."""
