package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/refloat/refloat/internal/policy"
	"github.com/refloat/refloat/internal/policylog"
)

// Verb is something that a person may be allowed to do, named as Armada names
// permissions.
type Verb string

// The verbs. Reading needs none.
const (
	CreateRetryPolicy Verb = "create_retry_policy"
	UpdateRetryPolicy Verb = "update_retry_policy"
	DeleteRetryPolicy Verb = "delete_retry_policy"
	BindRetryPolicies Verb = "bind_retry_policies" // change what is bound to queues
	SetRetrySettings  Verb = "set_retry_settings"
	KillRetries       Verb = "kill_retries"
	PauseRetries      Verb = "pause_retries"
)

// Verbs are all verbs.
func Verbs() []Verb {
	return []Verb{CreateRetryPolicy, UpdateRetryPolicy, DeleteRetryPolicy, BindRetryPolicies, SetRetrySettings, KillRetries, PauseRetries}
}

// verbOf is what a change needs.
func verbOf(c policylog.Change) Verb {
	switch {
	case c.Kind == policy.KindQueue:
		return BindRetryPolicies
	case c.Kind == policy.KindSettings:
		return SetRetrySettings
	case c.Op == policylog.Created:
		return CreateRetryPolicy
	case c.Op == policylog.Updated:
		return UpdateRetryPolicy
	default:
		return DeleteRetryPolicy
	}
}

// Auth knows who may do what. Its secrets are hashes.
type Auth struct {
	// Basic are users with a password.
	Basic map[string]BasicUser `json:"basic"`
	// Tokens are bearer tokens of programs, by a name for them.
	Tokens map[string]Token `json:"tokens"`
	// OIDC takes bearer tokens of an identity provider.
	OIDC *OIDC `json:"oidc"`
	// Permissions lists, for a verb, the groups that may do it.
	Permissions map[Verb][]string `json:"permissionGroupMapping"`

	verifier *oidc.IDTokenVerifier
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

// OIDC is an identity provider, and which claims name a user and the groups.
type OIDC struct {
	Issuer        string `json:"issuer"`
	Audience      string `json:"audience"`
	UsernameClaim string `json:"usernameClaim"` // default sub
	GroupsClaim   string `json:"groupsClaim"`   // default groups
}

// Principal is somebody who asks.
type Principal struct {
	Name     string
	Groups   []string
	Verified bool
}

// String is how a change names who made it.
func (p Principal) String() string {
	if !p.Verified {
		return p.Name + " (not verified)"
	}
	return p.Name
}

// Check says what is wrong with the configuration, and asks the identity provider
// for its keys.
func (a *Auth) Check(ctx context.Context) error {
	for name, u := range a.Basic {
		if _, err := bcrypt.Cost([]byte(u.PasswordHash)); err != nil {
			return fmt.Errorf("basic.%s.passwordHash: not a bcrypt hash: make one with `htpasswd -nB %s`", name, name)
		}
	}
	for name, t := range a.Tokens {
		if b, err := hex.DecodeString(t.SHA256); err != nil || len(b) != sha256.Size {
			return fmt.Errorf("tokens.%s.sha256: not a SHA-256 in hex: make it with `printf %%s TOKEN | sha256sum`", name)
		}
	}
	for verb := range a.Permissions {
		if !slices.Contains(Verbs(), verb) {
			return fmt.Errorf("permissionGroupMapping.%s: no such permission: use %v", verb, Verbs())
		}
	}
	if a.OIDC == nil {
		if len(a.Basic)+len(a.Tokens) == 0 {
			return fmt.Errorf("nobody could sign in: give basic, tokens or oidc")
		}
		return nil
	}
	if a.OIDC.Issuer == "" || a.OIDC.Audience == "" {
		return fmt.Errorf("oidc: issuer and audience are required")
	}
	provider, err := oidc.NewProvider(ctx, a.OIDC.Issuer)
	if err != nil {
		return fmt.Errorf("oidc.issuer: %w", err)
	}
	a.verifier = provider.Verifier(&oidc.Config{ClientID: a.OIDC.Audience})
	return nil
}

const (
	anonymous  = "anonymous"
	userHeader = "refloat-user" // who a program says it works for, where nobody has to prove it
)

// Who finds out who asks. Without an Auth everybody is welcome, by the name that
// they give.
func (a *Auth) Who(ctx context.Context) (Principal, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	header := func(name string) string {
		for _, key := range []string{name, "grpcgateway-" + name} {
			if v := md.Get(key); len(v) > 0 {
				return v[0]
			}
		}
		return ""
	}
	if a == nil {
		name := strings.Map(printable, header(userHeader))
		if name == "" {
			name = anonymous
		}
		return Principal{Name: name[:min(len(name), 100)]}, nil
	}
	scheme, secret, _ := strings.Cut(header("authorization"), " ")
	switch {
	case strings.EqualFold(scheme, "basic"):
		return a.basic(secret)
	case strings.EqualFold(scheme, "bearer"):
		return a.bearer(ctx, secret)
	}
	return Principal{}, status.Error(codes.Unauthenticated, "sign in: give a bearer token, or a user and a password")
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

var errNoEntry = status.Error(codes.Unauthenticated, "the credentials are not those of anybody who is known here")

func (a *Auth) basic(secret string) (Principal, error) {
	b, err := base64.StdEncoding.DecodeString(secret)
	name, password, _ := strings.Cut(string(b), ":")
	user, ok := a.Basic[name]
	if err != nil || !ok || bcrypt.CompareHashAndPassword([]byte(user.PasswordHash), []byte(password)) != nil {
		return Principal{}, errNoEntry
	}
	return Principal{Name: name, Groups: user.Groups, Verified: true}, nil
}

func (a *Auth) bearer(ctx context.Context, token string) (Principal, error) {
	sum := sha256.Sum256([]byte(token))
	for name, t := range a.Tokens {
		want, err := hex.DecodeString(t.SHA256)
		if err == nil && subtle.ConstantTimeCompare(sum[:], want) == 1 {
			return Principal{Name: name, Groups: t.Groups, Verified: true}, nil
		}
	}
	if a.verifier == nil {
		return Principal{}, errNoEntry
	}
	id, err := a.verifier.Verify(ctx, token)
	if err != nil {
		return Principal{}, errNoEntry // the error may hold pieces of the token
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return Principal{}, errNoEntry
	}
	p := Principal{Name: id.Subject, Verified: true}
	if claim := a.OIDC.UsernameClaim; claim != "" {
		if p.Name, _ = claims[claim].(string); p.Name == "" {
			return Principal{}, errNoEntry
		}
	}
	claim := a.OIDC.GroupsClaim
	if claim == "" {
		claim = "groups"
	}
	groups, _ := claims[claim].([]any)
	for _, g := range groups {
		if g, ok := g.(string); ok {
			p.Groups = append(p.Groups, g)
		}
	}
	return p, nil
}

// May refuses what somebody may not do.
func (a *Auth) May(who Principal, verb Verb) error {
	if a == nil || slices.ContainsFunc(a.Permissions[verb], func(group string) bool { return slices.Contains(who.Groups, group) }) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s lacks the permission %s", who.Name, verb)
}
