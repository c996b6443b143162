package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/policy/policyfile"
	"github.com/refloat/refloat/internal/policylog"
	"github.com/refloat/refloat/internal/suggest"
)

// Verb is a permission, with Armada's name for it.
type Verb string

// The verbs. Reading policies needs none.
const (
	CreateRetryPolicy Verb = "create_retry_policy"
	UpdateRetryPolicy Verb = "update_retry_policy"
	DeleteRetryPolicy Verb = "delete_retry_policy"
	BindRetryPolicies Verb = "bind_retry_policies" // change queue bindings
	SetRetrySettings  Verb = "set_retry_settings"
	KillRetries       Verb = "kill_retries"
	PauseRetries      Verb = "pause_retries"
	AvoidNodes        Verb = "avoid_nodes"    // have retries avoid a node, or trust it
	OrderRetries      Verb = "order_retries"  // have single jobs retried or given up
	ShadowRetries     Verb = "shadow_retries" // switch queues to and from shadow mode
	GetJobs           Verb = "get_jobs"       // read jobs, runs, decisions and groups
)

// Verbs lists all verbs.
func Verbs() []Verb {
	return []Verb{CreateRetryPolicy, UpdateRetryPolicy, DeleteRetryPolicy, BindRetryPolicies, SetRetrySettings, KillRetries, PauseRetries, AvoidNodes, OrderRetries, ShadowRetries, GetJobs}
}

// verbOf returns the verb that a change needs.
func verbOf(c policylog.Change) Verb {
	switch {
	case c.Kind == policyfile.KindQueue:
		return BindRetryPolicies
	case c.Kind == policyfile.KindSettings:
		return SetRetrySettings
	case c.Op == policylog.Created:
		return CreateRetryPolicy
	case c.Op == policylog.Updated:
		return UpdateRetryPolicy
	default:
		return DeleteRetryPolicy
	}
}

// Auth holds users and permissions. Secrets are stored as hashes.
type Auth struct {
	// Basic holds users with a password.
	Basic map[string]BasicUser `json:"basic"`
	// Tokens holds bearer tokens of programs, by name.
	Tokens map[string]Token `json:"tokens"`
	// OIDC accepts bearer tokens of an identity provider.
	OIDC *OIDC `json:"oidc"`
	// Permissions lists, for each verb, the groups that have it.
	Permissions map[Verb][]string `json:"permissionGroupMapping"`
	// Queues grants permissions on single queues, beside those that Permissions grants on all.
	Queues map[string]QueuePermissions `json:"queuePermissions"`

	decoys map[int][]byte // by cost: hashes that match no password (checkBasic)
	cost   int            // the highest in use
	logins *logins
}

// BasicUser is a user with a password.
type BasicUser struct {
	PasswordHash string   `json:"passwordHash"` // bcrypt
	Groups       []string `json:"groups"`
}

// Token is a bearer token of a program.
type Token struct {
	SHA256 string   `json:"sha256"` // of the token, in hex
	Groups []string `json:"groups"`
}

// Principal is an authenticated caller.
type Principal struct {
	Name     string
	Groups   []string
	Verified bool
}

// String returns the author recorded in a change.
func (p Principal) String() string {
	if !p.Verified {
		return p.Name + " (not verified)"
	}
	return p.Name
}

// maxCost limits the cost of a password check: 12 takes about a quarter of a second.
const maxCost = 12

// Check validates the configuration. The identity provider need not answer yet: whoever needs it cannot sign in until it does.
func (a *Auth) Check() error {
	if err := a.checkBasic(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(a.Tokens)) {
		b, err := hex.DecodeString(a.Tokens[name].SHA256)
		switch {
		case name == "":
			return errors.New("tokens: a token needs a name, which the history records")
		case err != nil || len(b) != sha256.Size:
			return fmt.Errorf("tokens.%s.sha256: not a SHA-256 in hex: make it with `printf %%s TOKEN | sha256sum`", name)
		case sha256.Sum256(nil) == [sha256.Size]byte(b):
			return fmt.Errorf("tokens.%s.sha256: the hash of an empty token, with which anyone could authenticate", name)
		}
	}
	if err := a.checkQueues(); err != nil {
		return err
	}
	for _, verb := range slices.Sorted(maps.Keys(a.Permissions)) {
		if !slices.Contains(Verbs(), verb) {
			var names []string
			for _, v := range Verbs() {
				names = append(names, string(v))
			}
			return fmt.Errorf("permissionGroupMapping.%s: unknown permission: %s", verb, suggest.Fix(string(verb), names, fmt.Sprintf("use %v", names)))
		}
	}
	if a.OIDC == nil {
		if len(a.Basic)+len(a.Tokens) == 0 {
			return errors.New("no user could authenticate: give basic, tokens or oidc")
		}
		return nil
	}
	return a.OIDC.check()
}

