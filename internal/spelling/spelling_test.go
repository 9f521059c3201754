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
