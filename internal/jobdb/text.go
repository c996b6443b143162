package jobdb

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/policy"
)

// Lists are stored as JSON, so that people and SQL can read them. Text that is not
// valid UTF-8 is stored as {"base64":"…"}, so nothing is lost.
type text string

type base64Text struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON encodes the text.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(base64Text{Base64: []byte(t)})
}

// UnmarshalJSON decodes what MarshalJSON wrote.
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var v base64Text
		if err := json.Unmarshal(b, &v); err != nil {
			return err
		}
		*t = text(v.Base64)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// EncodeStrings encodes a list of texts for a column; an empty list is "".
func EncodeStrings(list []string) string {
	if len(list) == 0 {
		return ""
	}
	if s, ok := encodePlain(list); ok {
		return s
	}
	out := make([]text, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return encode(out)
}

// encodePlain does the same for texts that JSON needs not escape, which nearly all
// names of nodes, containers and policies are.
func encodePlain(list []string) (string, bool) {
	size := 2
	for _, s := range list {
		for i := range len(s) {
			if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
				return "", false
			}
		}
		size += len(s) + 3
	}
	b := make([]byte, 0, size)
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), s...), '"')
	}
	return string(append(b, ']')), true
}

// DecodeStrings decodes what EncodeStrings wrote.
func DecodeStrings(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	var in []text
	if err := json.Unmarshal([]byte(s), &in); err != nil {
		return nil, fmt.Errorf("decode a list of texts: %w", err)
	}
	list := make([]string, len(in))
	for i, t := range in {
		list[i] = string(t)
	}
	return list, nil
}

type container struct {
	Name     text  `json:"name"`
	ExitCode int32 `json:"exitCode"`
	Reason   text  `json:"reason,omitempty"`
	Message  text  `json:"message,omitempty"`
}

// EncodeContainers encodes a list of containers for a column; an empty list is "".
func EncodeContainers(list []Container) string {
	if len(list) == 0 {
		return ""
	}
	out := make([]container, len(list))
	for i, c := range list {
		out[i] = container{Name: text(c.Name), ExitCode: c.ExitCode, Reason: text(c.Reason), Message: text(c.Message)}
	}
	return encode(out)
}

// DecodeContainers decodes what EncodeContainers wrote.
func DecodeContainers(s string) ([]Container, error) {
	if s == "" {
		return nil, nil
	}
	var in []container
	if err := json.Unmarshal([]byte(s), &in); err != nil {
		return nil, fmt.Errorf("decode a list of containers: %w", err)
	}
	list := make([]Container, len(in))
	for i, c := range in {
		list[i] = Container{Name: string(c.Name), ExitCode: c.ExitCode, Reason: string(c.Reason), Message: string(c.Message)}
	}
	return list, nil
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("jobdb: encode %T: %v", v, err)) // plain strings and numbers always encode
	}
	return string(b)
}

type member struct {
	Group      text   `json:"group"`
	Part       text   `json:"part"`
	Replica    uint32 `json:"replica"`
	Index      uint32 `json:"index"`
	Generation uint32 `json:"generation"`
}

// EncodeMember encodes a membership for a column; none is "".
func EncodeMember(m *chain.Member) string {
	if m == nil {
		return ""
	}
	return encode(member{text(m.Group), text(m.Part), m.Replica, m.Index, m.Generation})
}

// DecodeMember decodes what EncodeMember wrote.
func DecodeMember(s string) (*chain.Member, error) {
	if s == "" {
		return nil, nil
	}
	var m member
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		return nil, fmt.Errorf("decode a member: %w", err)
	}
	return &chain.Member{Group: string(m.Group), Part: string(m.Part), Replica: m.Replica, Index: m.Index, Generation: m.Generation}, nil
}

type groupVerdict struct {
	Reason       policy.UnitReason  `json:"reason"`
	Action       policy.GroupAction `json:"action"`
	Rule         text               `json:"rule"`
	RestartsUsed uint32             `json:"restartsUsed"`
	MaxRestarts  uint32             `json:"maxRestarts"`
	Keep         bool               `json:"keep,omitempty"`
	Refused      bool               `json:"refused,omitempty"`
	Noted        bool               `json:"noted,omitempty"`
}

// EncodeVerdict encodes a group's verdict for a column; none is "".
func EncodeVerdict(v *chain.GroupVerdict) string {
	if v == nil {
		return ""
	}
	return encode(groupVerdict{v.Reason, v.Action, text(v.Rule), v.RestartsUsed, v.MaxRestarts, v.Keep, v.Refused, v.Noted})
}

