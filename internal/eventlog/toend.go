package eventlog

import "context"

// ToEnd returns a topic whose readers wait: Read returns 0 only after the reader has
// reached the end that the log had when it was called. A networked log has messages that no
// reader has fetched yet, and a program that reads a complete history wants those too. When ctx
// ends, Read returns its error, even if there is more to read.
func ToEnd(ctx context.Context, t Topic) Topic { return toEnd{t, ctx} }

type toEnd struct {
	Topic
	ctx context.Context // of the command that reads to the end
}

func (t toEnd) Open(p int, after Position) (Reader, error) {
	r, err := t.Topic.Open(p, after)
	if err != nil {
		return nil, err
	}
	return &toEndReader{Reader: r, ctx: t.ctx, topic: t.Topic, partition: p, at: after}, nil
}

type toEndReader struct {
	Reader
	ctx       context.Context
	topic     Topic
	partition int
	at        Position // of the last message read
}

// Read implements Reader, but waits for the messages that the log holds.
func (r *toEndReader) Read(dst []Message) (int, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
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
		select {
		case <-r.Changed():
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
}
