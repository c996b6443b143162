package web_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestEdgesAreVisible: the edge of a field stands out from what is inside and around it, as
// WCAG 2.2, 1.4.11 asks: 3:1, on light and on dark screens. So do the edges of bars, and the text on them with 4.5:1. Axe tests
// the contrast of other text.
func TestEdgesAreVisible(t *testing.T) {
	t.Parallel()
	css, err := os.ReadFile("static/style.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllSubmatch(css, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d color schemes, want a light and a dark one", len(schemes))
	}
	for i, scheme := range schemes {
		luminance := func(name string) (sum float64) {
			hex := regexp.MustCompile(name + `: #([0-9a-f]+);`).FindSubmatch(scheme[1])
			if hex == nil {
				t.Fatalf("scheme %d has no color %s", i, name)
			}
			digits := string(hex[1])
			if len(digits) == 3 {
				digits = digits[:1] + digits[:1] + digits[1:2] + digits[1:2] + digits[2:] + digits[2:]
			}
			for j, share := range []float64{.2126, .7152, .0722} {
				n, err := strconv.ParseUint(digits[2*j:2*j+2], 16, 8)
				if err != nil {
					t.Fatal(err)
				}
				c := float64(n) / 255
				if c <= .04045 {
					c /= 12.92
				} else {
					c = math.Pow((c+.055)/1.055, 2.4)
				}
				sum += share * c
			}
			return sum
		}
		stands := func(out, on string, want float64) {
			a, b := luminance(out), luminance(on)
			if ratio := (max(a, b) + .05) / (min(a, b) + .05); ratio < want {
				t.Errorf("scheme %d: %s on %s has a contrast of %.2f, want %v", i, out, on, ratio, want)
			}
		}
		stands("--edge", "--panel", 3)
		stands("--text", "--plain-bg", 4.5)
		for _, edge := range []string{"--edge", "--good", "--bad", "--wait", "--busy"} {
			stands(edge, "--bg", 3)
			if edge != "--edge" {
				stands("--text", edge+"-bg", 4.5)
			}
		}
	}
}
