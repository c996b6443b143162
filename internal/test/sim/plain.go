package sim

import (
	"fmt"

	"github.com/refloat/refloat/internal/chain"
	"github.com/refloat/refloat/internal/eventlog"
)

// plain is a partition's chain as protocol.md 2 reads, in this package's own words.
type plain struct {
	envelopes []accepted
	seq       uint64
	link      chain.Hash
	epoch     uint64
	owner     chain.OwnerID
	inTo      eventlog.Position
	of        uint32 // partitions, by the last claim
}

type accepted struct {
	env     *chain.Envelope
	records []chain.Record
	link    chain.Hash
	at      eventlog.Position
}

func (c *plain) last() *accepted { return &c.envelopes[len(c.envelopes)-1] }

// offer processes the next message of the log. env is nil if the message is not an envelope.
func (c *plain) offer(raw []byte, at eventlog.Position) (ok bool, env *chain.Envelope, claims bool) {
	env, err := chain.DecodeEnvelope(raw)
	if err != nil {
		return false, nil, false
	}
	records, err := env.Decode()
	if err != nil {
		return false, nil, false
	}
	var claim *chain.OwnerClaim
	if len(records) > 0 {
		claim, claims = records[0].(*chain.OwnerClaim)
	}
	if env.Seq != c.seq+1 || env.Link != c.link || env.InFrom != c.inTo {
		return false, env, claims
	}
	if claims {
		named := claim.LastSeq == c.seq && claim.LastLink == c.link && claim.Epoch == env.Epoch && claim.Owner == env.Owner
		if !named || claim.Epoch != c.epoch+1 {
			return false, env, claims
		}
	} else if env.Epoch != c.epoch || env.Owner != c.owner {
		return false, env, claims
	}
	c.seq, c.link, c.epoch, c.owner, c.inTo = env.Seq, chain.Link(raw), env.Epoch, env.Owner, env.InTo
	c.envelopes = append(c.envelopes, accepted{env, records, c.link, at})
	return true, env, claims
}

// contains says whether the chain has an envelope with this number and link.
func (c *plain) contains(seq uint64, link chain.Hash) bool {
	if seq == 0 {
		return link == chain.Hash{}
	}
	return seq <= uint64(len(c.envelopes)) && c.envelopes[seq-1].link == link
}

// mustBeInChain checks that what an actor has applied is the chain's. Only in a log that lost messages may it differ,
// for some time.
func (w *world) mustBeInChain(who fmt.Stringer, p int, end chain.End) {
	if w.chains[p].contains(end.Seq, end.Link) {
		return
	}
	if w.cut {
		w.saw(SawFork)
		return
	}
	w.fail("%v took in envelope %d with link %.8v, which the chain does not hold (its end is %d)", who, end.Seq, end.Link, w.chains[p].seq)
}
