"""Languages as deterministic automata over the bytes of UTF-8, and operations on them."""
