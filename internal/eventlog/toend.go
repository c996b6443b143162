package eventlog

// ToEnd is a topic whose readers wait: Read returns 0 only when the reader has
// come to where the log ended when it was called. A log behind a network has
// messages that no reader has fetched yet; who reads a history from one end to
// the other wants those too.
func ToEnd(t Topic) Topic { return toEnd{t} }

type toEnd struct{ Topic }

// Open implements Topic.
func (t toEnd) Open(p int, after Position) (Reader, error) {
	r, err := t.Topic.Open(p, after)
	if err != nil {
		return nil, err
	}
	return &toEndReader{Reader: r, topic: t.Topic, partition: p, at: after}, nil
}

type toEndReader struct {
	Reader
	topic     Topic
	partition int
	at        Position // of the last message read
}

// Read implements Reader, but waits for what the log holds.
func (r *toEndReader) Read(dst []Message) (int, error) {
	for {
		n, err := r.Reader.Read(dst)
		if n > 0 {
			r.at = dst[n-1].Position
		}
		if n > 0 || err != nil || len(dst) == 0 {
			return n, err
		}
		end, err := r.topic.End(r.partition)
		if err != nil {
			return 0, err
		}
		if r.at.Compare(end) >= 0 {
			return 0, nil
		}
		<-r.Changed()
	}
}
