"""Names that programs import from here."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions.normal import Normal

from spinup.algos.pytorch.nets import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    MLPQFunction,
    SquashedGaussianMLPActor,
    count_vars,
    mlp,
)
from spinup.algos.pytorch.nets import SACActorCritic as MLPActorCritic
from spinup.training.buffers import combined_shape
