package chain

import "fmt"

// Past holds the links of the last envelopes that a reader accepted. With them the
// reader detects a log that was truncated and then continued differently, although its
// new content looks like claims that lost: a claimant has read the log, so the envelope
// that its claim names as the last one is one that every reader accepted (ADR 8).
type Past struct {
	links [64]struct {
		seq  uint64
		link Hash
	}
}

// Add records the position of a reader.
func (p *Past) Add(e End) {
	at := &p.links[e.Seq%uint64(len(p.links))]
	at.seq, at.link = e.Seq, e.Link
}

// Contradicts checks a claim that was not accepted. It returns ErrMissing if the claim
// follows an envelope other than the one that this reader accepted there.
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
