package inspect

import (
	"fmt"
	"strings"
)

// chart is what a policy has decided in each step of the window, oldest first.
type chart struct {
	Allowed  [steps]int64 `json:"allowed"`
	Refused  [steps]int64 `json:"refused"`
	Shadowed [steps]int64 `json:"shadow_refused"`
}

const (
	chartHeight = 100.0 // a step is 1 wide
	barWidth    = 0.76
	leastHeight = 2.5 // of anything but 0: one refusal among thousands is to be seen
)

// Top is where the scale ends: the next of 2, 4, 10, 20, 40, 100 and so on, so
// that its half is a whole number.
func (c *chart) Top() int64 {
	most := int64(0)
	for i := range c.Allowed {
		most = max(most, c.Allowed[i]+c.Refused[i]+c.Shadowed[i])
	}
	for power := int64(1); ; power *= 10 {
		for _, digit := range []int64{2, 4, 10} {
			if most <= digit*power {
				return digit * power
			}
		}
	}
}

// Paths are the bars of each outcome as the d of an SVG path, stacked: allowed
// at the bottom, then refused, then what would have been.
func (c *chart) Paths() (p struct{ Allowed, Refused, Shadowed string }) {
	top := c.Top()
	height := func(n int64) float64 {
		if n == 0 {
			return 0
		}
		return max(leastHeight, chartHeight*float64(n)/float64(top))
	}
	var allowed, refused, shadowed strings.Builder
	for i := range c.Allowed {
		r, s := height(c.Refused[i]), height(c.Shadowed[i])
		a := min(height(c.Allowed[i]), chartHeight-r-s) // gives way to the least heights
		bar(&allowed, i, 0, a)
		bar(&refused, i, a, r)
		bar(&shadowed, i, a+r, s)
	}
	p.Allowed, p.Refused, p.Shadowed = allowed.String(), refused.String(), shadowed.String()
	return p
}

// bar draws a bar of step i that begins so far above the bottom.
func bar(b *strings.Builder, i int, above, height float64) {
	if height > 0 {
		fmt.Fprintf(b, "M%.2f %.2fh%.2fv%.2fh-%.2fz", float64(i)+(1-barWidth)/2, chartHeight-above-height, barWidth, height, barWidth)
	}
}
