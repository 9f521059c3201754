package main

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours for colour-blind readers too (Okabe and Ito). The first line is the widest, so
// that others on top of it leave it visible.
var styles = []draw.LineStyle{
	{Color: color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, Width: vg.Points(5)},
	{Color: color.RGBA{G: 0x72, B: 0x4e, A: 0xff}, Width: vg.Points(2)},
	{Color: color.RGBA{R: 0xe6, G: 0x7e, A: 0xff}, Width: vg.Points(2), Dashes: []vg.Length{vg.Points(5), vg.Points(2.5)}},
}

// writeChart draws a panel for each traffic: the requests that each algorithm has allowed
// within the last window, over time, and the limit.
func writeChart(file, format string, runs [][][]time.Duration) (err error) {
	var panels [][]*plot.Plot
	for j, t := range traffics {
		p := plot.New()
		p.Title.Text = t.description
		p.Title.TextStyle.Font.Size = vg.Points(12)
		p.Title.Padding = vg.Points(5)
		p.Y.Label.Text = fmt.Sprintf("allowed in the last %v", limit.Per)
		p.X.Min, p.X.Max = 0, lasting.Seconds()
		p.Y.Min, p.Y.Max = 0, 2.25*float64(limit.Count)
		p.X.Tick.Marker, p.Y.Tick.Marker = every(5), every(10)
		if j == len(traffics)-1 {
			p.X.Label.Text = "seconds"
		}
		p.Add(plotter.NewGrid())

		top, err := plotter.NewLine(plotter.XYs{{X: 0, Y: float64(limit.Count)}, {X: lasting.Seconds(), Y: float64(limit.Count)}})
		if err != nil {
			return err
		}
		top.LineStyle = draw.LineStyle{Color: color.RGBA{R: 0xc0, A: 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(2), vg.Points(2)}}
		p.Add(top)

		for i, a := range algorithms {
			line, err := plotter.NewLine(steps(runs[i][j]))
			if err != nil {
				return err
			}
			line.LineStyle = styles[i]
			p.Add(line)
			if j == 0 {
				p.Legend.Add(a.name, line)
			}
		}

		if j == 0 {
			p.Legend.Add(fmt.Sprint("limit, ", limit), top)
			p.Legend.Top, p.Legend.XOffs, p.Legend.YOffs = true, vg.Points(-8), vg.Points(-6)
			p.Legend.TextStyle.Font.Size = vg.Points(10)
			p.Legend.ThumbnailWidth = vg.Points(28)
			p.Legend.Padding = vg.Points(4)
		}
		panels = append(panels, []*plot.Plot{p})
	}

	canvas, err := draw.NewFormattedCanvas(vg.Points(640), vg.Points(660), format)
	if err != nil {
		return err
	}

	whole := draw.New(canvas)
	tiles := draw.Tiles{
		Rows: len(panels), Cols: 1, PadY: vg.Points(14),
		PadTop: vg.Points(10), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(14),
	}
	for i, row := range plot.Align(panels, tiles, whole) {
		panels[i][0].Draw(row[0])
	}

	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = canvas.WriteTo(f)
	return err
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
