-- KEYS: buckets, streams. ARGV: rpm, tpm, max_streams (each may be empty), tokens, lease, seconds of a lease.
-- Returns what was left before: requests, tokens (empty where there is no limit), open streams.
local rpm, tpm, max_streams = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted = tonumber(ARGV[4])
local kept = redis.call('HMGET', KEYS[1], 'requests', 'requests_at', 'tokens', 'tokens_at')
local requests = rpm and level(rpm, kept[1], kept[2])
local tokens = tpm and level(tpm, kept[3], kept[4])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
local streams = redis.call('ZCARD', KEYS[2])

local free = (not rpm or requests >= 1) and (not tpm or tokens >= wanted) and (not max_streams or streams < max_streams)
if free then lease(ARGV[5], ARGV[6]) end
-- Kept after a refusal too: a clock that went back would refill nothing before it passes the time that is kept.
if rpm then keep('requests', requests - (free and 1 or 0)) end
if tpm then keep('tokens', tokens - (free and wanted or 0)) end
return {rpm and string.format('%.17g', requests) or '', tpm and string.format('%.17g', tokens) or '', streams}
