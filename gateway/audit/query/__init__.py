"""Queries: frozen data, the file format they are read from, and their compilation to automata."""
