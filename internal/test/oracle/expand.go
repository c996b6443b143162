package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxRepeat bounds what an expression of a row can make.
const maxRepeat = 1 << 20

// now is the base of {"$now": "-5s"} in rows: any fixed time will do.
var now = time.Date(2009, 11, 10, 23, 0, 0, 0, time.UTC)

// Expand replaces the Go expressions of a row that it knows by their values. A
// row writes an expression that was no literal in the test it comes from as
// {"$chain": [{"fn": …, "args": […]}]}. Others stay: see Unexpanded.
func Expand(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = Expand(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[k] = Expand(v[k])
		}
		if ago, ok := out["$now"].(string); ok && len(out) == 1 {
			if d, err := time.ParseDuration(ago); err == nil {
				return now.Add(d).Format(time.RFC3339Nano)
			}
		}
		if calls, ok := out["$chain"].([]any); ok && len(out) == 1 && len(calls) == 1 {
			if value, ok := call(calls[0]); ok {
				return value
			}
		}
		return out
	}
	return v
}

// call is the value of one call of a function that rows use.
func call(v any) (any, bool) {
	c, _ := v.(map[string]any)
	fn, _ := c["fn"].(string)
	args, _ := c["args"].([]any)
	switch {
	case fn == "strings.Repeat" && len(args) == 2:
		s, isString := args[0].(string)
		number, _ := args[1].(json.Number)
		n, err := number.Int64()
		if !isString || err != nil || n < 0 || n*int64(len(s)) > maxRepeat {
			return nil, false
		}
		return strings.Repeat(s, int(n)), true
	case len(args) == 0 && tooMany.MatchString(fn):
		return overLimit(tooMany.FindStringSubmatch(fn))
	case fn == "policyWithMemoryBump" && len(args) == 1:
		// Armada's own helper: the row server.TestValidatePolicy#01 shows its result.
		return map[string]any{
			"name": "memory-bump", "defaultAction": json.Number("2"),
			"rules": []any{map[string]any{
				"action": json.Number("2"), "onCategory": "oom",
				"mutate": map[string]any{"resources": map[string]any{"memory": args[0]}},
			}},
		}, true
	}
	return nil, false
}

// tooMany is the list of a Kubernetes test that has one item more than allowed: its type, and the constant.
var tooMany = regexp.MustCompile(`make\(\[\]([\w.]+), (maxPodFailurePolicy\w+) ?\+ ?1\)`)

// overLimit is such a list. The limits are those of the notes of k8s_validate_job.json.
func overLimit(list []string) (any, bool) {
	limit := map[string]int{
		"maxPodFailurePolicyRules": 20, "maxPodFailurePolicyOnExitCodesValues": 255, "maxPodFailurePolicyOnPodConditionsPatterns": 20,
	}[list[2]]
	item := func(i int) any { return json.Number(strconv.Itoa(i + 1)) }
	switch list[1] {
	case "int32":
	case "batch.PodFailurePolicyRule":
		code := item
		item = func(i int) any {
			return map[string]any{"action": "FailJob", "onExitCodes": map[string]any{"operator": "In", "values": []any{code(i)}}}
		}
	case "batch.PodFailurePolicyOnPodConditionsPattern":
		item = func(i int) any { return map[string]any{"type": fmt.Sprintf("CustomType_%d", i), "status": "True"} }
	default:
		return nil, false
	}
	all := make([]any, limit+1)
	for i := range all {
		all[i] = item(i)
	}
	return all, limit > 0
}

// Unexpanded is the first expression that is left in a value, "" where none is.
func Unexpanded(v any) string {
	switch v := v.(type) {
	case []any:
		for i := range v {
			if e := Unexpanded(v[i]); e != "" {
				return e
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if strings.HasPrefix(k, "$") {
				return k
			}
			if e := Unexpanded(v[k]); e != "" {
				return e
			}
		}
	}
	return ""
}
