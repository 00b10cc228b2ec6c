"""Fuzzing: `make fuzz` tries targets with random bytes, `test_corpus.py` those that once found something."""
