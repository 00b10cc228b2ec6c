"""Bytes ↔ events ↔ the texts in them: server-sent events, JSON, and the dialects of each API."""
