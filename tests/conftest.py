import itertools
import os
import sys

import pytest

# Tests run side by side: PyTorch's threads, waiting busily for each other, would slow each other down many times over.
# It is read when PyTorch is loaded, and by `threads=None`.
os.environ.setdefault("OMP_NUM_THREADS", "1")

TESTS_SO_FAR = itertools.count(1)


@pytest.fixture(autouse=True)
def few_compiled_programs():
    """Programs that XLA has compiled take some hundred memory maps per run, and Linux allows a process 65 530."""
    yield
    if next(TESTS_SO_FAR) % 40 == 0 and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
