package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Requests have the inspector's colours; policies have Okabe and Ito's, and a grey.
var (
	inkRequests = color.RGBA{R: 0x4c, G: 0x86, B: 0xcf, A: 0xff}
	inkDenied   = color.RGBA{R: 0xc9, G: 0x2a, B: 0x2a, A: 0xff}
	inkPolicies = []color.Color{
		color.RGBA{G: 0x72, B: 0xb2, A: 0xff},
		color.RGBA{G: 0x9e, B: 0x73, A: 0xff},
		color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
		color.RGBA{R: 0xe6, G: 0x9f, A: 0xff},
		color.RGBA{R: 0x40, G: 0x40, B: 0x40, A: 0xff},
	}
)

// dark is the style of an SVG in a browser that prefers dark pages. It is the inspector's.
const dark = `<style>@media (prefers-color-scheme: dark) {
text { fill: #e7eaee } [style="fill:#FFFFFF"] { fill: #181c22 !important }
[style*="stroke:#000000"] { stroke: #a3adb9 !important } [style*="stroke:#E0E0E0"] { stroke: #2d343d !important }
[style*="stroke:#404040"] { stroke: #c8d0da !important } [style*="stroke:#0072B2"] { stroke: #5f9ae6 !important }
[style="fill:#4C86CF"] { fill: #5f9ae6 !important } [style="fill:#C92A2A"] { fill: #ff6f6b !important }
}</style>
`

// saveCharts writes replay.png and replay.svg into the directory, and prints their names.
func saveCharts(w io.Writer, dir string, p *player, zone *time.Location) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	fmt.Fprintln(w)
	for _, format := range []string{"png", "svg"} {
		name := filepath.Join(dir, "replay."+format)
		if err := saveChart(name, format, p, zone); err != nil {
			return fmt.Errorf("chart: %w", err)
		}
		fmt.Fprintln(w, "wrote", name)
	}
	return nil
}

// saveChart draws two panels over time: all requests and the denied ones, and the denials
// of each policy.
func saveChart(name, format string, p *player, zone *time.Location) error {
	plot.DefaultFont.Variant = "Sans"
	unit := p.timeline.unit()
	traffic, err := trafficPanel(p, unit)
	if err != nil {
		return err
	}

	shown := p.denying()
	denials, err := denialsPanel(p, shown, unit)
	if err != nil {
		return err
	}

	start := time.UnixMicro(p.timeline.start).In(zone)
	p.timeline.style(traffic, start, 2)
	p.timeline.style(denials, start, len(shown))
	denials.X.Label.Padding = vg.Points(4)
	denials.X.Label.Text = days(start, time.UnixMicro(p.timeline.last).In(zone))
	panels := [][]*plot.Plot{{traffic}, {denials}}

	const width, height = 10 * vg.Inch, 6.5 * vg.Inch
	canvas, err := draw.NewFormattedCanvas(width, height, format)
	if err != nil {
		return err
	}
	if format == "svg" {
		// Texts are placed by the widths of this font: with another the legend is over the lines.
		canvas = vgsvg.NewWith(vgsvg.UseWH(width, height), vgsvg.EmbedFonts(true))
	}

	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	tiles := draw.Tiles{
		Rows: len(panels), Cols: 1, PadY: vg.Points(16),
		PadTop: vg.Points(12), PadBottom: vg.Points(10), PadLeft: vg.Points(12), PadRight: vg.Points(24),
	}
	for i, row := range plot.Align(panels, tiles, whole) {
		panels[i][0].Draw(row[0])
	}

	var drawn bytes.Buffer
	if _, err := canvas.WriteTo(&drawn); err != nil {
		return err
	}
	picture := drawn.Bytes()
	if format == "svg" {
		picture = bytes.Replace(picture, []byte("<g "), []byte(dark+"<g "), 1)
	}
	return os.WriteFile(name, picture, 0o644)
}

// days returns the days from start to end.
func days(start, end time.Time) string {
	const day = "2 January 2006"
	text := start.Format(day)
	if last := end.Format(day); last != text {
		text += " to " + last
	}
	return text + start.Format(", -0700")
}

// unit is a unit of time that makes rates easy to read.
type unit struct {
	name    string // "a second"
	seconds float64
}

// unit returns the shortest unit with readable rates, and none longer than the log.
func (t *timeline) unit() unit {
	busiest := int64(0)
	for _, n := range t.lines[lineRequests] {
		busiest = max(busiest, n)
	}
	units := []unit{{"a second", 1}, {"a minute", 60}, {"an hour", 3600}}
	for len(units) > 1 && float64(busiest)/seconds(t.step)*units[0].seconds < 10 && units[1].seconds <= seconds(t.last-t.start) {
		units = units[1:]
	}
	return units[0]
}

func trafficPanel(p *player, u unit) (*plot.Plot, error) {
	panel := plot.New()
	panel.Title.Text = fmt.Sprintf("%s, %s denied", plural(p.requests, "request"), withPercent(p.denied, p.requests))
	panel.Y.Label.Text = "requests " + u.name
	panel.Add(grid())

	for _, area := range []struct {
		name string
		line int
		ink  color.Color
	}{
		{"all", lineRequests, inkRequests},
		{"denied", lineDenied, inkDenied},
	} {
		points := p.timeline.points(area.line, u)
		corners := append(plotter.XYs{{X: points[0].X}}, points...)
		corners = append(corners, plotter.XY{X: points[len(points)-1].X})
		polygon, err := plotter.NewPolygon(corners)
		if err != nil {
			return nil, err
		}

		polygon.Color = area.ink
		polygon.Width = 0
		panel.Add(polygon)
		panel.Legend.Add(area.name, polygon)
	}
	return panel, nil
}

