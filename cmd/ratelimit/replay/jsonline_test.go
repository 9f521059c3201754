package replay

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// The most precise time of a line counts. Traefik has the end of the request in whole
// seconds, nginx has milliseconds only in msec.
func TestRunMostPreciseTime(t *testing.T) {
	start := time.Date(2026, 11, 21, 22, 49, 2, 300_000, time.UTC)
	for name, line := range map[string]func(time.Time) string{
		"Traefik": func(at time.Time) string {
			return fmt.Sprintf(`{"ClientAddr":"192.0.2.7:51230","ClientHost":"192.0.2.7","ClientPort":"51230","ClientUsername":"-","DownstreamContentSize":5,"DownstreamStatus":200,"Duration":1234567,"OriginContentSize":5,"OriginDuration":1200000,"OriginStatus":200,"Overhead":34567,"RequestAddr":"api.example","RequestContentSize":0,"RequestCount":7,"RequestHost":"api.example","RequestMethod":"GET","RequestPath":"/hello","RequestPort":"-","RequestProtocol":"HTTP/1.1","RequestScheme":"http","RetryAttempts":0,"RouterName":"api@docker","ServiceAddr":"10.0.0.2:8080","ServiceName":"api@docker","ServiceURL":"http://10.0.0.2:8080","StartLocal":"%[1]s","StartUTC":"%[1]s","entryPointName":"web","level":"info","msg":"","time":"%[2]s"}`,
				at.Format(time.RFC3339Nano), at.Add(1234567).Format(time.RFC3339))
		},
		"nginx": func(at time.Time) string {
			return fmt.Sprintf(`{"time_local":"%s","time_iso8601":"%s","msec":"%.3f","remote_addr":"192.0.2.7","remote_user":"","request":"GET /hello?x=1 HTTP/1.1","status":"200"}`,
				at.Format(commonTime), at.Format("2006-01-02T15:04:05-07:00"), float64(at.UnixMilli())/1000)
		},
		"nginx with names of its own": func(at time.Time) string {
			return fmt.Sprintf(`{"timestamp":"%.3f","time":"%s","remote_addr":"192.0.2.7","request":"GET / HTTP/1.1"}`,
				float64(at.UnixMilli())/1000, at.Format("2006-01-02T15:04:05-07:00"))
		},
		"a duration that is called as a time is": func(at time.Time) string {
			return fmt.Sprintf(`{"msec":12.5,"time":"%s","client":"192.0.2.7","method":"GET","path":"/","ts":0.125}`, at.Format(time.RFC3339Nano))
		},
	} {
		var log strings.Builder
		for i := range 40 {
			fmt.Fprintln(&log, line(start.Add(time.Duration(i)*100*time.Millisecond)))
		}

		files := write(t, "policies: [{name: a, key: client, limit: 10/second burst 1}]", log.String())
		var out strings.Builder
		if err := run(t.Context(), []string{"--policies", files[0], files[1]}, nil, &out, io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		for _, want := range []string{"40 requests in 40 lines", "  denied        0\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: got\n%s\nwant %q", name, &out, want)
			}
		}
	}
}
