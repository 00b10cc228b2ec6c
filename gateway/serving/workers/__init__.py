"""Several processes: a supervisor, its workers, and the messages between them."""
