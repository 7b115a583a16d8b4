"""Names that programs import from here."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from spinup.algos.jax.nets import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    MLPQFunction,
    SquashedGaussianMLPActor,
    count_vars,
    mlp,
)
from spinup.algos.jax.nets import SACActorCritic as MLPActorCritic
from spinup.training.buffers import combined_shape
