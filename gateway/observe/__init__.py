"""What happened, as frozen facts, and the sinks that take them: Prometheus and a log line for each request."""
