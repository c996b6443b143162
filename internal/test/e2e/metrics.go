package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metrics are the values of /metrics by name and labels, as they stand there.
type Metrics map[string]float64

// Scrape asks a program for its metrics.
func (p *Process) Scrape(ctx context.Context) (Metrics, error) {
	at := p.Address()
	if at == "" {
		return nil, fmt.Errorf("%s does not serve metrics yet", p.Name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of %s: %s", p.Name, resp.Status)
	}
	return parseMetrics(resp.Body)
}

func parseMetrics(r io.Reader) (Metrics, error) {
	m := Metrics{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		line := in.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics line %q: %w", line, err)
		}
		m[line[:at]] = v
	}
	return m, in.Err()
}

// Sum adds up all series of a name that have all the labels, each as a="b".
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
series:
	for k, v := range m {
		n, rest, _ := strings.Cut(k, "{")
		if n != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		sum += v
	}
	return sum
}

// Has says whether a name is there at all.
func (m Metrics) Has(name string) bool {
	for k := range m {
		if n, _, _ := strings.Cut(k, "{"); n == name || strings.TrimSuffix(n, "_count") == name {
			return true
		}
	}
	return false
}
