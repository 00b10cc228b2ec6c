-- The index of a journal. A change of it needs another LAYOUT in `gateway.journal.index`.
CREATE TABLE files (
    id INTEGER PRIMARY KEY, inode INTEGER NOT NULL, head TEXT NOT NULL, path TEXT NOT NULL,
    read INTEGER NOT NULL, damaged INTEGER NOT NULL, UNIQUE (inode, head));
CREATE TABLE matches (
    file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    time REAL, request_id TEXT, key_name TEXT, route TEXT, policy TEXT, direction TEXT, rule TEXT, action TEXT,
    channel TEXT, choice INTEGER, "offset" INTEGER, length INTEGER, hmac TEXT);
CREATE TABLE requests (
    file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,
    time REAL, request_id TEXT, key_name TEXT, route TEXT, policy TEXT, upstream TEXT, status INTEGER,
    outcome TEXT, stream INTEGER, duration REAL);
CREATE INDEX matches_file ON matches (file);
CREATE INDEX matches_time ON matches (time);
CREATE INDEX matches_request ON matches (request_id);
CREATE INDEX matches_hmac ON matches (hmac);
CREATE INDEX requests_file ON requests (file);
CREATE INDEX requests_time ON requests (time);
CREATE INDEX requests_request ON requests (request_id);