// DecodeVerdict decodes what EncodeVerdict wrote.
func DecodeVerdict(s string) (*chain.GroupVerdict, error) {
	if s == "" {
		return nil, nil
	}
	var v groupVerdict
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		return nil, fmt.Errorf("decode the verdict of a group: %w", err)
	}
	return &chain.GroupVerdict{
		Reason: v.Reason, Action: v.Action, Rule: string(v.Rule), RestartsUsed: v.RestartsUsed, MaxRestarts: v.MaxRestarts,
		Keep: v.Keep, Refused: v.Refused, Noted: v.Noted,
	}, nil
}

type budgetUse struct {
	Budget text                `json:"budget"`
	Effect policy.BudgetEffect `json:"effect"`
	Noted  bool                `json:"noted,omitempty"`
	Firsts uint32              `json:"firsts"`
	Left   uint32              `json:"left"`
	At     int64               `json:"at"`
}

// EncodeBudget encodes what budgets said for a column; nothing is "".
func EncodeBudget(u *policy.BudgetUse) string {
	if u == nil {
		return ""
	}
	return encode(budgetUse{text(u.Budget), u.Effect, u.Noted, u.Firsts, u.Left, u.At})
}

// DecodeBudget decodes what EncodeBudget wrote.
func DecodeBudget(s string) (*policy.BudgetUse, error) {
	if s == "" {
		return nil, nil
	}
	var u budgetUse
	if err := json.Unmarshal([]byte(s), &u); err != nil {
		return nil, fmt.Errorf("decode the use of a budget: %w", err)
	}
	return &policy.BudgetUse{Budget: string(u.Budget), Effect: u.Effect, Noted: u.Noted, Firsts: u.Firsts, Left: u.Left, At: u.At}, nil
}

type shapePart struct {
	Name        text     `json:"name"`
	Replicas    uint32   `json:"replicas"`
	Members     uint32   `json:"members"`
	MinMembers  uint32   `json:"minMembers"`
	After       []uint32 `json:"after,omitempty"`
	Parallelism uint32   `json:"parallelism,omitempty"`

	AfterReady   []uint32      `json:"afterReady,omitempty"`
	SuccessRules []successRule `json:"successRules,omitempty"`
}

type successRule struct {
	Indexes string `json:"indexes"`
	Count   uint32 `json:"count"`
}

// wholeShape is a shape in a column, where it is more than its parts.
type wholeShape struct {
	Parts   []shapePart `json:"parts"`
	Success success     `json:"success"`
}

type success struct {
	Any   bool     `json:"any,omitempty"`
	Parts []uint32 `json:"parts,omitempty"`
}

// EncodeShape encodes the shape of a group for a column: a list of parts, none is "", or an object with them.
func EncodeShape(s policy.Shape) string {
	if len(s.Parts) == 0 {
		return ""
	}
	out := make([]shapePart, len(s.Parts))
	for i, p := range s.Parts {
		out[i] = shapePart{text(p.Name), p.Replicas, p.Members, p.MinMembers, p.After, p.Parallelism, p.AfterReady, nil}
		for _, r := range p.SuccessRules {
			out[i].SuccessRules = append(out[i].SuccessRules, successRule{r.Indexes.String(), r.Count})
		}
	}
	if s.Success.Any || s.Success.Parts != nil {
		return encode(wholeShape{out, success{s.Success.Any, s.Success.Parts}})
	}
	return encode(out)
}

// DecodeShape decodes what EncodeShape wrote.
func DecodeShape(s string) (policy.Shape, error) {
	if s == "" {
		return policy.Shape{}, nil
	}
	var in wholeShape
	into := any(&in.Parts)
	if s[0] == '{' {
		into = &in
	}
	if err := json.Unmarshal([]byte(s), into); err != nil {
		return policy.Shape{}, fmt.Errorf("decode the parts of a group: %w", err)
	}
	parts := make([]policy.ShapePart, len(in.Parts))
	for i, p := range in.Parts {
		parts[i] = policy.ShapePart{Name: string(p.Name), Replicas: p.Replicas, Members: p.Members, MinMembers: p.MinMembers, After: p.After, Parallelism: p.Parallelism, AfterReady: p.AfterReady}
		for _, r := range p.SuccessRules {
			parts[i].SuccessRules = append(parts[i].SuccessRules, policy.SuccessRule{Indexes: policy.ParseIndexes(r.Indexes), Count: r.Count})
		}
	}
	return policy.Shape{Parts: parts, Success: policy.Success{Any: in.Success.Any, Parts: in.Success.Parts}}, nil
}
