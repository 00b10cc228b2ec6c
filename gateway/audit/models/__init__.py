"""The models that can be audited: loaded by transformers, served by vLLM, a toy, or any of them behind a word mask."""
