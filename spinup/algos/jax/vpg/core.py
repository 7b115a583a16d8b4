"""Names that programs import from here."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from spinup.algos.jax.nets import (
    Actor,
    Categorical,
    MLPActorCritic,
    MLPCategoricalActor,
    MLPCritic,
    MLPGaussianActor,
    MLPMultiCategoricalActor,
    Normal,
    count_vars,
    mlp,
)
from spinup.training.buffers import combined_shape, discount_cumsum
