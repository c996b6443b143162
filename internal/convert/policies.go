package convert

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/refloat/refloat/internal/authoring/lint"
	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policy/policyfile"
)

// PolicyFile is one file of policies: all of one workload. Settings are the operator's: a manifest never writes them.
type PolicyFile struct {
	Name string // such as training.yaml; without a directory
	Data []byte
	IDs  []policyfile.ID
}

// maxLimit is the greatest number that a limit of a policy can be.
const maxLimit = 1_000_000

// policies makes the policies of workloads, and checks them as lint does. A rule that can never be reached is left out.
func (c *conversion) policies(workloads []*Workload) ([]PolicyFile, *policyfile.Set) {
	names := newNames()
	for _, w := range workloads {
		w.nameAll(names)
	}
	for {
		resources, owners := c.resources(workloads)
		if c.leaveOut(resources, owners) {
			continue
		}
		set, err := policyfile.Parse(resources)
		if err != nil || slices.ContainsFunc(c.notes, func(n Note) bool { return n.Kind == Error }) {
			return nil, nil // said by leaveOut
		}
		return c.files(workloads, set), set
	}
}

// owner is what a resource was made for.
type owner struct {
	w     *Workload
	paths func() []string // what each of its rules was made from
	drop  func(i int)     // a rule
}

// resources renders each policy as a file of its own.
func (c *conversion) resources(workloads []*Workload) (files []policyfile.File, owners map[string]owner) {
	owners = map[string]owner{}
	add := func(kind, name string, spec any, o owner) {
		apiVersion := "armadaproject.io/v1"
		if kind == policyfile.KindGroup {
			apiVersion = "refloat.github.io/v1"
		}
		doc := map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}
		if name != "" {
			doc["metadata"] = map[string]any{"name": name}
		}
		data, err := json.Marshal(doc)
		if err != nil {
			panic(fmt.Sprintf("convert: a policy that is no JSON: %v", err))
		}
		file := kind + " " + name
		files = append(files, policyfile.File{Name: file, Data: data})
		owners[file] = o
	}
	for _, w := range workloads {
		g := &w.Group
		add(policyfile.KindGroup, w.policyName, w.groupSpec(), owner{
			w, func() (paths []string) {
				for i := range g.Rules {
					paths = append(paths, g.Rules[i].path)
				}
				return paths
			},
			func(i int) { g.Rules = slices.Delete(g.Rules, i, i+1) },
		})
		done := map[string]bool{}
		for i := range w.Parts {
			for k := range w.Parts[i].Tasks {
				t := &w.Parts[i].Tasks[k]
				if done[t.policyName] {
					continue
				}
				done[t.policyName] = true
				add(policyfile.KindPolicy, t.policyName, t.Retry.spec(), owner{
					w, func() (paths []string) {
						for i := range t.Retry.Rules {
							paths = append(paths, t.Retry.Rules[i].path)
						}
						return paths
					},
					func(i int) { w.dropRule(t.policyName, i) },
				})
			}
		}
	}
	return files, owners
}

// dropRule removes a rule of a policy that several tasks may share.
func (w *Workload) dropRule(policyName string, i int) {
	for p := range w.Parts {
		for k := range w.Parts[p].Tasks {
			if t := &w.Parts[p].Tasks[k]; t.policyName == policyName {
				t.Retry.Rules = slices.Delete(slices.Clone(t.Retry.Rules), i, i+1)
			}
		}
	}
}

var rulePath = regexp.MustCompile(`^spec\.rules\[(\d+)\]$`)

// leaveOut removes the first rule that can never be reached, and reports whether there was one. Any other finding is an
// Error.
func (c *conversion) leaveOut(resources []policyfile.File, owners map[string]owner) bool {
	problems, err := lint.Lint(resources, nil)
	if found, ok := errors.AsType[policyfile.Problems](err); ok {
		problems = found
	}
	for _, p := range problems {
		o := owners[p.File]
		if m := rulePath.FindStringSubmatch(p.Path); m != nil && (p.Code == codeShadowed || p.Code == codeNever) {
			i, _ := strconv.Atoi(m[1])
			path, others := o.paths()[i], 0
			for _, other := range o.paths() {
				if other == path {
					others++
				}
			}
			if others == 1 { // a rule of the manifest may be several here
				o.w.doc.noteRow(rowUnreachable, path, "")
			}
			o.drop(i)
			return true
		}
	}
	for _, p := range problems {
		if p.Severity == policyfile.Note {
			continue // it may be intended, and lint does not fail for it
		}
		n := Note{Kind: Error, Why: fmt.Sprintf("%s %s %s", p.Code, p.Path, p.Message), Fix: p.Fix}
		if o := owners[p.File]; o.w != nil {
			n.Why = fmt.Sprintf("the %s made of it would have a finding: %s", p.File, n.Why)
			o.w.doc.report(n)
			continue
		}
		c.notes = append(c.notes, n)
	}
	return false
}

