-- Decides a batch of admissions; each takes all of its charges or none. The
-- algorithm and its names are those of package gcra; time is counted in ticks of
-- 100 ns since 2025-01-01T00:00:00Z.
--
-- KEYS   the buckets, each once; a value is the theoretical arrival time (TAT). None if
--        they are in several slots: then ARGV begins with their number and the keys, and
--        what is said of ARGV below follows them
-- ARGV   The short form, if each admission is one charge of its own key, in the order of
--        KEYS, and all have the same params, with inc > 0, room >= 0 and unit = 0, and none
--        is a shadow or a quota: inc, room and, if it is not room, top. Few arguments, as each costs Redis 1,500
--        instructions. The long form, for all others:
--        [1]  the ops: 5 bytes a charge, in the order of the admissions:
--             key (2 bytes, high first), params, periods (all counted from 0) and
--             flags (1: last charge of its admission, 2: shadow, 4: a quota, which
--             has the periods)
--        [2]  then for each params four numbers: inc, room, top, unit
--             inc   cost*T; 0 peeks, negative refunds
--             room  the charge passes if ahead + inc <= room; -1: it never passes. Peeks
--                   and refunds always pass
--             top   a TAT further ahead of now counts as top, the clamp. The top of a refund
--                   or a late charge on a rate is beyond what any limit makes
--             unit  0, or T of a late charge: it is never denied, and takes the units of
--                   inc that fit
--        then for each periods, the last first, four times: when the
--             previous, the current and the next period of a quota begin, and when
--             that ends, as the caller sees them. A refund sends the begin of the period
--             that it names, and three times its end
-- Reply  for each charge how many ticks its TAT was ahead of now when its turn
--        came: ahead if its admission was allowed, -ahead-1 if not, which is below 0. A
--        list, or without ops and of one key the number alone. With a quota the list ends
--        with now.
--        With empty KEYS it is -2^53 for all charges of an admission that was not
--        decided, since another node has one of its keys, or may have it
--
-- A quota takes the same step with the end of its current period, by this clock, in place
-- of now. If that is not among its periods, the reply for the charge is -2^52 and the other
-- charges of its admission are denied: the caller asks again, with periods around now. If the
-- clock goes back into the period before, the one that has begun goes on: then 2^50 is added
-- to ahead.
--
-- A value that is no number counts as absent, and the clamp bounds all others, so
-- a damaged bucket heals itself. An admission is written when all of it has been
-- computed. A denial writes nothing, with one exception: a charge with inc > 0, room >= 0 and
-- unit = 0, also a shadow, brings a TAT beyond top down to it, or the bucket would deny until
-- the clock catches up. No other charge does. If writing fails (out of memory, read-only), nothing has been written;
-- for several slots see below.
--
-- A key expires up to 10 seconds after its TAT. For a rate that is when the bucket is full,
-- for a quota the end of the period and a tick for each unit used. Time is divided into cells of
-- 10 seconds, and no bucket expires before the end of its TAT's cell: an expiry is set
-- to 10 seconds after the TAT. So if a TAT grows within its cell, its key keeps the
-- expiry that it has, whatever limit has set that: with KEEPTTL a check of a batch of 90 takes Redis 1.39 us,
-- with PXAT 1.55 us.

local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 10000000 + time[2] * 10
local format, unpack = string.format, table.unpack or unpack
local keys, args = KEYS, ARGV
local values -- of the keys: text, false if there is none, nil if the key is not here
if #keys > 0 then
  values = redis.call('MGET', unpack(keys))
else
  local n = tonumber(ARGV[1])
  keys, args, values = { unpack(ARGV, 2, n + 1) }, { unpack(ARGV, n + 2) }, {}
  local known, may = pcall(redis.acl_check_cmd, 'GET', ARGV[2]) -- an error if GET has another name
  local get = known and may -- it takes Redis 0.31 us a key, MGET 0.49 us
  for k = 1, n do
    values[k] = get and redis.pcall('GET', keys[k])
    if not get or type(values[k]) == 'table' then -- a table is an error; MGET takes a list for absent
      values[k] = redis.pcall('MGET', keys[k])[1]
    end
  end
end
local elsewhere, unfit = -9007199254740992, -4503599627370496

local reply = values -- without ops
local inc, room, top -- of all charges; only without ops
-- Only with ops:
local lead -- how far the TATs are ahead of now, or of the end of a quota's period
local ends -- key: what base has returned
local dirty -- key: true when it must be written

if #args < 4 then
  inc, room = args[1] + 0, args[2] + 0 -- tonumber parses a text twice: 1,200 instructions more
  top = args[3] and args[3] + 0 or room
