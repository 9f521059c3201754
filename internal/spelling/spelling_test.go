package spelling

import "testing"

func TestClosest(t *testing.T) {
	names := []string{"client", "login", "id"}
	for s, want := range map[string]string{
		"clint": "client", "CLIENT": "client", "lcient": "client", "loing": "login", "clientss": "client",
		"clientsss": "", "logout": "", "ab": "", "xd": "id", "": "", "c": "",
	} {
		if got, ok := Closest(names, s); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %t; want %q", s, got, ok, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "acb", 1}, {"PSOT", "POST", 1}, {"LIST", "POST", 2}, {"é", "e", 1}, {"ca", "abc", 3}} {
		if got := Distance(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: got %d; want %d", test.a, test.b, got, test.want)
		}
	}
}
