-- Returns the maxmemory-policy of the server if it has a maxmemory, otherwise ''. Also
-- if the user may not run INFO: asking for that leaves no entry in the ACL log. Before
-- Redis 7.0 a script cannot ask.

if not (redis.acl_check_cmd and redis.acl_check_cmd('INFO', 'memory')) then return '' end
local info = redis.call('INFO', 'memory')
if string.match(info, '\nmaxmemory:(%d+)') == '0' then return '' end
return string.match(info, '\nmaxmemory_policy:([%w-]+)') or ''
