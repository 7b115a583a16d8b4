"""One seed, one generator per purpose.

Drawing more numbers for one purpose (a longer evaluation, say) never shifts what another one gets.
"""

from typing import NamedTuple

import numpy as np

RANK_OFFSET = 10_000  # process r of a distributed run uses seed + 10000 r


class Generators(NamedTuple):
    noise: np.random.Generator  # exploration: sampled actions, action noise
    replay: np.random.Generator  # which transitions a minibatch holds
    env: np.random.Generator  # seeds of the training environments
    random_actions: np.random.Generator  # the uniformly random phase at the start of off-policy training
    evaluation: np.random.Generator  # seeds of the evaluation episodes


def generators(seed: int, rank: int = 0) -> Generators:
    children = np.random.SeedSequence(seed + RANK_OFFSET * rank).spawn(len(Generators._fields))
    return Generators(*map(np.random.default_rng, children))


def draw_seed(rng: np.random.Generator) -> int:
    """A seed that every environment accepts (31 bits)."""
    return int(rng.integers(2**31))
