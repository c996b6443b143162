// Package diff compares two policy sets: by what they say, field by field,
// and by what they would have decided of a recorded history.
//
// What they say is compared in the canonical encoding, so comments, order of
// files and ways of writing make no difference. What they decide comes from
// audit.Replay, once for each set: nothing here decides.
package diff
