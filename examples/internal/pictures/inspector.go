package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The size of the picture of the inspector, in pixels of the page. A pixel of the page is two of the picture.
const inspectorWidth, inspectorHeight = 830, 930

// drawInspector draws the inspector after some traffic, as a browser shows it.
func drawInspector(s *stage) error {
	addr, _, err := s.quickstart()
	if err != nil {
		return err
	}
	if err := send(addr, s.traffic); err != nil {
		return err
	}

	for i, t := range themes {
		file := filepath.Join(s.dir, "page.png")
		err := exec.CommandContext(s.ctx, "chromium", "--headless=new", "--no-sandbox", "--hide-scrollbars",
			"--force-device-scale-factor=2", fmt.Sprintf("--window-size=%d,%d", inspectorWidth, inspectorHeight),
			fmt.Sprintf("--blink-settings=preferredColorScheme=%d", 1-i), // 0 is dark
			"--screenshot="+file, "http://"+addr+"/debug/ratelimit").Run()
		if err != nil {
			return fmt.Errorf("chromium: %w", err)
		}
		page, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if page, err = smaller(page); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "inspector-"+t.name+".png"), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// send sends the quickstart what its users and some others send.
func send(addr string, lasts time.Duration) error {
	users := strings.Fields("alice bob carol dave erin frank grace heidi ivan judy ken laura mallory nick olivia peggy")
	tokens := map[string]string{}
	for i, name := range users {
		w, err := from(i+20).PostForm("http://"+addr+"/login", url.Values{"user": {name}})
		if err != nil {
			return err
		}
		token, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil {
			return err
		}
		tokens[name] = strings.TrimSpace(string(token))
	}

	// The load rises and falls. Some users and addresses send more than others, and one address guesses.
	const requests = 4000
	chance := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	for i := range requests {
		share := float64(i) / requests
		share -= 0.06 * math.Sin(4*math.Pi*share)
		time.Sleep(time.Until(start.Add(time.Duration(share * float64(lasts)))))

		few := func(n int) int { return int(float64(n) * math.Pow(chance.Float64(), 2)) }
		var r *http.Request
		var client *http.Client
		switch n := chance.IntN(20); {
		case n < 1:
			r, _ = http.NewRequest(http.MethodPost, "http://"+addr+"/login", nil)
			client = from(7)
		case n < 9:
			r, _ = http.NewRequest(http.MethodGet, "http://"+addr+"/hello", nil)
			client = from(2 + 60*i/requests + few(30)) // others come
		default:
			name := users[few(len(users))]
			r, _ = http.NewRequest(http.MethodGet, "http://"+addr+"/me", nil)
			r.Header.Set("Authorization", "Bearer "+tokens[name])
			client = from(20)
		}

		w, err := client.Do(r)
		if err != nil {
			return err
		}
		w.Body.Close()
	}
	return nil
}

// from is a client whose address is 127.0.0.n.
func from(n int) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(n))}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

// smaller draws a picture in its 64 most frequent colours.
func smaller(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}

	times := map[color.Color]int{}
	size := from.Bounds()
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			times[from.At(x, y)]++
		}
	}
	var colors color.Palette
	for c := range times {
		colors = append(colors, c)
	}
	slices.SortFunc(colors, func(a, b color.Color) int { return times[b] - times[a] })
	colors = colors[:min(len(colors), 64)]

	to := image.NewPaletted(size, colors)
	index := map[color.Color]uint8{}
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			c := from.At(x, y)
			if _, ok := index[c]; !ok {
				index[c] = uint8(colors.Index(c))
			}
			to.SetColorIndex(x, y, index[c])
		}
	}

	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
