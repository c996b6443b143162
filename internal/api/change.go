package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/refloat/refloat/internal/api/pb"
	"github.com/refloat/refloat/internal/eventlog"
	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
)

// asked is a request for a change.
type asked struct {
	request proto.Message // the whole request, to recognise a repetition
	id      string        // of the request
	reason  string
	dryRun  bool
	about   []policyfile.ID // the resources that it names
	// make changes the set; its error is the answer.
	make func(policylog.Snapshot) (*policyfile.Set, error)
	// verb is all that the change needs; "": what verbOf says of what it changes.
	verb Verb
	// lax allows a queue to name policies that do not exist, as after Armada's deletion.
	lax bool
	// keepsPolicies: the change must not take the last policy away.
	keepsPolicies bool
	// confirm: a set that the files say, and that is refused, may be applied although
	// nothing else may be changed here.
	confirm bool
}

// change handles every change of resources: it authenticates, authorizes, checks whether the change may be made
// here, and writes the log.
func (s *Service) change(ctx context.Context, a *asked) (*pb.Change, error) {
	who, err := s.writer(ctx)
	if err != nil {
		return nil, err
	}
	if a.verb != "" {
		if err := s.Auth.May(who, a.verb); err != nil {
			return nil, err
		}
	}
	var refused *policyfile.Set
	if s.Fixed.Why != "" && !s.Fixed.PoliciesOnly {
		if a.confirm && s.Fixed.Refused != nil {
			refused = s.Fixed.Refused()
		}
		if refused == nil {
			return nil, status.Error(codes.FailedPrecondition, s.Fixed.Why)
		}
	}
	edit, err := newEdit(who, a)
	if err != nil {
		return nil, err
	}
	for _, id := range a.about { // before an error says whether it exists
		if !s.Auth.knowsID(who, id) {
			return nil, status.Errorf(codes.PermissionDenied, "%s has no permission on %s", who.Name, id)
		}
	}
	edit.Make = func(now policylog.Snapshot) (*policyfile.Set, []policylog.Override, error) {
		set, err := a.make(now)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case refused != nil && set.Digest() != refused.Digest():
			return nil, nil, status.Error(codes.FailedPrecondition, s.Fixed.Why+"; only what they say now can be confirmed, with all of them and prune")
		case s.Fixed.Why != "" && refused == nil:
			if set, err = s.Fixed.keep(now.Base, set); err != nil {
				return nil, nil, err
			}
		}
		changes := policylog.Differences(now.Base, set)
		if a.verb == "" {
			for _, c := range changes {
				queue := ""
				if c.Kind == policyfile.KindQueue {
					queue = c.Name
				}
				if err := s.Auth.MayOn(who, verbOf(c), queue); err != nil {
					return nil, nil, err
				}
				if err := s.Auth.mayOverride(who, c.ID, now.Base, set); err != nil {
					return nil, nil, err
				}
			}
		}
		if a.keepsPolicies && now.Base.HasPolicies() && !set.HasPolicies() {
			return nil, nil, status.Error(codes.FailedPrecondition, "no policy is left, and every failed run would fail (NoPolicy): allow_empty (--allow-empty) applies it")
		}
		if !a.lax {
			if err := noDangling(set, s.Fixed.ours(changes)); err != nil {
				return nil, nil, err
			}
		}
		if a.dryRun {
			return nil, nil, &dry{generation: now.Generation(), changes: changes}
		}
		return set, now.ActiveOverrides(), nil
	}
	made, err := s.do(ctx, edit)
	if d, ok := errors.AsType[*dry](err); ok {
		return &pb.Change{Generation: d.generation, Changes: changesOf(d.changes), Notes: []string{DryNote}}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &pb.Change{Generation: made.Number}
	if made.Made {
		out.Changes = changesOf(made.Changes)
	}
	return out, nil
}

// dry ends a dry run.
type dry struct {
	generation uint64
	changes    []policylog.Change
	overrides  []policylog.Override // that would be in force, of a change of these
}

// DryNote is among the notes of a change that was only asked for.
const DryNote = "nothing was changed: this was a dry run"

func (d *dry) Error() string { return "dry run" }

const (
	maxReason  = 1000
	maxRequest = 100
)

// newEdit checks what all changes have in common.
func newEdit(who Principal, a *asked) (policylog.Edit, error) {
	e := policylog.Edit{Author: who.String(), Reason: a.reason}
	switch {
	case e.Author == policylog.Guard:
		return e, status.Errorf(codes.PermissionDenied, "the name %q is the guard's own, which makes nodes suspects: use another name", policylog.Guard)
	case len(a.reason) > maxReason:
		return e, status.Errorf(codes.InvalidArgument, "reason: longer than %d bytes", maxReason)
	case strings.ContainsFunc(a.reason, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return e, status.Error(codes.InvalidArgument, "reason: contains characters that are not printable")
	case len(a.id) > maxRequest || strings.ContainsAny(a.id, "# \n"):
		return e, status.Errorf(codes.InvalidArgument, "request_id: give at most %d bytes, without # and spaces", maxRequest)
	case a.id == "":
		return e, nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.request)
	if err != nil {
		return e, status.Errorf(codes.InvalidArgument, "request: %v", err)
	}
	sum := sha256.Sum256(append(b, who.Name...))
	e.Request = a.id + "#" + hex.EncodeToString(sum[:16])
	return e, nil
}

// do writes a change to the log, and converts errors to those of the API.
func (s *Service) do(ctx context.Context, e policylog.Edit) (policylog.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout())
	defer cancel()
	v, err := s.Store.Do(ctx, e)
	return v, answer(err)
}

