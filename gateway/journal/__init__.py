"""The journal: every decision on disk, one JSON object a line, and how to find one again.

Written from left to right: `entries` (what happened, in memory) → `backlog` (a bounded queue) → `writer` (a thread) →
`lines` (matched text becomes an HMAC here) → `files` (append, sync, rotate). Read back: `reader` → `index` (SQLite) →
`command` (`portcullis journal`).
"""
