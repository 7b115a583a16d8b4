"""The PyTorch back end."""
