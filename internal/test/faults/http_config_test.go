package faults

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFault91MissingSettingsAreSafe(t *testing.T) {
	o := apart(t, "a policy from JSON without fields")
	enforced := func(t *testing.T, name string, cfg middleware.Config, p middleware.Policy) {
		p.Key = sitetest.Everybody
		cfg.Store = gcra.NewMemory()
		s := openSite(t, o, sitetest.Config{Config: cfg, Policies: []middleware.Policy{p}})
		a := s.Do(t, "GET /ok")
		expect(t, name, []any{a.StatusCode, a.Header.Get("RateLimit-Limit"), a.Header.Get("RateLimit-Remaining")}, []any{200, "2", "1"})
		expect(t, name, s.Statuses(t, "GET /ok", 2), []int{200, 429})
		// In an outage it fails local.
		cfg.Store, cfg.Logger = broken{}, silence
		s = openSite(t, o, sitetest.Config{Config: cfg, Policies: []middleware.Policy{p}})
		expect(t, name+": without a store", s.Statuses(t, "GET /ok", 3), []int{200, 200, 429})
	}
	for name, text := range map[string]string{
		"absent":        `{"Name": "api", "Limit": "2/day"}`,
		"zero":          `{"Name": "api", "Limit": "2/day", "Routes": [], "Shadow": false, "MaxDelay": 0, "OnFailure": 0}`,
		"null":          `{"Name": "api", "Limit": "2/day", "Routes": null, "Shadow": null, "MaxDelay": null, "OnFailure": null}`,
		"a wrong field": `{"Name": "api", "Limit": "2/day", "Enabled": false, "FailOpen": true}`,
	} {
		var p middleware.Policy
		var cfg middleware.Config
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := json.Unmarshal([]byte(`{}`), &cfg); err != nil {
			t.Fatal(err)
		}
		enforced(t, name, cfg, p)
	}
	// Where no default is safe, a missing field is an error.
	_, err := middleware.New(middleware.Config{}, middleware.Policy{})
	for _, field := range []string{"Store", "Key", "Limit"} {
		if err == nil || !strings.Contains(err.Error(), field+" is") {
			t.Errorf("without %s: got %v; want an error that names it", field, err)
		}
	}
}
