package main

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"
)

// oneKeyGCRA is the least that a rate limit can do in a script: a key, a
// decision, no group of limits.
var oneKeyGCRA = rueidis.NewLuaScript(`
local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local emission, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local ahead = tat + emission - now
if ahead > capacity then return -(ahead - capacity) end
redis.call('SET', KEYS[1], string.format('%.0f', tat + emission), 'PX', string.format('%.0f', math.max(math.ceil(ahead / 1000), 1)))
return capacity - ahead
`)

// onRueidis makes callers with a client of rueidis.
func onRueidis(d deployment, do func(context.Context, rueidis.Client, string) (bool, error)) (func() check, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{d.addr},
		DisableCache: true, // of answers, which has nothing to do here
	})
	if err != nil {
		return nil, err
	}
	d.cleanup(client.Close)
	return shared(func(subject string) (bool, error) { return do(context.Background(), client, subject) }), nil
}

func newRueidisGCRA(d deployment, l limit) (func() check, error) {
	emission := strconv.FormatInt(l.emission().Microseconds(), 10)
	capacity := strconv.FormatInt(l.emission().Microseconds()*l.burst, 10)
	return onRueidis(d, func(ctx context.Context, client rueidis.Client, subject string) (bool, error) {
		left, err := oneKeyGCRA.Exec(ctx, client, []string{"one:" + subject}, []string{emission, capacity}).AsInt64()
		return left >= 0, err
	})
}

// The command GCRA has the arguments burst-1, units and seconds; its reply begins
// with 1 for a denial.

func newNativeGCRA(d deployment, l limit) (func() check, error) {
	return onRueidis(d, func(ctx context.Context, client rueidis.Client, subject string) (bool, error) {
		reply, err := client.Do(ctx, client.B().Gcra().Key("native:"+subject).
			MaxBurst(l.burst-1).TokensPerPeriod(l.count).Period(l.per.Seconds()).Build()).AsIntSlice()
		return err == nil && reply[0] == 0, err
	})
}

func newNativeGoGCRA(d deployment, l limit) (func() check, error) {
	client := d.dial()
	return shared(func(subject string) (bool, error) {
		reply, err := client.Do(context.Background(), "GCRA", "native-go:"+subject, l.burst-1, l.count, l.per.Seconds()).Int64Slice()
		return err == nil && reply[0] == 0, err
	}), nil
}
