package chain

import "fmt"

// Past is the links of the last envelopes that a reader accepted. By them it
// notices a log that lost envelopes and went another way from there, while what
// stands in it looks like the claims of losers: a claimant has read the log, so
// what it names as the last envelope is one that every reader accepted (ADR 8).
type Past struct {
	links [64]struct {
		seq  uint64
		link Hash
	}
}

// Add takes in where a reader stands.
func (p *Past) Add(e End) {
	at := &p.links[e.Seq%uint64(len(p.links))]
	at.seq, at.link = e.Seq, e.Link
}

// Contradicts is asked about a claim that was not accepted. ErrMissing: it was
// made after an envelope in whose place this reader accepted another.
func (p *Past) Contradicts(raw []byte) error {
	env, err := DecodeEnvelope(raw)
	if err != nil {
		return nil //nolint:nilerr // it is no claim
	}
	records, err := env.Decode()
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	claim := claimIn(records)
	if claim == nil {
		return nil
	}
	at := &p.links[claim.LastSeq%uint64(len(p.links))]
	if at.seq == claim.LastSeq && at.link != claim.LastLink {
		return fmt.Errorf("%w: epoch %d was claimed after envelope %d, and another envelope stood there: the log went another way", ErrMissing, claim.Epoch, claim.LastSeq)
	}
	return nil
}
