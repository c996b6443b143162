package policyfile

import (
	"reflect"
	"slices"

	"github.com/refloat/refloat/internal/policy"
)

// A JSON Schema is necessarily looser than Parse: it cannot express RE2, unique names or whole milliseconds.
// Everything that it rejects, Parse rejects too.

// schemaOf describes a value by its type and by the text of its field.
func schemaOf(kind, path string, t reflect.Type) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := scalarSchema(t)
	switch {
	case s != nil:
	case t.Kind() == reflect.Bool:
		s = map[string]any{"type": "boolean"}
	case t.Kind() == reflect.Slice:
		s = map[string]any{"type": "array", "items": schemaOf(kind, path, t.Elem())}
		items, _ := s["items"].(map[string]any)
		delete(items, "description") // the list itself has it
	default:
		s = objectSchema(kind, path, t)
	}
	if text, ok := textOf(kind, path); ok {
		s["description"] = text.sentence()
	}
	return s
}

// sentence returns the text with default and limits.
func (t *fieldText) sentence() string {
	s := t.meaning
	if t.unset != "" {
		s += " Unset: " + t.unset + "."
	}
	if t.limits != "" {
		s += " Limits: " + t.limits + "."
	}
	return s
}

func objectSchema(kind, path string, t reflect.Type) map[string]any {
	properties := map[string]any{}
	var required []string
	for _, f := range (schema{}).of(t) {
		if f.unsupported {
			continue
		}
		if f.required {
			required = append(required, f.name)
		}
		p := schemaOf(kind, join(path, f.name), t.FieldByIndex(f.index).Type)
		switch {
		case f.nonempty && p["type"] == "object":
			p["minProperties"] = 1
		case f.nonempty:
			p["minItems"] = 1
		}
		if f.unique {
			p["uniqueItems"] = true
		}
		properties[f.name] = p
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	together(s, properties, t)
	if m, ok := reflect.TypeAssert[interface{ restrict(schema map[string]any) }](reflect.New(t)); ok {
		m.restrict(s)
	}
	return s
}

// together adds constraints between fields: those of the check methods of spec.go.
func together(s, properties map[string]any, t reflect.Type) {
	switch t {
	case reflect.TypeFor[policySpec]():
		if action, ok := properties["defaultAction"].(map[string]any); ok {
			action["enum"] = []string{"Fail", "Retry", "FailUnit"}
		}
		rulesAtMost(properties)
	case reflect.TypeFor[groupSpec]():
		rulesAtMost(properties)
		if parts, ok := properties["parts"].(map[string]any); ok {
			parts["maxItems"] = policy.MaxGroupParts
		}
	case reflect.TypeFor[partSpec]():
		s["dependentRequired"] = map[string]any{"countFailed": []string{"retryLimit"}}
		s["if"] = map[string]any{"required": []string{"maxFailedMembers"}}
		s["then"] = map[string]any{"required": []string{"onMemberFailure"}, "properties": map[string]any{"onMemberFailure": map[string]any{"const": "Continue"}}}
	case reflect.TypeFor[settingsSpec]():
		if nodes, ok := properties["avoidNodes"].(map[string]any); ok {
			nodes["maxItems"] = policy.MaxAvoidNodes
		}
		if breakers, ok := properties["openBreakers"].(map[string]any); ok {
			breakers["maxItems"] = policy.MaxOpenBreakers
		}
	case reflect.TypeFor[flatFile]():
		rulesAtMost(properties)
	case reflect.TypeFor[ruleSpec]():
		var one []any
		for _, name := range sufficient() {
			one = append(one, map[string]any{"required": []string{name}})
		}
		s["anyOf"] = one
		if reason, ok := properties["unitReason"].(map[string]any); ok {
			reason["not"] = map[string]any{"const": policy.MemberCancelled.String()}
		}
		s["if"] = map[string]any{"required": []string{"unitReason"}}
		s["then"] = map[string]any{"properties": map[string]any{"action": map[string]any{"const": "FailUnit"}}}
		dependent := map[string]any{}
		for name, other := range needs() { //house:sorted each sets its own field
			dependent[name] = []string{other}
		}
		s["dependentRequired"] = dependent
	case reflect.TypeFor[backoffSpec]():
		s["not"] = map[string]any{"required": []string{"type", "multiplier"}}
	}
}

func rulesAtMost(properties map[string]any) {
	if rules, ok := properties["rules"].(map[string]any); ok {
		rules["maxItems"] = policy.MaxRules
	}
}

// The patterns contain the characters unescaped, because engines differ in how they escape them.
const (
	printablePattern = "^[^\u0000-\u001f\u007f-\u009f\ufeff]+$"
	namePattern      = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
)

// scalarSchema returns the schema of a scalar of the files; nil for anything else.
func scalarSchema(t reflect.Type) map[string]any {
	text := func(longest int, pattern string) map[string]any {
		return map[string]any{"type": "string", "minLength": 1, "maxLength": longest, "pattern": pattern}
	}
	switch v := reflect.New(t).Interface().(type) {
	case *limit:
		return map[string]any{"type": "integer", "minimum": 0, "maximum": maxLimit}
	case *size:
		return map[string]any{"type": "integer", "minimum": 1, "maximum": policy.MaxGroupMembers}
	case *partName:
		return text(63, namePattern)
	case *indexes:
		return map[string]any{"type": "string", "pattern": `^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`, "examples": []string{"0,3-7"}}
	case *groupRuleName:
		s := text(63, namePattern)
		s["not"] = map[string]any{"const": restartsName}
		return s
	case *exitCode:
		return map[string]any{"type": "integer", "minimum": -1 << 31, "maximum": 1<<31 - 1}
	case *factor:
		return map[string]any{"type": "number", "minimum": 1, "maximum": 1_000_000}
	case *fraction:
		return map[string]any{"type": "number", "minimum": 0, "maximum": 1}
	case *duration:
		return map[string]any{"type": "string", "pattern": `^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(h|m|s|ms|us|µs|ns))+$`, "examples": []string{"10s"}}
	case *instant:
		return map[string]any{"type": "string", "format": "date-time", "pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}`}
	case *label:
		return text(253, printablePattern)
	case *plain:
		return text(1024, printablePattern)
	case *policyName:
		return text(63, namePattern)
	case *ruleName:
		s := text(63, namePattern)
		s["not"] = map[string]any{"const": policy.DefaultRule}
		return s
	case *queueName, *nodeName:
		return text(253, "^[^ \u0000-\u001f\u007f-\u009f\ufeff]+$")
	case *pattern:
		return text(maxPattern, printablePattern)
	case *flatAction:
		return map[string]any{"enum": []any{"Fail", "fail", "RETRY_ACTION_FAIL", 1, "Retry", "retry", "RETRY_ACTION_RETRY", 2}}
	case interface{ words() []string }:
		words := slices.DeleteFunc(slices.Clone(v.words()), func(s string) bool { return s == "" })
		return map[string]any{"type": "string", "enum": words}
	}
	return nil
}
