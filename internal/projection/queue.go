package projection

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// Queues lists the queues of the known jobs. It seeks from queue to queue, so its cost
// does not grow with the number of jobs. It is safe beside all other calls; a closed
// store has none.
func (s *Store) Queues() ([]string, error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return nil, nil
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{setKey}, UpperBound: []byte{setKey + 1}})
	if err != nil {
		return nil, s.classify(err)
	}
	var queues []string
	for ok := it.First(); ok; {
		queue, whole := queueOf(it.Key())
		if !whole {
			ok = it.Next()
			continue
		}
		queues = append(queues, queue)
		ok = it.SeekGE(after(appendEscaped([]byte{setKey}, queue)))
	}
	return queues, s.classify(errors.Join(it.Error(), it.Close()))
}

// queueOf is the queue of a key that appendSetPrefix begins.
func queueOf(key []byte) (string, bool) {
	queue, _, ok := cutEscaped(string(key[1:]))
	return queue, ok
}
