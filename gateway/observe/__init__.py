"""Observability: events as frozen facts, and their sinks: Prometheus metrics, log lines, OpenTelemetry spans."""
