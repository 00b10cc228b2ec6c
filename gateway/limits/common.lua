-- In front of each script. The arithmetic is that of `gateway.limits.decision`.
-- Times are microseconds of Redis' own clock, the one clock that several gateways share. A level is written with 17
-- digits, as many as a double needs. A key's hash lives longer than its buckets take to fill from the deepest debt; a
-- missing one means full buckets.
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
