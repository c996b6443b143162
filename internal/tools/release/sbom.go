package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sbom writes the CycloneDX document of a program: its modules, with their digests, and
// the licences that were detected in the module cache, which a build has filled.
func sbom(program, version, to string) error {
	// The tool must not ask the network about our modules, of which the build has checked the digests; its own have to come from there.
	if err := run(".", nil, "go", "build", "-o", os.DevNull, "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod"); err != nil {
		return err
	}
	return run(".", []string{"GOPROXY=off", "GOSUMDB=off"}, "go", "tool", "cyclonedx-gomod", "bin", "-json", "-std", "-noserial", "-notimestamp", "-licenses",
		"-version", version, "-output", to, program)
}

// allowed are licences of what may be linked into programs under Apache-2.0. The
// detector takes BSD-3-Clause of golang.org/x for BSD-Source-Code.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-Source-Code", "ISC", "MIT", "MIT-0"}

// read are licences that the detector does not recognise, and that somebody has read.
var read = map[string]string{"github.com/tidwall/btree": "MIT", "std": "BSD-3-Clause"}

// component is what licences are checked of.
type component struct {
	Name, Version string
	Evidence      struct {
		Licenses []struct {
			License struct{ ID string }
		}
	}
}

// licences checks the modules of all programs, as their SBOMs list them.
func licences(root string) error {
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := makeBuild(root, work, "licences", platforms[0]); err != nil {
		return err
	}
	var all []component
	for _, program := range programs {
		to := filepath.Join(work, program+".json")
		if err := sbom(filepath.Join(work, program), "", to); err != nil {
			return err
		}
		text, err := os.ReadFile(to)
		if err != nil {
			return err
		}
		var document struct{ Components []component }
		if err := json.Unmarshal(text, &document); err != nil {
			return err
		}
		all = append(all, document.Components...)
	}
	return judge(all)
}

// judge prints how many modules have which licence, and fails if one is not allowed, or not known.
func judge(all []component) error {
	count, seen := map[string]int{}, map[string]bool{}
	var wrong []string
	for _, c := range all {
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		id := licenceOf(c)
		count[id]++
		if !slices.Contains(allowed, id) {
			wrong = append(wrong, fmt.Sprintf("%s %s: %s", c.Name, c.Version, id))
		}
	}
	for _, id := range allowed {
		fmt.Printf("%4d %s\n", count[id], id)
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		return fmt.Errorf("%d modules with a licence that is unknown or not allowed:\n%s", len(wrong), strings.Join(wrong, "\n"))
	}
	if len(seen) == 0 {
		return errors.New("no module found")
	}
	return nil
}

func licenceOf(c component) string {
	if id := read[c.Name]; id != "" {
		return id
	}
	if len(c.Evidence.Licenses) == 0 {
		return "unknown"
	}
	return c.Evidence.Licenses[0].License.ID
}
