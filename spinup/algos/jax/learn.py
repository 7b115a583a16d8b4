"""What the JAX pages share: gradient steps, loops that compile, and the agents that the training loops drive.

A page is pure: `update(state, batch) -> (state, stats)`. Here it is compiled, k steps into one call, with the state's
buffers reused from call to call. Under MPI the loops of an update run in Python and only its pieces are compiled,
since gradients have to be averaged between them.
"""

import inspect
import os
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from spinup.algos.jax import nets
from spinup.training import acting
from spinup.training.envs import action_shape
from spinup.training.errors import NonFiniteError, UserError, one_line
from spinup.training.off_policy import OffPolicyLoop
from spinup.training.on_policy import OnPolicyLoop
from spinup.training.seeding import RANK_OFFSET
from spinup.utils.mpi_tools import mpi_avg, mpi_sum, num_procs, proc_id
