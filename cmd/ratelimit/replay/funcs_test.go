package replay

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

const ofAnotherProgram = "policies: [{name: a, key: [tenant, peer], cost: rows, limit: 10/minute}]"

// Policies with keys and costs of another program are replayed with --key and -cost.
func TestProgramFuncs(t *testing.T) {
	policies := write(t, ofAnotherProgram)[0]
	log := strings.Repeat(`{"time":1795182936,"client":"192.0.2.7","user":"alice","method":"GET","path":"/"}`+"\n", 4) +
		strings.Repeat(lineAt(1, "x"), 3)
	var out strings.Builder
	err := run(t.Context(), []string{"--policies", policies, "--key", "tenant=user", "--key", "peer=client", "--cost", "rows=3", "-"},
		strings.NewReader(log), &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"denied        1 (14.29 %)\n", "sub:alice  1\n", ": 2 subjects, 1 (50.00 %) denied"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q", &out, want)
		}
	}
}

// What lines lack for a policy is reported at the end, counted once for a request.
func TestReportUnknowns(t *testing.T) {
	const (
		byClient = "policies: [{name: a, key: client, limit: 10/minute}, {name: b, key: [user, client], limit: 9/minute}]"
		byUser   = "policies: [{name: a, key: user, limit: 10/minute}]"
		byPlan   = "policies: [{name: a, key: client, plans: {free: 1/minute}}, {name: b, key: client, plans: {pro: 5/minute}}]"
	)

	from := func(client, plan string) string {
		return fmt.Sprintf(`{"time":1795182936,"client":%q,"plan":%q,"method":"GET","path":"/"}`, client, plan) + "\n"
	}
	const noAddress, noPlan, otherPlan = "not an address", "have no plan", "no policy lists"

	for _, c := range []struct {
		policies, plan, log string
		want                string // "" for none of the three
	}{
		{byClient, "", from("192.0.2.7", "") + from("[2001:db8::1]:443", ""), ""},
		{byClient, "", from("10.1.2.3.4", "") + from("unix", "") + from("192.0.2.7", ""),
			`2 (66.67 %) of the requests have a client that is not an address, such as "10.1.2.3.4": they count as anonymous.`},
		{byClient, "", strings.Replace(lineAt(1, "x"), "192.0.2.7", "host.example", 1), `1 (100.00 %) of the requests have a client that is not an address, such as "host.example"`},
		{byUser, "", from("unix", ""), ""},
		{byPlan, "", from("192.0.2.7", "free") + from("192.0.2.7", "pro"), ""},
		{byPlan, "", from("192.0.2.7", "free") + lineAt(1, "x"), "1 (50.00 %) of the requests have no plan"},
		{byPlan, "pro", from("192.0.2.7", "free") + lineAt(1, "x"), ""},
		{byPlan, "pro", from("192.0.2.7", "gold"), `1 (100.00 %) of the requests have a plan that no policy lists, such as "gold"`},
		{byClient, "", from("192.0.2.7", "gold"), ""},
	} {
		p, err := newPlayer(write(t, c.policies)[0], &funcs{plan: c.plan})
		if err != nil {
			t.Fatal(err)
		}

		playText(t, p, c.log)
		var notes strings.Builder
		(&report{player: p}).notes(&notes)
		if !strings.Contains(notes.String(), c.want) {
			t.Errorf("%s\n%s: got %s\nwant %s", c.policies, c.log, &notes, c.want)
		}

		for _, note := range []string{noAddress, noPlan, otherPlan} {
			if strings.Contains(notes.String(), note) && !strings.Contains(c.want, note) {
				t.Errorf("%s\n%s: got %s\nwant no note with %q", c.policies, c.log, &notes, note)
			}
		}
	}
}