// denying returns the policies that deny something, those that deny most first.
func (p *player) denying() []*tally {
	list := slices.DeleteFunc(slices.Clone(p.tallies), func(t *tally) bool { return t.denied == 0 })
	slices.SortStableFunc(list, func(a, b *tally) int { return cmp.Compare(b.denied, a.denied) })
	return list
}

func denialsPanel(p *player, shown []*tally, u unit) (*plot.Plot, error) {
	panel := plot.New()
	panel.Title.Text = "denials by policy"
	panel.Y.Label.Text = "denials " + u.name
	panel.Add(grid())

	if len(shown) == 0 {
		panel.Title.Text = "no policy denies anything"
	}
	if len(shown) > len(inkPolicies) {
		shown = shown[:len(inkPolicies)]
		panel.Title.Text += fmt.Sprintf(", of the %d that deny most", len(shown))
	}

	for i, t := range shown {
		line, err := plotter.NewLine(p.timeline.points(t.line, u))
		if err != nil {
			return nil, err
		}
		line.LineStyle = draw.LineStyle{Color: inkPolicies[i], Width: vg.Points(1.5)}

		name := shortened(t.policy.Name)
		if t.policy.Shadow {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
			name += " (shadow)"
		}

		panel.Add(line)
		panel.Legend.Add(fmt.Sprintf("%s, %s", name, grouped(t.denied)), line)
	}
	return panel, nil
}

// shortened returns a name that fits into a legend. Long names often differ at their ends.
func shortened(name string) string {
	const most = 30
	if len(name) <= most { // printable ASCII, see middleware.Policy
		return name
	}
	return name[:most/2] + "..." + name[len(name)-most/2:]
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color = color.Gray{Y: 0xe0}
	g.Horizontal.Color = color.Gray{Y: 0xe0}
	return g
}

// points returns the outline of a line, in steps.
func (t *timeline) points(line int, u unit) plotter.XYs {
	points := make(plotter.XYs, 0, 2*t.used)
	for _, s := range t.spans(line) {
		y := float64(s.count) / (s.to - s.from) * u.seconds
		points = append(points, plotter.XY{X: s.from, Y: y}, plotter.XY{X: s.to, Y: y})
	}
	return points
}

// style sets what all panels have in common, and makes room for the legend.
func (t *timeline) style(panel *plot.Plot, start time.Time, names int) {
	panel.Title.TextStyle.Font.Size = vg.Points(12)
	panel.Title.Padding = vg.Points(6)
	panel.BackgroundColor = color.White
	spans := t.spans(lineRequests)
	panel.X.Min, panel.X.Max = 0, spans[len(spans)-1].to
	panel.Y.Min = 0
	panel.Y.Max = max(panel.Y.Max, 1) / (0.95 - 0.09*float64(min(names, len(inkPolicies))))
	panel.X.Tick.Marker = clockTicks{start}
	panel.Y.Tick.Marker = wholeTicks{}
	panel.Legend.Top = true
	panel.Legend.Padding = vg.Points(4)
	panel.Legend.TextStyle.Font.Size = vg.Points(10)
	panel.Legend.XOffs, panel.Legend.YOffs = -vg.Points(8), -vg.Points(4)
}

// clockTicks marks round times of day.
type clockTicks struct{ start time.Time }

func (c clockTicks) Ticks(from, to float64) (ticks []plot.Tick) {
	const most = 9

	every, form := 365*24*time.Hour, "2006"
	for _, choice := range []struct {
		every time.Duration
		form  string
	}{
		{time.Second, "15:04:05"}, {5 * time.Second, "15:04:05"}, {15 * time.Second, "15:04:05"}, {30 * time.Second, "15:04:05"},
		{time.Minute, "15:04"}, {5 * time.Minute, "15:04"}, {15 * time.Minute, "15:04"}, {30 * time.Minute, "15:04"},
		{time.Hour, "15:04"}, {3 * time.Hour, "15:04"}, {6 * time.Hour, "15:04"}, {12 * time.Hour, "2 Jan 15:04"},
		{24 * time.Hour, "2 Jan"}, {2 * 24 * time.Hour, "2 Jan"}, {3 * 24 * time.Hour, "2 Jan"}, {7 * 24 * time.Hour, "2 Jan"}, {30 * 24 * time.Hour, "2 Jan 2006"}, {90 * 24 * time.Hour, "2 Jan 2006"},
	} {
		if (to-from)/choice.every.Seconds() <= most {
			every, form = choice.every, choice.form
			break
		}
	}

	_, offset := c.start.Zone()
	local := c.start.Unix() + int64(offset)
	step := int64(every / time.Second)

	for at := (local + step - 1) / step * step; float64(at-local) <= to; at += step {
		t := c.start.Add(time.Duration(at-local) * time.Second)
		ticks = append(ticks, plot.Tick{Value: float64(at - local), Label: t.Format(form)})
	}
	return ticks
}

// wholeTicks marks about five round whole numbers.
type wholeTicks struct{}

func (wholeTicks) Ticks(from, to float64) (ticks []plot.Tick) {
	step := 1.0
	for factors := []float64{2, 2.5, 2}; (to-from)/step > 6; factors = append(factors[1:], factors[0]) {
		step *= factors[0]
	}
	for v := 0.0; v <= to; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: grouped(int64(v))})
	}
	return ticks
}
