package evaluator

// Len is how many messages a Fit remembers.
func (f *Fit) Len() int { return len(f.messages) }
