package follow

// Waits says whether an accepted envelope is held back because its input is not
// all here yet. Then the reader is slow, and the chain is not.
func (f *Follower) Waits() bool { return f.held != nil }
