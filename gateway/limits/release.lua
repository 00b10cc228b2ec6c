-- KEYS: buckets, streams. ARGV: tpm (may be empty), correction, then the leases to give back.
local tpm = tonumber(ARGV[1])
if tpm then
  local kept = redis.call('HMGET', KEYS[1], 'tokens', 'tokens_at')
  keep('tokens', math.max(-tpm, math.min(tpm, level(tpm, kept[1], kept[2]) - ARGV[2])))
end
redis.call('ZREM', KEYS[2], unpack(ARGV, 3))
return 1
