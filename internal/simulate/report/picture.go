package report

import (
	"bytes"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-analyze/charts/chartdraw"
	"github.com/go-analyze/charts/chartdraw/drawing"
)

// palette has colors that can be told from light and from dark backgrounds.
func palette() []string {
	return []string{"#2a78d6", "#d1602d", "#1f9d61", "#b0479f", "#a67c00", "#0f9bb0", "#d64550", "#7d6bd6"}
}

// picture is a chart of lines, or of horizontal bars.
type picture struct {
	id, title, desc string
	height          int
	x, y            []chartdraw.Tick // the axes reach from the first tick to the last one
	lines           []line
}

type line struct {
	color, width int
	dashed       bool
	x, y         []float64
}

const pictureWidth = 560

// svg renders the picture, with its title and description.
func (p *picture) svg() (template.HTML, error) {
	gray := drawing.Color{R: 0x76, G: 0x76, B: 0x76, A: 0xff}
	none := drawing.Color{R: 0xff, G: 0xff, B: 0xff}
	axis := chartdraw.Style{FontStyle: chartdraw.FontStyle{FontColor: gray, FontSize: 9}, StrokeColor: gray, StrokeWidth: 1}
	grid := chartdraw.Style{StrokeColor: drawing.Color{R: 0x80, G: 0x80, B: 0x80, A: 0x38}, StrokeWidth: 1}
	c := chartdraw.Chart{
		Width: pictureWidth, Height: p.height,
		Background:     chartdraw.Style{FillColor: none, StrokeColor: none, Padding: chartdraw.Box{Top: 12, Left: 12, Right: 20, Bottom: 8, IsSet: true}},
		Canvas:         chartdraw.Style{FillColor: none, StrokeColor: none},
		XAxis:          chartdraw.XAxis{Style: axis, Ticks: p.x, GridMajorStyle: grid},
		YAxis:          chartdraw.YAxis{Style: chartdraw.Hidden(), Range: &chartdraw.ContinuousRange{Max: 1}},
		YAxisSecondary: chartdraw.YAxis{Style: axis, Ticks: p.y, GridMajorStyle: grid},
	}
	for _, l := range p.lines {
		colors := palette()
		style := chartdraw.Style{StrokeColor: drawing.ColorFromHex(strings.TrimPrefix(colors[l.color%len(colors)], "#")), StrokeWidth: float64(l.width)}
		if l.dashed {
			style.StrokeDashArray = []float64{6, 3}
		}
		c.Series = append(c.Series, chartdraw.ContinuousSeries{Style: style, YAxis: chartdraw.YAxisSecondary, XValues: l.x, YValues: l.y})
	}
	var out bytes.Buffer
	if err := c.Render(chartdraw.SVG, &out); err != nil {
		return "", fmt.Errorf("draw %s: %w", p.id, err)
	}
	text, ok := strings.CutPrefix(out.String(), "<svg ")
	tag, rest, closed := strings.Cut(text, ">")
	if !ok || !closed {
		return "", fmt.Errorf("draw %s: the picture is no SVG", p.id)
	}
	return template.HTML(fmt.Sprintf(`<svg role="img" aria-labelledby="%s-title %s-desc" %s><title id="%s-title">%s</title><desc id="%s-desc">%s</desc>%s`, // the library escapes what it draws
		p.id, p.id, tag, p.id, template.HTMLEscapeString(clean(p.title)), p.id, template.HTMLEscapeString(clean(p.desc)), rest)), nil
}

// clean replaces what would break a line or change the direction of a text, as names come from users.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// short is a clean name for an axis.
func short(s string) string {
	const longest = 30
	all := []rune(clean(s))
	if len(all) > longest {
		return string(all[:longest-1]) + "…"
	}
	return string(all)
}

// ticks are round numbers from 0 to a maximum or a little more.
func ticks(most float64, format func(float64) string) (out []chartdraw.Tick) {
	if !(most > 0) {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if most/(step*part) <= 8 {
			step *= part
			break
		}
	}
	for i := 0; ; i++ {
		v := float64(i) * step
		out = append(out, chartdraw.Tick{Value: v, Label: format(v)})
		if v >= most {
			return out
		}
	}
}

func plain(v float64) string { return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) }

func percent(v float64) string { return plain(100*v) + "%" }

// durations are ticks of a logarithmic axis of seconds.
func durations(least, most float64) (out []chartdraw.Tick) {
	add := func(seconds float64, label string) {
		out = append(out, chartdraw.Tick{Value: logarithm(seconds), Label: label})
	}
	marks := []struct {
		seconds float64
		label   string
	}{{1, "1s"}, {10, "10s"}, {60, "1m"}, {600, "10m"}, {3600, "1h"}, {36000, "10h"}, {360000, "100h"}, {3.6e6, "1000h"}, {3.6e7, "10000h"}, {3.6e8, "100000h"}, {3.6e9, "1000000h"}}
	for i, mark := range marks {
		if i+1 < len(marks) && marks[i+1].seconds <= least {
			continue
		}
		add(mark.seconds, mark.label)
		if mark.seconds >= most && len(out) > 1 {
			break
		}
	}
	return out
}

// logarithm is the place of a duration on a logarithmic axis that begins at a second.
func logarithm(seconds float64) float64 { return math.Log10(max(seconds, 1)) }