// Codes of lint.
const (
	codeShadowed = "RP103"
	codeNever    = "RP106"
)

var rowUnreachable = Field{Case: "a rule that is never reached", Treatment: Dropped, Why: "rules before it match whenever it does, or it never matches, so nothing is lost by leaving it out"}

// files groups the policies by workload.
func (c *conversion) files(workloads []*Workload, set *policyfile.Set) (files []PolicyFile) {
	add := func(name, about string, ids []policyfile.ID) {
		data, err := set.YAML(ids...)
		if err != nil {
			panic(fmt.Sprintf("convert: a policy of the set: %v", err))
		}
		files = append(files, PolicyFile{name, append([]byte(about), data...), ids})
	}
	for _, w := range workloads {
		ids := []policyfile.ID{{Kind: policyfile.KindGroup, Name: w.policyName}}
		for i := range w.Parts {
			for k := range w.Parts[i].Tasks {
				id := policyfile.ID{Kind: policyfile.KindPolicy, Name: w.Parts[i].Tasks[k].policyName}
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
		about := fmt.Sprintf("# Made of %s %s.\n", w.doc.kind, shown(w.Name))
		if w.Group.About != "" {
			about += "# " + w.Group.About + "\n"
		}
		add(w.policyName+".yaml", about, ids)
	}
	return files
}

// maxRetries has policies ask for the retries that they need, and says where settings permit fewer.
func (c *conversion) maxRetries(workloads []*Workload, known *MaxRetries) {
	byDefault := policy.DefaultSettings()
	allowed := or(known, MaxRetries{Global: byDefault.GlobalMaxRetries, Policy: byDefault.GlobalMaxRetries})
	for _, w := range workloads {
		var worst *Part
		most := uint32(0)
		for i := range w.Parts {
			p := &w.Parts[i]
			for k := range p.Tasks {
				n := w.retries(p, &p.Tasks[k].Retry)
				if n >= min(byDefault.GlobalMaxRetries, allowed.Global) {
					// One more, so that a limit of the manifest's own ends it and not this one.
					asked := min(n+1, maxLimit)
					p.Tasks[k].Retry.MaxRetries = &asked
				}
				if n > most {
					most, worst = n, p
				}
			}
		}
		permitted := max(allowed.Global, allowed.Policy)
		if most <= permitted {
			continue
		}
		needs := fmt.Sprintf("up to %d retries of a job", most)
		if most == maxLimit {
			needs = "any number of retries of a job"
		}
		why := fmt.Sprintf("the settings of the deployment permit no more in total, over all restarts: an operator can raise policyMaxRetries to %d for policies that ask for it", min(most+1, maxLimit))
		if known == nil {
			why = fmt.Sprintf("by default, the settings permit no more in total, over all restarts: an operator can raise policyMaxRetries to %d for policies that ask for it. --data or --server compares with the settings in force", min(most+1, maxLimit))
		}
		w.doc.report(Note{Kind: Changed, Path: worst.path, Was: needs, Now: strconv.Itoa(int(permitted)), Why: why})
	}
}

// retries is how many retries a member may need, over all restarts of its group and unit: what is counted in total never
// starts anew.
func (w *Workload) retries(p *Part, r *RetryPolicy) uint32 {
	each := uint64(maxLimit)
	if r.Limit != nil {
		each = uint64(*r.Limit) * uint64(1+r.counted())
	}
	if p.RetryLimit != nil {
		each = min(each, uint64(*p.RetryLimit))
	}
	if r.NoRetry && r.counted() == 0 {
		each = 0
	}
	return uint32(min(each*(w.restarts(p)+1), maxLimit))
}

// counted is the number of rules that retry.
func (r *RetryPolicy) counted() (n int) {
	for i := range r.Rules {
		if r.Rules[i].Action == actionRetry {
			n++
		}
	}
	return n
}

// restarts is how often a unit of the part may restart at most.
func (w *Workload) restarts(p *Part) uint64 {
	total := uint64(0)
	if w.Group.MaxRestarts != nil {
		total = uint64(*w.Group.MaxRestarts)
	}
	for _, r := range w.Group.Rules {
		if r.Uncounted && strings.HasPrefix(r.Action, "Restart") {
			return maxLimit
		}
	}
	if r := cmp.Or(p.Restarts, w.Group.Restarts); r != nil {
		total += (total + 1) * uint64(r.Limit)
	}
	return min(total, maxLimit)
}

// nameAll gives the group policy, its rules and parts, and the retry policies valid names.
func (w *Workload) nameAll(policies *names) {
	w.policyName = policies.of(w.Name)
	parts := newNames()
	byName := map[string]string{}
	for i := range w.Parts {
		p := &w.Parts[i]
		p.partName = parts.of(p.Name)
		byName[p.Name] = p.partName
	}
	translate := func(list []string) (out []string) {
		for _, name := range list {
			out = append(out, byName[name])
		}
		return out
	}
	for i := range w.Parts {
		w.Parts[i].After, w.Parts[i].AfterReady = translate(w.Parts[i].After), translate(w.Parts[i].AfterReady)
	}
	if w.Group.Success != nil {
		w.Group.Success.Parts = translate(w.Group.Success.Parts)
	}
	rules := newNames()
	rules.taken["restarts"] = true
	for i := range w.Group.Rules {
		r := &w.Group.Rules[i]
		r.Name, r.Parts = rules.of(r.Name), translate(r.Parts)
	}
	w.nameRetry(policies)
}

// nameRetry names the retry policies: after the group, where all members have the same, else after the part too.
func (w *Workload) nameRetry(policies *names) {
	byText := map[string]string{}
	texts := map[string]bool{}
	each := func(do func(p *Part, task int, text string)) {
		for i := range w.Parts {
			p := &w.Parts[i]
			for k := range p.Tasks {
				text, err := json.Marshal(p.Tasks[k].Retry.spec())
				if err != nil {
					panic(fmt.Sprintf("convert: a policy that is no JSON: %v", err))
				}
				do(p, k, string(text))
			}
		}
	}
	each(func(p *Part, k int, _ string) {
		rules := newNames()
		rules.taken["default"] = true
		for i := range p.Tasks[k].Retry.Rules {
			r := &p.Tasks[k].Retry.Rules[i]
			r.Name = rules.of(r.Name)
		}
	})
	each(func(_ *Part, _ int, text string) { texts[text] = true })
	each(func(p *Part, k int, text string) {
		name, ok := byText[text]
		if !ok {
			switch {
			case len(texts) == 1:
				name = w.policyName
			case len(p.Tasks) == 1:
				name = policies.of(w.policyName + "-" + p.partName)
			default:
				name = policies.of(fmt.Sprintf("%s-%s-%d", w.policyName, p.partName, k))
			}
			byText[text] = name
		}
		p.Tasks[k].policyName = name
	})
}

// names makes valid names of any, each once.
type names struct{ taken map[string]bool }

func newNames() *names { return &names{map[string]bool{}} }

func (n *names) of(name string) string {
	base := validName(name)
	out := base
	for i := 2; n.taken[out]; i++ {
		suffix := "-" + strconv.Itoa(i)
		out = strings.TrimRight(base[:min(len(base), maxName-len(suffix))], "-") + suffix
	}
	n.taken[out] = true
	return out
}

const maxName = 63

// validName is a name of 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends. A valid name stays as it is, and
// what had to be shortened has a digest of the whole.
func validName(name string) string {
	var b strings.Builder
	lower := false // the last one was a small letter or a digit
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			b.WriteRune(r)
			lower = true
			continue
		case 'A' <= r && r <= 'Z':
			if lower {
				b.WriteByte('-')
			}
			b.WriteRune(r + 'a' - 'A')
		default:
			b.WriteByte('-')
		}
		lower = false
	}
	out := cmp.Or(strings.Trim(b.String(), "-"), "unnamed")
	if len(out) > maxName {
		sum := sha256.Sum256([]byte(name))
		out = fmt.Sprintf("%s-%x", strings.TrimRight(out[:maxName-9], "-"), sum[:4])
	}
	return out
}
