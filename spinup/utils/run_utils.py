"""Where the output of an experiment goes."""

from __future__ import annotations

import os
import time
from typing import Any

from spinup.user_config import DEFAULT_DATA_DIR, FORCE_DATESTAMP


def setup_logger_kwargs(
    exp_name: str, seed: Any = None, data_dir: str | os.PathLike[str] | None = None, datestamp: bool = False
) -> dict[str, str]:
    """Choose the output directory of a run, and return it with the name as arguments for a logger.

    The directory is ``<data_dir>/<exp_name>``, with ``<exp_name>_s<seed>`` inside if there is a seed.
    With a date stamp: ``<data_dir>/YYYY-MM-DD_<exp_name>``, and ``YYYY-MM-DD_HH-MM-SS-<exp_name>_s<seed>``
    inside. Nothing is created.

    Args:
        exp_name: Name of the experiment.
        seed: Seed of the run, or None.
        data_dir: Root of all output; ``DEFAULT_DATA_DIR`` of ``spinup.user_config`` if not given.
        datestamp: Whether to stamp the directories. ``FORCE_DATESTAMP`` of ``spinup.user_config`` forces it.
    """
    outer = inner = ""
    if datestamp or FORCE_DATESTAMP:
        now = time.localtime()  # one reading of the clock: two could fall on both sides of midnight
        outer = time.strftime("%Y-%m-%d_", now)
        inner = time.strftime("%Y-%m-%d_%H-%M-%S-", now)
    output_dir = os.path.join(data_dir or DEFAULT_DATA_DIR, f"{outer}{exp_name}")
    if seed is not None:
        output_dir = os.path.join(output_dir, f"{inner}{exp_name}_s{seed}")
    return {"output_dir": output_dir, "exp_name": exp_name}
