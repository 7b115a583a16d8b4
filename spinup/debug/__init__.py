"""Tools that find out what is wrong with a learning algorithm."""
