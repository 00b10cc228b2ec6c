"""Searching a model for the strings of a query: best-first, at random, or for violations of a policy."""
