"""The PyTorch back end."""

import os
import sys

# By default PyTorch's threads burn the processor while they wait for each other. Beside any other program, a second run
# say, that makes training 10 to 30 times slower. The policy is read once, when PyTorch is loaded.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Whether it came in time: else one thread is the safe choice.
THREADS_WAIT_QUIETLY = "torch" not in sys.modules or os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE"
