-- Sets keys for the probe of a server, see kind.go.
--
-- KEYS     the keys
-- ARGV[1]  their value
-- ARGV[2]  PX or PXAT, and
-- ARGV[3]  when they expire
-- Reply    the value that the first key had

local was = redis.call('MGET', KEYS[1])[1]
for k = 1, #KEYS do redis.call('SET', KEYS[k], ARGV[1], ARGV[2], ARGV[3]) end
return was
