package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours for colour-blind readers too (Okabe and Ito). The first line is the widest, so
// that others on top of it leave it visible.
var styles = []draw.LineStyle{
	{Color: color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, Width: vg.Points(5)},
	{Color: color.RGBA{G: 0x72, B: 0x4e, A: 0xff}, Width: vg.Points(2)},
	{Color: color.RGBA{R: 0xe6, G: 0x7e, A: 0xff}, Width: vg.Points(2), Dashes: []vg.Length{vg.Points(5), vg.Points(2.5)}},
}

// dark is the style of the SVG in a browser that prefers dark pages.
const dark = `<style>@media (prefers-color-scheme: dark) {
text { fill: #e7eaee } [style="fill:#FFFFFF"] { fill: #181c22 !important }
[style*="stroke:#000000"] { stroke: #a3adb9 !important } [style*="stroke:#E0E0E0"] { stroke: #2d343d !important }
[style*="stroke:#00724E"] { stroke: #3fc49a !important } [style*="stroke:#C00000"] { stroke: #ff6f6b !important }
}</style>
`

// writeChart draws a panel for each traffic, the requests that each algorithm has allowed within the
// last window, over time, and the limit; and a panel of the memory of a key.
func writeChart(file, format string, runs [][][]time.Duration, memory []plotter.XYs) error {
	plot.DefaultFont.Variant = "Sans"
	var panels [][]*plot.Plot
	for j := range traffics {
		p, err := trafficPanel(j, runs)
		if err != nil {
			return err
		}
		panels = append(panels, []*plot.Plot{p})
	}
	p, err := memoryPanel(memory)
	if err != nil {
		return err
	}
	panels = append(panels, []*plot.Plot{p})

	const width, height = 640, 880
	canvas, err := draw.NewFormattedCanvas(width, height, format)
	if err != nil {
		return err
	}
	if format == "svg" { // with another font than the one that placed them, texts are over the lines
		canvas = vgsvg.NewWith(vgsvg.UseWH(width, height), vgsvg.EmbedFonts(true))
	}

	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	tiles := draw.Tiles{
		Rows: len(panels), Cols: 1, PadY: vg.Points(14),
		PadTop: vg.Points(10), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(14),
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
	return os.WriteFile(file, picture, 0o644)
}

// newPanel is an empty panel.
func newPanel(title string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = vg.Points(12)
	p.Title.Padding = vg.Points(5)
	p.Legend.Top, p.Legend.XOffs, p.Legend.YOffs = true, vg.Points(-8), vg.Points(-6)
	p.Legend.TextStyle.Font.Size = vg.Points(10)
	p.Legend.ThumbnailWidth = vg.Points(28)
	p.Legend.Padding = vg.Points(4)

	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe0}, color.Gray{Y: 0xe0}
	p.Add(grid)
	return p
}

// trafficPanel draws what the algorithms allow of a traffic.
func trafficPanel(j int, runs [][][]time.Duration) (*plot.Plot, error) {
	p := newPanel(traffics[j].description)
	p.Y.Label.Text = fmt.Sprintf("allowed in the last %v", limit.Per)
	p.X.Min, p.X.Max = 0, lasting.Seconds()
	p.Y.Min, p.Y.Max = 0, 2.25*float64(limit.Count)
	p.X.Tick.Marker, p.Y.Tick.Marker = every(5), every(10)
	if j == len(traffics)-1 {
		p.X.Label.Text = "seconds"
	}

	top, err := plotter.NewLine(plotter.XYs{{X: 0, Y: float64(limit.Count)}, {X: lasting.Seconds(), Y: float64(limit.Count)}})
	if err != nil {
		return nil, err
	}
	top.LineStyle = draw.LineStyle{Color: color.RGBA{R: 0xc0, A: 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(2), vg.Points(2)}}
	p.Add(top)

	for i, a := range algorithms {
		line, err := plotter.NewLine(steps(runs[i][j]))
		if err != nil {
			return nil, err
		}
		line.LineStyle = styles[i]
		p.Add(line)
		if j == 0 {
			p.Legend.Add(a.name, line)
		}
	}
	if j == 0 {
		p.Legend.Add(fmt.Sprint("limit, ", limit), top)
	}
	return p, nil
}

// memoryPanel draws the memory of a key of each algorithm, over the limit.
func memoryPanel(memory []plotter.XYs) (*plot.Plot, error) {
	p := newPanel("what a client costs whose limit is used up")
	p.Y.Label.Text = "bytes a key"
	p.X.Label.Text = fmt.Sprintf("requests that the limit allows in %v", limit.Per)
	p.X.Min, p.Y.Min = 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = every(40), every(1000)
	for i := range algorithms {
		line, err := plotter.NewLine(memory[i])
		if err != nil {
			return nil, err
		}
		line.LineStyle = styles[i]
		p.Add(line)
	}
	return p, nil
}

// steps returns the number of allowed requests in the last window over time: a step when a
// request passes or leaves the window.
func steps(allowed []time.Duration) plotter.XYs {
	corners := []time.Duration{lasting}
	for _, t := range allowed {
		corners = append(corners, t, t+limit.Per)
	}
	slices.Sort(corners)
	line := plotter.XYs{{}}
	for _, t := range slices.Compact(corners) {
		if t > lasting {
			break
		}
		line = append(line,
			plotter.XY{X: t.Seconds(), Y: line[len(line)-1].Y},
			plotter.XY{X: t.Seconds(), Y: float64(within(allowed, t, limit.Per))})
	}
	return line
}

// every puts ticks on an axis at the multiples of a number.
type every float64

func (e every) Ticks(from, to float64) (ticks []plot.Tick) {
	for v := from; v <= to; v += float64(e) {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprint(v)})
	}
	return ticks
}
