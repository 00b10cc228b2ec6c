"""Lua scripts that run inside Redis, one for each operation, so that each reads and writes atomically.

Times are microseconds of Redis' own clock, the one clock that several gateways share. A level is written with 17
digits, as many as a double needs. A key's hash lives longer than its buckets take to fill from the deepest debt; a
missing one means full buckets.
"""

# The arithmetic is that of `gateway.limits.bucket`.
_COMMON = """
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function level(limit, left, at)
  if not left then return limit end
  return math.min(limit, left + math.max(0, now - at) * limit / 60000000)
end

local function keep(name, left)
  redis.call('HSET', KEYS[1], name, string.format('%.17g', left), name .. '_at', string.format('%.0f', now))
  redis.call('EXPIRE', KEYS[1], 180)
end

local function lease(id, seconds)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + seconds * 1000000), id)
  redis.call('PEXPIRE', KEYS[2], math.ceil(seconds * 1000))
end
"""

# KEYS: buckets, streams. ARGV: rpm, tpm, max_streams (each may be empty), tokens, lease, seconds of a lease.
# Returns what was left before: requests, tokens (empty where there is no limit), open streams.
RESERVE = (
    _COMMON
    + """
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
"""
)

# KEYS: buckets, streams. ARGV: tpm (may be empty), correction, then the leases to give back.
RELEASE = (
    _COMMON
    + """
local tpm = tonumber(ARGV[1])
if tpm then
  local kept = redis.call('HMGET', KEYS[1], 'tokens', 'tokens_at')
  keep('tokens', math.max(-tpm, math.min(tpm, level(tpm, kept[1], kept[2]) - ARGV[2])))
end
redis.call('ZREM', KEYS[2], unpack(ARGV, 3))
return 1
"""
)

# KEYS: buckets, streams. ARGV: seconds of a lease, then the leases that go on, whether Redis still knows them or not.
RENEW = (
    _COMMON
    + """
for index = 2, #ARGV do
  lease(ARGV[index], ARGV[1])
end
return 1
"""
)
