package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// palette has colors that can be told from light and from dark backgrounds.
func palette() []string {
	return []string{"#2a78d6", "#d1602d", "#1f9d61", "#b0479f", "#a67c00", "#0f9bb0", "#d64550", "#7d6bd6"}
}

// picture is a chart of lines, or of horizontal bars.
type picture struct {
	id, title, desc string
	height          int
	x, y            []tick // the axes reach from the first tick to the last one
	lines           []line
}

type line struct {
	color, width int
	dashed       bool
	x, y         []float64
}

const pictureWidth = 560

// The margins of a picture, and the size of its letters: texts are not measured, so there is room for wide ones.
const (
	topMargin, rightMargin, bottomMargin = 12, 24, 26
	letters, letterWidth                 = 11, 6.4
)

// tick is a mark on an axis.
type tick struct {
	Value float64
	Label string
}

// svg draws the picture, with its title and description.
func (p *picture) svg() template.HTML {
	widest := 0
	for _, t := range p.y {
		widest = max(widest, utf8.RuneCountInString(t.Label))
	}
	left, right := 16+letterWidth*float64(widest), float64(pictureWidth-rightMargin)
	top, bottom := float64(topMargin), float64(p.height-bottomMargin)
	x, y := scale(p.x, left, right), scale(p.y, bottom, top)
	var b strings.Builder
	head := func(name, text string) {
		fmt.Fprintf(&b, `<%[1]s id="%[2]s-%[1]s">%[3]s</%[1]s>`, name, p.id, template.HTMLEscapeString(clean(text)))
	}
	stroke := func(color string, width int, more, path string) {
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="%d"%s/>`, path, color, width, more)
	}
	label := func(x, y float64, anchor, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="#767676" font-size="%d" font-family="sans-serif" text-anchor="%s">%s</text>`, x, y, letters, anchor, template.HTMLEscapeString(text))
	}
	fmt.Fprintf(&b, `<svg role="img" aria-labelledby="%[1]s-title %[1]s-desc" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[2]d %[3]d" width="%[2]d" height="%[3]d">`, p.id, pictureWidth, p.height)
	head("title", p.title)
	head("desc", p.desc)
	const grid, axis = "#808080", "#767676"
	for _, t := range p.x {
		stroke(grid, 1, ` stroke-opacity="0.22"`, fmt.Sprintf("M%.1f %.1fV%.1f", x(t.Value), top, bottom))
		label(x(t.Value), bottom+letters+5, "middle", t.Label)
	}
	for _, t := range p.y {
		stroke(grid, 1, ` stroke-opacity="0.22"`, fmt.Sprintf("M%.1f %.1fH%.1f", left, y(t.Value), right))
		label(left-6, y(t.Value)+letters/3, "end", t.Label)
	}
	stroke(axis, 1, "", fmt.Sprintf("M%.1f %.1fV%.1fH%.1f", left, top, bottom, right))
	for _, l := range p.lines {
		colors, dashes := palette(), ""
		if l.dashed {
			dashes = ` stroke-dasharray="6 3"`
		}
		var path strings.Builder
		for i := range l.x {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x(l.x[i]), y(l.y[i]))
		}
		stroke(colors[l.color%len(colors)], l.width, dashes, path.String())
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // numbers, and texts that are escaped
}

// scale maps values to places: the first tick to one end, the last tick to the other. What is beyond is at the end.
func scale(ticks []tick, from, to float64) func(float64) float64 {
	least, most := ticks[0].Value, ticks[len(ticks)-1].Value
	return func(v float64) float64 {
		return from + (to-from)*min(max((v-least)/max(most-least, math.SmallestNonzeroFloat64), 0), 1)
	}
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
func ticks(most float64, format func(float64) string) (out []tick) {
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
		out = append(out, tick{Value: v, Label: format(v)})
		if v >= most {
			return out
		}
	}
}

func plain(v float64) string { return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) }

func percent(v float64) string { return plain(100*v) + "%" }

// durations are ticks of a logarithmic axis of seconds.
func durations(least, most float64) (out []tick) {
	add := func(seconds float64, label string) {
		out = append(out, tick{Value: logarithm(seconds), Label: label})
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
