"""Managed vLLM: its command line, and its process from start to stop."""
