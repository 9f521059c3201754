package inspect

import (
	"cmp"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// kindWords are what the page calls the kinds of package keyfunc. Others are shown as they are.
var kindWords = map[string]string{
	"ip": "address", "sub": "user", "key": "API key", "own": "KeyFrom", "route": "route", "const": "a constant",
	subject.Anonymous: "nothing (anonymous)", subject.Other: "keys without a kind",
}

// words returns "address and route" for "ip and route".
func words(kinds string) string {
	all := strings.Split(kinds, " and ")
	for i, kind := range all {
		all[i] = cmp.Or(kindWords[kind], kind)
	}
	return strings.Join(all, " and ")
}
