package api

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/refloat/refloat/internal/api/pb"
)

// armadaJSON encodes policies over REST as Armada's server does: an action may be a word in any case, the name of
// the enum or its number, and is written as a word; zero fields are omitted. Unknown fields, which Armada ignores,
// are rejected. Everything else uses protobuf's JSON mapping.
type armadaJSON struct{ strictJSON }

type policyJSON struct {
	Name          string     `json:"name,omitempty"`
	RetryLimit    uint32     `json:"retryLimit,omitempty"`
	DefaultAction actionJSON `json:"defaultAction,omitempty"`
	Rules         []ruleJSON `json:"rules,omitempty"`
}

type ruleJSON struct {
	Action        actionJSON  `json:"action,omitempty"`
	OnCategory    string      `json:"onCategory,omitempty"`
	OnSubcategory string      `json:"onSubcategory,omitempty"`
	Mutate        *mutateJSON `json:"mutate,omitempty"`
}

type mutateJSON struct {
	Affinity *struct {
		AvoidSameNode bool `json:"avoidSameNode"`
	} `json:"affinity"`
	Resources *struct {
		Memory *struct {
			Static string  `json:"static"`
			Factor float64 `json:"factor"`
		} `json:"memory"`
	} `json:"resources"`
}

type actionJSON pb.RetryAction

const actionPrefix = "RETRY_ACTION_"

func (a *actionJSON) UnmarshalJSON(b []byte) error {
	var word string
	if err := json.Unmarshal(b, &word); err != nil {
		var number int32
		if err := json.Unmarshal(b, &number); err != nil {
			return fmt.Errorf("action %.40s: use Fail or Retry", b)
		}
		*a = actionJSON(number)
		return nil
	}
	number, ok := pb.RetryAction_value[word]
	if !ok {
		number, ok = pb.RetryAction_value[actionPrefix+strings.ToUpper(word)]
	}
	if !ok {
		return fmt.Errorf("action %.40q: use Fail or Retry", word)
	}
	*a = actionJSON(number)
	return nil
}

func (a actionJSON) MarshalJSON() ([]byte, error) {
	word := strings.TrimPrefix(pb.RetryAction(a).String(), actionPrefix)
	return json.Marshal(word[:1] + strings.ToLower(word[1:]))
}

func (p *policyJSON) policy() *pb.RetryPolicy {
	out := &pb.RetryPolicy{Name: p.Name, RetryLimit: p.RetryLimit, DefaultAction: pb.RetryAction(p.DefaultAction)}
	for _, r := range p.Rules {
		rule := &pb.RetryRule{Action: pb.RetryAction(r.Action), OnCategory: r.OnCategory, OnSubcategory: r.OnSubcategory}
		if m := r.Mutate; m != nil {
			rule.Mutate = &pb.RetryMutation{}
			if m.Affinity != nil {
				rule.Mutate.Affinity = &pb.RetryAffinityMutation{AvoidSameNode: m.Affinity.AvoidSameNode}
			}
			if m.Resources != nil && m.Resources.Memory != nil {
				memory := &pb.RetryMemoryMutation{Static: m.Resources.Memory.Static, Factor: m.Resources.Memory.Factor}
				rule.Mutate.Resources = &pb.RetryResourcesMutation{Memory: memory}
			}
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// jsonOf converts a policy for output: without mutate, which our policies never have.
func jsonOf(p *pb.RetryPolicy) policyJSON {
	out := policyJSON{Name: p.Name, RetryLimit: p.RetryLimit, DefaultAction: actionJSON(p.DefaultAction)}
	for _, r := range p.Rules {
		out.Rules = append(out.Rules, ruleJSON{Action: actionJSON(r.Action), OnCategory: r.OnCategory, OnSubcategory: r.OnSubcategory})
	}
	return out
}

func (j *armadaJSON) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case *pb.RetryPolicy:
		return json.Marshal(jsonOf(v))
	case *pb.RetryPolicyList:
		var list struct {
			RetryPolicies []policyJSON `json:"retryPolicies,omitempty"`
		}
		for _, p := range v.RetryPolicies {
			list.RetryPolicies = append(list.RetryPolicies, jsonOf(p))
		}
		return json.Marshal(list)
	}
	return j.JSONPb.Marshal(v)
}

func (j *armadaJSON) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		to, ok := v.(*pb.RetryPolicy)
		if !ok {
			return j.strictJSON.NewDecoder(r).Decode(v)
		}
		var from policyJSON
		decoder := json.NewDecoder(r)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&from); err != nil {
			return named(err, to)
		}
		if err := atEnd(decoder); err != nil {
			return err
		}
		p := from.policy()
		to.Name, to.RetryLimit, to.DefaultAction, to.Rules = p.Name, p.RetryLimit, p.DefaultAction, p.Rules
		return nil
	})
}
