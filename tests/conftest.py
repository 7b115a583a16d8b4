import itertools
import os
import sys

import pytest

# Tests run side by side: PyTorch's threads, waiting busily for each other, would slow each other down many times over.
# It is read when PyTorch is loaded, and by `threads=None`.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Nearly every test that runs JAX waits for its compiler. These tell most, and are in the quick part.
QUICK_WITH_JAX = {
    "test_positional_arguments_are_frozen",
    "test_our_arguments_come_after_and_by_keyword_only",
    "test_docstrings_explain_every_argument",
    "test_names_at_the_top",
    "test_names_of_core_and_of_the_page",
    "test_names_of_parameters",
    "test_columns",
    "test_unknown_devices",
}

TESTS_SO_FAR = itertools.count(1)


@pytest.fixture(autouse=True)
def few_compiled_programs():
    """Programs that XLA has compiled take some hundred memory maps per run, and Linux allows a process 65 530."""
    yield
    if next(TESTS_SO_FAR) % 40 == 0 and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


def pytest_collection_modifyitems(items):
    for item in items:
        backend = item.callspec.params.get("backend") if hasattr(item, "callspec") else None
        if backend == "jax" and item.originalname not in QUICK_WITH_JAX:
            item.add_marker(pytest.mark.slow)
