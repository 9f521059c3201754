package httpclient_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

func ExampleAdaptive() {
	partner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Remaining", "4499") // much: no need to slow down
	}))
	defer partner.Close()

	client := &http.Client{Transport: &httpclient.Adaptive{Base: http.DefaultTransport}}
	resp, err := client.Get(partner.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
