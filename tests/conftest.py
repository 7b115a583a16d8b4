import os

# Tests run side by side: PyTorch's threads, waiting busily for each other, would slow each other down many times over.
# It is read when PyTorch is loaded, and by `threads=None`.
os.environ.setdefault("OMP_NUM_THREADS", "1")
