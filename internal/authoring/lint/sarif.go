package lint

import (
	"encoding/json"
	"net/url"
	"path/filepath"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// SARIF renders problems as SARIF 2.1.0, as code hosts show them in a diff.
func SARIF(problems policyfile.Problems) ([]byte, error) {
	type text struct {
		Text string `json:"text"`
	}
	type rule struct {
		ID               string `json:"id"`
		Name             string `json:"name"`
		ShortDescription text   `json:"shortDescription"`
		FullDescription  text   `json:"fullDescription"`
		Default          struct {
			Level string `json:"level"`
		} `json:"defaultConfiguration"`
	}
	type region struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
	type location struct {
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region region `json:"region"`
		} `json:"physicalLocation"`
		Logical []map[string]string `json:"logicalLocations,omitempty"`
	}
	type result struct {
		RuleID    string     `json:"ruleId"`
		RuleIndex int        `json:"ruleIndex"`
		Level     string     `json:"level"`
		Message   text       `json:"message"`
		Locations []location `json:"locations"`
	}
	rules, index := []rule{}, map[string]int{}
	for i, c := range codes {
		r := rule{ID: c.Code, Name: c.Code, ShortDescription: text{c.Title}, FullDescription: text{c.Text}}
		r.Default.Level = c.Severity.String()
		rules, index[c.Code] = append(rules, r), i
	}
	results := []result{}
	for _, p := range problems {
		at := location{}
		at.Physical.Artifact.URI = (&url.URL{Path: filepath.ToSlash(p.File)}).String()
		at.Physical.Region = region{max(p.Line, 1), max(p.Column, 1)}
		if p.Path != "" {
			at.Logical = []map[string]string{{"fullyQualifiedName": p.Path}}
		}
		results = append(results, result{
			RuleID: p.Code, RuleIndex: index[p.Code], Level: p.Severity.String(),
			Message: text{p.Message + ". Fix: " + p.Fix}, Locations: []location{at},
		})
	}
	driver := map[string]any{"name": "refloatctl", "rules": rules}
	return json.MarshalIndent(map[string]any{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []any{map[string]any{
			"tool":       map[string]any{"driver": driver},
			"columnKind": "unicodeCodePoints",
			"results":    results,
		}},
	}, "", "  ")
}
