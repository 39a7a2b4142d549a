"""Experiments out of MLDAG's files and out of DAGs."""
