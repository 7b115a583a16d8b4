"""Everything about training that is not the mathematics: loops, buffers, environments, seeds. NumPy only."""
