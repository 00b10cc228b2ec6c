"""The journal: every decision on disk as JSON lines, and a search over them.

Writing: `entries` (in memory; matched text becomes an HMAC in the line) → `backlog` (a bounded queue) → `writer` (a
thread) → `files` (append, sync, rotate). Reading: `reader` → `index` (SQLite) → `command` (`portcullis journal`).
"""
