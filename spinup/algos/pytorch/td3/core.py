"""Names that programs import from here."""

import numpy as np
import torch
import torch.nn as nn

from spinup.algos.pytorch.nets import (
    MLPActor,
    MLPQFunction,
    count_vars,
    mlp,
)
from spinup.algos.pytorch.nets import TD3ActorCritic as MLPActorCritic
from spinup.training.buffers import combined_shape
