package api

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// overrideField is a field of a queue or of the settings that has the effect of an override, and needs the same
// permission.
type overrideField struct {
	path string
	verb Verb
	// off lists values that mean the same as omitting the field.
	off string
	// only, if set, is the single value for which a change needs the permission.
	only string
}

var overrideFields = map[string][]overrideField{
	policyfile.KindQueue: {
		{path: "killed", verb: KillRetries, off: "false"},
		{path: "pausedUntil", verb: PauseRetries},
		{path: "mode", verb: ShadowRetries}, // if omitted, the settings' mode applies
	},
	policyfile.KindSettings: {
		{path: "spec.globalMaxRetries", verb: KillRetries, only: "0"},
		{path: "spec.enabled", verb: KillRetries, only: "false"},
		{path: "spec.pausedUntil", verb: PauseRetries},
		{path: "spec.mode", verb: ShadowRetries, off: "Enforce"},
	},
}

// mayOverride returns an error if a change of a resource kills, pauses or switches to shadow mode, or ends that,
// and the caller lacks the permission.
func (a *Auth) mayOverride(who Principal, id policyfile.ID, from, to *policyfile.Set) error {
	fields := overrideFields[id.Kind]
	if a == nil || len(fields) == 0 {
		return nil
	}
	queue := ""
	if id.Kind == policyfile.KindQueue {
		queue = id.Name
	}
	before, after := fieldsOf(from, id), fieldsOf(to, id)
	for _, f := range fields {
		if f.meaning(before[f.path]) == f.meaning(after[f.path]) || a.MayOn(who, f.verb, queue) == nil {
			continue
		}
		return status.Errorf(codes.PermissionDenied, "%s lacks the permission %s, which %s of %s takes", who.Name, f.verb, f.path, id)
	}
	return nil
}

// meaning returns the effective value of the field; "": it overrides nothing.
func (f *overrideField) meaning(value string) string {
	if value == f.off || f.only != "" && value != f.only {
		return ""
	}
	return value
}
