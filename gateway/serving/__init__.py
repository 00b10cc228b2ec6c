"""Processes that serve: one alone, or a supervisor and workers; reload, drain and stop; managed vLLM."""
