package inspect

import (
	"fmt"
	"strings"
)

// chart is a policy's decisions in each step of the window, oldest first.
type chart struct {
	Allowed      [steps]int64 `json:"allowed"`
	Denied       [steps]int64 `json:"denied"`
	ShadowDenied [steps]int64 `json:"shadow_denied"`
}

const (
	chartHeight = 100.0 // a step is 1 wide
	barWidth    = 0.76
	leastHeight = 2.5 // of anything but 0: one denial among thousands is visible
)

// Top is the upper end of the scale: 2, 4, 10, 20, 40, 100 and so on, so that its half
// is a whole number.
func (c *chart) Top() int64 {
	most := int64(0)
	for i := range c.Allowed {
		most = max(most, c.Allowed[i]+c.Denied[i]+c.ShadowDenied[i])
	}
	for power := int64(1); ; power *= 10 {
		for _, digit := range []int64{2, 4, 10} {
			if most <= digit*power {
				return digit * power
			}
		}
	}
}

// Paths are the bars of each outcome, as the d of an SVG path. Bars are stacked: allowed
// at the bottom, then denied, then shadow denied.
func (c *chart) Paths() (p struct{ Allowed, Denied, ShadowDenied string }) {
	top := c.Top()
	height := func(n int64) float64 {
		if n == 0 {
			return 0
		}
		return max(leastHeight, chartHeight*float64(n)/float64(top))
	}

	var allowed, denied, shadowDenied strings.Builder
	for i := range c.Allowed {
		r, s := height(c.Denied[i]), height(c.ShadowDenied[i])
		a := min(height(c.Allowed[i]), chartHeight-r-s) // leaves room for the least heights

		bar(&allowed, i, 0, a)
		bar(&denied, i, a, r)
		bar(&shadowDenied, i, a+r, s)
	}

	p.Allowed, p.Denied, p.ShadowDenied = allowed.String(), denied.String(), shadowDenied.String()
	return p
}

// bar draws the bar of step i, which begins at this height above the bottom.
func bar(b *strings.Builder, i int, above, height float64) {
	if height > 0 {
		fmt.Fprintf(b, "M%.2f %.2fh%.2fv%.2fh-%.2fz", float64(i)+(1-barWidth)/2, chartHeight-above-height, barWidth, height, barWidth)
	}
}
