"""Names that programs import from here."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from spinup.algos.jax.nets import DDPGActorCritic as MLPActorCritic
from spinup.algos.jax.nets import MLPActor, MLPQFunction, count_vars, mlp
from spinup.training.buffers import combined_shape