// checkBasic also makes the decoys. A wrong password is compared until the highest cost in use is spent, whether its
// user is unknown or has a hash of a lower cost: the time must not tell which names exist.
func (a *Auth) checkBasic() error {
	a.logins = newLogins()
	a.cost, a.decoys = 0, map[int][]byte{}
	lowest := maxCost
	for _, name := range slices.Sorted(maps.Keys(a.Basic)) {
		cost, err := bcrypt.Cost([]byte(a.Basic[name].PasswordHash))
		switch {
		case name == "" || strings.Contains(name, ":"):
			return fmt.Errorf("basic.%s: a user name must not be empty or contain a colon", name)
		case err != nil:
			return fmt.Errorf("basic.%s.passwordHash: not a bcrypt hash: make one with `htpasswd -nB %s`", name, name)
		case cost > maxCost:
			return fmt.Errorf("basic.%s.passwordHash: cost %d is above the limit of %d, because each login would take seconds of CPU: make a hash with `htpasswd -nB -C %d %s`", name, cost, maxCost, maxCost, name)
		}
		a.cost, lowest = max(a.cost, cost), min(lowest, cost)
	}
	if a.cost == 0 {
		return nil
	}
	for cost := lowest; cost <= a.cost; cost++ {
		var err error
		if a.decoys[cost], err = bcrypt.GenerateFromPassword([]byte(rand.Text()), cost); err != nil {
			return fmt.Errorf("basic: %w", err)
		}
	}
	return nil
}

// topUp returns the decoys to compare with after a comparison of a cost, so that together they take as long as one of
// the highest cost: each cost takes twice as long as the one below.
func (a *Auth) topUp(cost int) (rest [][]byte) {
	for ; cost < a.cost; cost++ {
		rest = append(rest, a.decoys[cost])
	}
	return rest
}

const (
	anonymous  = "anonymous"
	userHeader = "refloat-user" // the user on whose behalf a program acts, if there is no authentication
)

// Who authenticates the caller, unless the server already has. Without an Auth every caller is accepted, under the
// name that it gives.
func (a *Auth) Who(ctx context.Context) (Principal, error) {
	if p, ok := ctx.Value(admitted{}).(Principal); ok {
		return p, nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	header := func(name string) string {
		if v := md.Get(name); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	if a == nil {
		return Principal{Name: cmp.Or(nameFor(header(userHeader)), anonymous)}, nil
	}
	scheme, secret, _ := strings.Cut(header("authorization"), " ")
	switch {
	case strings.EqualFold(scheme, "basic"):
		return a.basic(ctx, secret)
	case strings.EqualFold(scheme, "bearer"):
		return a.bearer(ctx, secret)
	}
	return Principal{}, status.Error(codes.Unauthenticated, "authentication required: give a bearer token, or a user and a password")
}

// nameFor makes a name fit for the history: printable and short.
func nameFor(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxName)], "")
}

const maxName = 100

// admitted is the context key of the authenticated caller: authentication happens before a body is read, in front
// of two servers that share only the context.
type admitted struct{}

var errNoEntry = status.Error(codes.Unauthenticated, "unknown user, or wrong credentials")

// basic checks a user's password. Check must have been called.
func (a *Auth) basic(ctx context.Context, secret string) (Principal, error) {
	b, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return Principal{}, errNoEntry
	}
	name, password, _ := strings.Cut(string(b), ":")
	if p, ok := a.token(password); ok && p.Name == name { // in a browser, which asks for a user and a password
		return p, nil
	}
	if len(a.Basic) == 0 || a.logins == nil {
		return Principal{}, errNoEntry
	}
	user, ok := a.Basic[name]
	if !ok {
		user.PasswordHash = string(a.decoys[a.cost])
	}
	cost, _ := bcrypt.Cost([]byte(user.PasswordHash)) // checkBasic saw it
	switch err := a.logins.check(ctx, user.PasswordHash, password, a.topUp(cost)); {
	case err != nil:
		return Principal{}, err
	case !ok:
		return Principal{}, errNoEntry
	}
	return Principal{Name: name, Groups: user.Groups, Verified: true}, nil
}

// token finds whose token it is.
func (a *Auth) token(token string) (Principal, bool) {
	sum := sha256.Sum256([]byte(token))
	for name, t := range a.Tokens {
		want, err := hex.DecodeString(t.SHA256)
		if err == nil && subtle.ConstantTimeCompare(sum[:], want) == 1 {
			return Principal{Name: name, Groups: t.Groups, Verified: true}, true
		}
	}
	return Principal{}, false
}

func (a *Auth) bearer(ctx context.Context, token string) (Principal, error) {
	if p, ok := a.token(token); ok {
		return p, nil
	}
	if a.OIDC == nil {
		return Principal{}, errNoEntry
	}
	accepted := []*oidc.Config{{ClientID: a.OIDC.Audience}}
	if l := a.OIDC.Login; l != nil && l.CLIClientID != a.OIDC.Audience {
		accepted = append(accepted, &oidc.Config{ClientID: l.CLIClientID})
	}
	id, err := a.OIDC.verify(ctx, token, accepted...)
	switch {
	case errors.Is(err, errNoProvider):
		return Principal{}, err
	case err != nil:
		return Principal{}, errNoEntry // the error may contain parts of the token
	}
	return a.OIDC.caller(id)
}

// May returns an error if the caller lacks a permission on all queues, or on what is of no queue.
func (a *Auth) May(who Principal, verb Verb) error {
	if a == nil || slices.ContainsFunc(a.Permissions[verb], func(group string) bool { return slices.Contains(who.Groups, group) }) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s lacks the permission %s", who.Name, verb)
}
