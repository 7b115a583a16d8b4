"""Names that programs import from here."""

import numpy as np
import torch
import torch.nn as nn
from gymnasium.spaces import Box, Discrete
from torch.distributions.categorical import Categorical
from torch.distributions.normal import Normal

from spinup.algos.pytorch.nets import (
    Actor,
    MLPActorCritic,
    MLPCategoricalActor,
    MLPCritic,
    MLPGaussianActor,
    MLPMultiCategoricalActor,
    count_vars,
    mlp,
)
from spinup.training.buffers import combined_shape, discount_cumsum
