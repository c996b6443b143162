package api

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/policy/policyfile"
)

// overrideField is a field of a queue or of the settings that does what an override
// does, and needs the same permission.
type overrideField struct {
	path string
	verb Verb
	// off are values that mean the same as leaving the field out.
	off string
	// only: just this value, and the change from and to it, needs the permission.
	only string
}

var overrideFields = map[string][]overrideField{
	policyfile.KindQueue: {
		{path: "killed", verb: KillRetries, off: "false"},
		{path: "pausedUntil", verb: PauseRetries},
		{path: "mode", verb: ShadowRetries}, // without one, that of the settings
	},
	policyfile.KindSettings: {
		{path: "spec.globalMaxRetries", verb: KillRetries, only: "0"},
		{path: "spec.enabled", verb: KillRetries, only: "false"},
		{path: "spec.pausedUntil", verb: PauseRetries},
		{path: "spec.mode", verb: ShadowRetries, off: "Enforce"},
	},
}

// mayOverride refuses a change of a resource that kills, pauses or puts into shadow, or
// ends that, without the permission for it.
func (a *Auth) mayOverride(who Principal, id policyfile.ID, from, to *policyfile.Set) error {
	fields := overrideFields[id.Kind]
	if a == nil || len(fields) == 0 {
		return nil
	}
	before, after := fieldsOf(from, id), fieldsOf(to, id)
	for _, f := range fields {
		if f.meaning(before[f.path]) == f.meaning(after[f.path]) || a.May(who, f.verb) == nil {
			continue
		}
		return status.Errorf(codes.PermissionDenied, "%s lacks the permission %s, which %s of %s takes", who.Name, f.verb, f.path, id)
	}
	return nil
}

// meaning is a value of the field; "": it overrides nothing.
func (f *overrideField) meaning(value string) string {
	if value == f.off || f.only != "" && value != f.only {
		return ""
	}
	return value
}