else
  local ops = args[1]
  lead, ends, dirty, reply = {}, {}, {}, {}
  for k = 1, #keys do
    lead[k] = (tonumber(values[k]) or now) - now
  end
  for a = 2, #args do args[a] = args[a] + 0 end

  -- base returns the end of the current period in place of now for a quota on the key k,
  -- whose periods begin behind args[p]; nil if it is not among them.
  local begun = {} -- key: 2^50 if the clock has gone back since the period began
  local function base(k, p, top)
    local previous, current, following, last = args[p + 1], args[p + 2], args[p + 3], args[p + 4]
    if now < previous or now >= last then return nil end
    if ends[k] then return ends[k] <= last and ends[k] or nil end
    local found, after = last, last
    if now < current then
      found, after = current, following
    elseif now < following then
      found, after = following, last
    end
    local used = lead[k] + now - after
    if after == found and used > top then return nil end -- perhaps of a later period than the caller knows
    if after > found and used >= 0 and used <= top then found, begun[k] = after, 1125899906842624 end
    ends[k], lead[k] = found, lead[k] + now - found
    return found
  end

  local quotas = false
  -- Of the current admission:
  local first, here, admitted = 1, true, true
  local undo -- its keys and their leads before it, a list
  for i = 1, #ops / 5 do
    local high, low, params, periods, flags = string.byte(ops, 5 * i - 4, 5 * i)
    local k = 256 * high + low + 1
    local inc, room, top, unit = args[4 * params + 2], args[4 * params + 3], args[4 * params + 4], args[4 * params + 5]

    local fits = true
    if flags >= 4 then
      quotas = true
      flags = flags - 4
      fits = base(k, #args - 4 * (periods + 1), top)
    end

    local ahead = lead[k]
    if values[k] == nil then
      here, admitted, reply[i] = false, false, 0
    elseif not fits then
      admitted, reply[i] = false, unfit
    else
      if not (ahead > 0) then
        ahead = 0
      elseif ahead > top then
        ahead = top
        if inc > 0 and room >= 0 and unit == 0 then -- also for the case that the admission is denied
          lead[k], dirty[k] = top, true
          local u = undo
          while u do
            if u[1] == k then u[2] = math.min(u[2], top) end
            u = u[3]
          end
        end
      end
      reply[i] = ahead + (begun[k] or 0)
      if unit > 0 then
        local left = math.max(room - ahead, 0)
        inc = math.min(inc, left - left % unit)
      end
      if inc <= 0 or ahead + inc <= room then
        if inc > 0 or (inc < 0 and ahead > 0) then
          if flags == 1 and first == i then dirty[k] = true else undo = { k, lead[k], undo } end
          lead[k] = math.max(ahead + inc, 0)
        end
      elseif flags < 2 then
        admitted = false
      end
    end

    if flags % 2 == 1 then
      while undo do
        if admitted then dirty[undo[1]] = true else lead[undo[1]] = undo[2] end
        undo = undo[3]
      end
      if not admitted then
        for j = first, i do
          if not here then
            reply[j] = elsewhere
          elseif reply[j] >= 0 then
            reply[j] = -reply[j] - 1
          end
        end
      end
      first, here, admitted = i + 1, true, true
    end
  end
  if quotas then reply[#reply + 1] = now end
end

-- Write. Buckets that were full have the same TAT after the same charge, so its texts are
-- made once. Charges without ops, as in most batches, are decided on the way.
--
-- '%.0f' is exact everywhere, and half the cost of writing a bucket. '%d' is exact where C's
-- long has 64 bits. Where it has 32, it gives at most 11 bytes, and a TAT has more: then
-- '%.0f' is used.
--
-- The first write may raise: nothing is written yet, and an error without the words below
-- means that. With several slots the next ones may not: their error must say that some keys
-- are written.
local cell = 100000000 -- 10 s
local whole = '%d'
local written, text, expiry
local call, later = redis.call, #KEYS > 0 and redis.call or redis.pcall
for k = 1, #keys do
  local old = tonumber(values[k])
  local new -- TAT

  if lead then
    new = dirty[k] and (ends[k] or now) + lead[k]
  else
    local ahead = (old or now) - now
    if not (ahead > 0) then
      ahead = 0
    elseif ahead > top then
      ahead, new = top, now + top
    end
    if values[k] == nil then
      reply[k], new = elsewhere, nil
    elseif ahead + inc <= room then
      reply[k], new = ahead, now + ahead + inc
    else
      reply[k] = -ahead - 1
    end
  end

  if new then
    if new ~= written then
      written, text, expiry = new, format(whole, new), nil
      if #text < 12 then
        whole = '%.0f'
        text = format(whole, new)
      end
    end
    local done
    if old and old <= new and old - old % cell == new - new % cell then
      done = call('SET', keys[k], text, 'KEEPTTL')
    else
      expiry = expiry or format(whole, math.floor(1735689600000 + (new + cell) / 10000)) -- '%d' wants whole numbers from Lua 5.3 on
      done = call('SET', keys[k], text, 'PXAT', expiry)
    end
    if done.err then error('some keys are written: ' .. done.err) end
    call = later
  end
end

if not lead and #keys == 1 then return reply[1] end -- a list costs Redis as much as its SET
return reply
