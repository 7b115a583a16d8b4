import spinup.algos.pytorch  # noqa: F401  before PyTorch itself: tests run side by side, its threads must wait quietly
