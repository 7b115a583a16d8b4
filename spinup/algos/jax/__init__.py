"""The JAX back end."""
