package main

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// ink is the colour of each process.
var ink = [processes]color.Color{
	color.NRGBA{R: 0x09, G: 0x69, B: 0xda, A: 0xb0},
	color.NRGBA{R: 0xd1, G: 0x5a, B: 0x00, A: 0xb0},
}

// newPlot draws the last sleep of each thread over the half hour.
func newPlot(v *summary) (*plot.Plot, error) {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	m := v.seeds[0]
	p.Title.Text = fmt.Sprintf("%s: %.2f %% denied, longest sleep %.1f s, counts differ by %.1f (stdev)", v.name, m[0], m[1], m[2])
	p.Title.Padding = vg.Points(8)
	p.Title.TextStyle.Font.Size = vg.Points(13)

	p.X.Label.Text = "minutes"
	p.Y.Label.Text = "seconds slept before a request, by thread"
	p.X.Min, p.X.Max, p.Y.Min = 0, runTakes.Minutes(), 0
	p.X.Tick.Marker = plot.ConstantTicks(minutes())
	p.BackgroundColor = color.White
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(3)
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(8), -vg.Points(4)

	grid := plotter.NewGrid()
	grid.Vertical.Color = color.Gray{Y: 0xe0}
	grid.Horizontal.Color = color.Gray{Y: 0xe0}
	p.Add(grid)

	top := 0.0
	for thread := range clients {
		points := make(plotter.XYs, len(v.first.samples))
		for i, s := range v.first.samples {
			points[i].X = sampleEvery.Minutes() * float64(i)
			points[i].Y = s[thread]
			top = max(top, s[thread])
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("line: %w", err)
		}

		process := thread / threads
		line.Color = ink[process]
		line.Width = vg.Points(0.9)
		line.StepStyle = plotter.PreStep
		p.Add(line)

		if thread%threads == 0 {
			p.Legend.Add("process "+strconv.Itoa(process+1), line)
		}
	}

	fair, err := plotter.NewLine(plotter.XYs{{X: 0, Y: fairSleep}, {X: runTakes.Minutes(), Y: fairSleep}})
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	fair.Color = color.Black
	fair.Width = vg.Points(1.2)
	fair.Dashes = []vg.Length{vg.Points(5), vg.Points(4)}
	p.Add(fair)
	p.Legend.Add("an even share", fair)
	p.Y.Max = max(math.Ceil(top*1.2), 20) // room for the legend
	return p, nil
}

// fairSleep is the sleep, in seconds, of each of ten threads that share 1.25 requests a second evenly.
var fairSleep = clients*3600/float64(limit.Count) - requestTakes.Seconds()

func minutes() []plot.Tick {
	ticks := make([]plot.Tick, 0, 7)
	for m := 0; m <= int(runTakes.Minutes()); m += 5 {
		ticks = append(ticks, plot.Tick{Value: float64(m), Label: strconv.Itoa(m)})
	}
	return ticks
}

// The size of a chart and its margin.
const (
	width  = 10 * vg.Inch
	height = 4.5 * vg.Inch
	margin = 12 // points
)

// save writes base.png and base.svg.
func save(v *summary, base string) error {
	p, err := newPlot(v)
	if err != nil {
		return err
	}

	for _, format := range []string{"png", "svg"} {
		canvas, err := draw.NewFormattedCanvas(width, height, format)
		if err != nil {
			return fmt.Errorf("canvas: %w", err)
		}
		all := draw.New(canvas)
		all.SetColor(color.White)
		all.Fill(all.Path())
		p.Draw(draw.Crop(all, margin, -margin, margin, -margin))
		if err := write(canvas, base+"."+format); err != nil {
			return err
		}
	}
	return nil
}

func write(canvas io.WriterTo, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := canvas.WriteTo(f); err != nil {
		return errors.Join(fmt.Errorf("write: %w", err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
