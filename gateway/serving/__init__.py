"""Processes: one that serves, or a supervisor and its workers; reload, drain, restart."""
