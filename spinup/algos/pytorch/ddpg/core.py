"""Names that programs import from here."""

import numpy as np
import torch
import torch.nn as nn

from spinup.algos.pytorch.nets import DDPGActorCritic as MLPActorCritic
from spinup.algos.pytorch.nets import (
    MLPActor,
    MLPQFunction,
    count_vars,
    mlp,
)
from spinup.training.buffers import combined_shape
