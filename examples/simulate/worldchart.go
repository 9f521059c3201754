package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// inks are the colours of the contestants.
var inks = [len(contestants)]color.Color{
	color.NRGBA{R: 0x09, G: 0x69, B: 0xda, A: 0xff},
	color.NRGBA{R: 0xd1, G: 0x5a, B: 0x00, A: 0xff},
}

// panels are the figures of the chart, side by side. A figure above its most is drawn there.
var panels = [...]struct {
	title string
	most  float64
	of    func(result) float64
	bound float64 // drawn as a line
}{
	{"denied, %", 100, func(r result) float64 { return r.denied }, told.late},
	{"used of the limit, late, %", 110, func(r result) float64 { return r.share }, told.share},
	{"most / least served, late", 10, func(r result) float64 { return r.uneven }, told.uneven},
}

// saveWorlds writes worlds.png and worlds.svg to a directory: a line for each world, a dot for each
// contestant.
func saveWorlds(all []standing, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("-out: %w", err)
	}

	plot.DefaultFont.Variant = "Sans"

	plots := [][]*plot.Plot{make([]*plot.Plot, len(panels))}
	for k, panel := range panels {
		p := plot.New()
		p.BackgroundColor = color.White
		p.Title.Text = panel.title
		p.Title.Padding = vg.Points(8)
		p.X.Min, p.X.Max = 0, panel.most
		p.Y.Min, p.Y.Max = -float64(len(all))+0.4, 3.4 // room for the legend
		p.X.Tick.Marker = plot.ConstantTicks(scale(panel.most))

		ticks := make([]plot.Tick, len(all))
		for i := range all {
			ticks[i] = plot.Tick{Value: -float64(i)}
			if k == 0 {
				ticks[i].Label = all[i].name
			}
		}
		p.Y.Tick.Marker = plot.ConstantTicks(ticks)

		grid := plotter.NewGrid()
		grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe0}, color.Gray{Y: 0xe0}
		p.Add(grid)

		bound, err := plotter.NewLine(plotter.XYs{{X: panel.bound, Y: p.Y.Min}, {X: panel.bound, Y: 0.5}})
		if err != nil {
			return fmt.Errorf("line: %w", err)
		}
		bound.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(bound)

		for c := len(contestants) - 1; c >= 0; c-- { // ours on top
			points := make(plotter.XYs, len(all))
			for i := range all {
				points[i] = plotter.XY{X: math.Min(panel.of(all[i].mean(c)), panel.most), Y: -float64(i)}
			}

			dots, err := plotter.NewScatter(points)
			if err != nil {
				return fmt.Errorf("dots: %w", err)
			}

			dots.GlyphStyle = draw.GlyphStyle{Color: inks[c], Radius: vg.Points(3.2), Shape: draw.CircleGlyph{}}
			p.Add(dots)
			if k == 0 {
				p.Legend.Add(contestants[c].name, dots)
			}
		}

		p.Legend.Top = true
		plots[0][k] = p
	}

	height := vg.Points(90 + 15*float64(len(all)))
	for _, format := range []string{"png", "svg"} {
		canvas, err := draw.NewFormattedCanvas(15*vg.Inch, height, format)
		if err != nil {
			return fmt.Errorf("canvas: %w", err)
		}

		whole := draw.New(canvas)
		whole.SetColor(color.White)
		whole.Fill(whole.Path())

		tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Points(14), PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: 2 * margin}
		for k, c := range plot.Align(plots, tiles, whole)[0] {
			plots[0][k].Draw(c)
		}

		if err := write(canvas, filepath.Join(dir, "worlds."+format)); err != nil {
			return err
		}
	}
	return nil
}

// scale returns six ticks.
func scale(most float64) []plot.Tick {
	ticks := make([]plot.Tick, 6)
	for i := range ticks {
		v := most / 5 * float64(i)
		ticks[i] = plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 4, 64)}
	}
	return ticks
}