func (s *Service) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return 20 * time.Second
}

// answer converts an error to one of the API.
func answer(err error) error {
	var has interface{ GRPCStatus() *status.Status }
	var d *dry
	switch {
	case err == nil, errors.As(err, &has), errors.As(err, &d):
		return err
	case errors.Is(err, policylog.ErrRequestUsed):
		return status.Error(codes.AlreadyExists, err.Error())
	case errors.Is(err, policylog.ErrNoGeneration):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, policylog.ErrUnusable):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, policylog.ErrUnknown), errors.Is(err, eventlog.ErrTransient),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.Error(codes.Unavailable, err.Error())
	case errors.As(err, new(policyfile.Problems)):
		return invalid(err)
	}
	return status.Error(codes.Internal, err.Error())
}

// noDangling refuses a change that would leave a dangling reference: a queue or the settings naming a policy that does
// not exist.
func noDangling(set *policyfile.Set, changes []policylog.Change) error {
	var wrong []string
	for _, c := range changes {
		switch {
		case c.Op == policylog.Deleted && c.Kind == policyfile.KindPolicy:
			if users := set.Users(c.Name); len(users) > 0 {
				wrong = append(wrong, fmt.Sprintf("%s is used by %s: remove it there first", c.ID, listed(users)))
			}
		case c.Op != policylog.Deleted && c.Kind != policyfile.KindPolicy:
			if missing := set.Missing(c.ID); len(missing) > 0 {
				wrong = append(wrong, fmt.Sprintf("%s names policies that do not exist: %q: create them first, or in the same apply", c.ID, missing))
			}
		}
	}
	if len(wrong) > 0 {
		return status.Error(codes.FailedPrecondition, strings.Join(wrong, "; "))
	}
	return nil
}

func listed(ids []policyfile.ID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return strings.Join(names, ", ")
}

// unchanged refuses a change of a resource that was read in an older generation, and reports what changed since.
func (s *Service) unchanged(ctx context.Context, now *policylog.Snapshot, id policyfile.ID, read uint64, history []*policylog.Version) error {
	since := now.Since[id]
	if since == read {
		return nil
	}
	var by []string
	for _, v := range history {
		if v.Number > read && touches(id)(v) {
			by = append(by, described(v))
		}
	}
	text := fmt.Sprintf("%s was last changed in generation %d, not in %d as in the request", id, since, read)
	if since == 0 {
		text = fmt.Sprintf("%s no longer exists", id)
	}
	if len(by) > 0 {
		text += "; changed by " + strings.Join(by, ", ")
	}
	if before, err := s.snapshot(ctx, read); err == nil {
		if fields := changedFields(before.Base, now.Base, id); len(fields) > 0 {
			text += "; fields that differ: " + strings.Join(fields, ", ")
		}
	}
	return status.Error(codes.Aborted, text+". Read it again, and apply your change to the current version")
}

func described(v *policylog.Version) string {
	text := fmt.Sprintf("generation %d of %s by %s", v.Number, time.Unix(0, v.Time).UTC().Format(time.RFC3339), v.Author)
	if v.Reason != "" {
		text += fmt.Sprintf(" (%s)", v.Reason)
	}
	return text
}

// changedFields lists the paths of the fields in which a resource differs, up to a limit.
func changedFields(from, to *policyfile.Set, id policyfile.ID) []string {
	a, b := fieldsOf(from, id), fieldsOf(to, id)
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(a)) {
		if b[path] != a[path] {
			paths = append(paths, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[path]; !ok {
			paths = append(paths, path)
		}
	}
	if len(paths) > shownProblems {
		paths = append(paths[:shownProblems], fmt.Sprintf("and %d more", len(paths)-shownProblems))
	}
	return paths
}

// fieldsOf returns a resource's scalars by path.
func fieldsOf(set *policyfile.Set, id policyfile.ID) map[string]string {
	fields := map[string]string{}
	text, err := set.JSON(id)
	if err != nil {
		return fields
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		return fields
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, child := range v {
				walk(strings.TrimPrefix(path+"."+key, "."), child)
			}
		case []any:
			for i, child := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), child)
			}
		default:
			fields[path] = fmt.Sprint(v)
		}
	}
	walk("", doc)
	return fields
}
