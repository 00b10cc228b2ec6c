-- KEYS: buckets, streams. ARGV: seconds of a lease, then the leases that go on, whether Redis still knows them or not.
for index = 2, #ARGV do
  lease(ARGV[index], ARGV[1])
end
return 1
